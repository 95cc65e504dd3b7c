"""Which file of a folder a node's device plug-in is set by: the labels of NVIDIA's configuration manager, and ours."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from nodeagent.core.mistake import Mistake, shown
from wire import names

#: On a Node, the name of a file; the first that is there counts.
LABELS: Final = (names.NODE_AGENT_CONFIG, "nvidia.com/device-plugin.config")
_DEFAULT: Final = "default"


def chosen(labels: Mapping[str, str], files: Collection[str]) -> str | Mistake | None:
    """Return a file's name, None for no file (all defaults), or what is wrong with the label.

    Without a label: the file ``default``, or the only one there is, or none. These are NVIDIA's fallbacks ``named``,
    ``single`` and ``empty``, in the order of its default.
    """
    for label in LABELS:
        if (name := labels.get(label, "")) in files:
            return name
        if name:
            return Mistake(label, f"{shown(name)} is no file", ", ".join(sorted(files)[:20]) or "there are no files")
    if _DEFAULT in files:
        return _DEFAULT
    return next(iter(files)) if len(files) == 1 else None
