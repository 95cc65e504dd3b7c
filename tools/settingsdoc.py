"""The tables of docs/settings.md: ``python -m tools.settingsdoc write``, and ``check`` whether they are up to date.

They are made from what runtime/settings declares. The text around them is written by hand and not touched.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from cli.components import COMPONENTS
from runtime.settings.common import Component
from runtime.settings.declaration import Declared, declared

PATH: Final = Path(__file__).parent.parent / "docs" / "settings.md"
_BEGIN: Final = "<!-- Made by `make settings` from runtime/settings: change that. -->\n"
_HEAD: Final = "| setting | variable | default | allowed | what it is |\n|---|---|---|---|---|\n"


def rendered(text: str) -> str:
    """Return the page with its tables as the code would make them. Raises ValueError for a page without their place."""
    by_hand, mark, _ = text.partition(_BEGIN)
    if not mark:
        raise ValueError(f"{PATH} has no line that says where the tables begin: {_BEGIN}")
    return by_hand + _BEGIN + "".join(_tables())


def _tables() -> Iterator[str]:
    shared = {each.field for each in declared(Component)}
    yield f"\n## All components\n\n{_HEAD}"
    yield from (_row(each, each.variable("component").replace("COMPONENT", "\\*")) for each in declared(Component))
    for name, (settings, what) in COMPONENTS.items():
        yield f"\n## `moorage {name}`: {what}\n\n{_HEAD}"
        yield from (_row(each, each.variable(name)) for each in declared(settings) if each.field not in shared)


def _row(each: Declared, variable: str) -> str:
    setting = each.setting
    several = "; a list: with commas in the variable, the option several times" if setting.many else ""
    several += "" if setting.in_file else "; not in a file"
    cells = (f"`{each.key}`", variable, each.told_default(), setting.kind.allowed, setting.help + several)
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
