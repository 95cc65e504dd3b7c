"""YAML that people hand in, read without aliases: a few lines of them, merged into each other, are read for hours."""

from __future__ import annotations

from typing import Any

import yaml
from typing_extensions import override


class WrittenOut(yaml.SafeLoader):
    """Refuses aliases; everything else as a SafeLoader."""

    @override
    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.composer.ComposerError(None, None, "aliases (*name) are not read here: write them out")
        return super().compose_node(parent, index)
