"""Whether tests mirror folders: ``python -m tools.mirrored``.

Tests follow the feature: each folder of modules has test files in the mirrored folder, and each folder of
tests mirrors a folder of modules. Tests of several features are in folders named ``stories``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

FOLDERS: Final = ("binder/core", "gpu", "scheduler/core", "sharing")
STORIES: Final = "stories"


def wrong(root: Path, folders: tuple[str, ...] = FOLDERS) -> Iterator[str]:
    """Yield a sentence for each folder of modules without tests, and for each folder of tests without modules."""
    for folder in folders:
        modules = {
            path.parent.relative_to(root) for path in (root / folder).rglob("*.py") if path.name != "__init__.py"
        }
        tested = {path.parent.relative_to(root / "tests") for path in (root / "tests" / folder).rglob("test_*.py")}
        for missing in sorted(modules - tested):
            yield f"{missing}: has no tests; make tests/{missing}/test_{missing.name}.py"
        for alone in sorted(tested - modules):
            if STORIES not in alone.parts:
                yield f"tests/{alone}: no folder {alone} has modules; rename it, or move its tests to {STORIES}/"


def main() -> int:
    """Print what is wrong; return the exit code."""
    found = list(wrong(Path(__file__).parents[1]))
    for sentence in found:
        print(sentence, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
