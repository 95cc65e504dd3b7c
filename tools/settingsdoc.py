"""The tables of docs/reference/settings.md: ``python -m tools.settingsdoc write``, or ``check`` for a comparison.

They are made from what runtime/settings declares. The text around them is written by hand and not touched.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from cli.commands import COMPONENTS
from runtime.settings.common import Component
from runtime.settings.declaration import Declared, declared

PATH: Final = Path(__file__).parent.parent / "docs" / "reference" / "settings.md"
_BEGIN: Final = "<!-- Made by `make settings` from runtime/settings: change that. -->\n"
_HEAD: Final = "| setting | default | allowed | meaning |\n|---|---|---|---|\n"
_HEAD_OF_SEVERAL: Final = "| setting | components | default | allowed | meaning |\n|---|---|---|---|---|\n"


def rendered(text: str) -> str:
    """Return the page with its tables as the code would make them. Raises ValueError for a page without their place."""
    by_hand, mark, _ = text.partition(_BEGIN)
    if not mark:
        raise ValueError(f"{PATH} has no line that says where the tables begin: {_BEGIN}")
    return by_hand + _BEGIN + "".join(_tables())


def _tables() -> Iterator[str]:
    of_all = {each.field for each in declared(Component)}
    of_components = _components()
    yield f"\n## All components\n\n{_HEAD}"
    yield from (_row(each) for each in declared(Component))
    yield f"\n## Several components\n\n{_HEAD_OF_SEVERAL}"
    for cells, names in of_components.items():
        if len(names) > 1:
            yield _line((cells[0], ", ".join(names), *cells[1:]))
    for component in COMPONENTS:
        yield f"\n## `moorage {component.name}`: {component.help}\n\n{_HEAD}"
        own = (each for each in declared(component.settings()) if each.field not in of_all)
        yield from (_row(each) for each in own if len(of_components[_cells(each)]) == 1)


def _components() -> dict[tuple[str, ...], list[str]]:
    """Return the components that have a setting with the same row."""
    of_all = {each.field for each in declared(Component)}
    found: dict[tuple[str, ...], list[str]] = {}
    for component in COMPONENTS:
        for each in declared(component.settings()):
            if each.field not in of_all:
                found.setdefault(_cells(each), []).append(component.name)
    return found


def _row(each: Declared) -> str:
    return _line(_cells(each))


def _cells(each: Declared) -> tuple[str, ...]:
    setting = each.setting
    several = "; a list" if setting.many else ""
    several += "" if setting.in_file else "; not in a file"
    return (f"`{each.key}`", each.told_default(), setting.kind.allowed, setting.help + several)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


def main(arguments: Sequence[str]) -> int:
    """Write, or check; return the exit code."""
    if list(arguments) not in (["write"], ["check"]):
        print("usage: python -m tools.settingsdoc write|check", file=sys.stderr)
        return 2
    is_text = PATH.read_text()
    should_be = rendered(is_text)
    if arguments[0] == "write":
        PATH.write_text(should_be)
        return 0
    if is_text != should_be:
        print(f"{PATH.name}: not what runtime/settings declares: make settings", file=sys.stderr)
    return 0 if is_text == should_be else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
