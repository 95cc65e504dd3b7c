"""``python -m wire.crds.render`` writes the CRDs' YAML beside the structs that they are made from."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import yaml

from wire.crds import bindrequest, gpunode, podgroup, queue, topology

DEFINITIONS: Final = (
    bindrequest.DEFINITION,
    podgroup.DEFINITION,
    queue.DEFINITION,
    topology.DEFINITION,
    gpunode.DEFINITION,
)
FOLDER: Final = Path(__file__).parent / "yaml"

_HEADER: Final = "# Made by `python -m wire.crds.render` from the structs in wire/crds/. Edit those.\n"


def rendered() -> dict[str, str]:
    """Render every CRD: file name to text."""
    return {
        f"{definition.group}_{definition.plural}.yaml": _HEADER
        + yaml.safe_dump(definition.manifest(), sort_keys=False, width=120, allow_unicode=True)
        for definition in DEFINITIONS
    }


def main() -> None:
    """Write the files."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in rendered().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
