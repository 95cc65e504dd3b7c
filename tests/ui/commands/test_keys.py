"""What terminals send for keys."""

from __future__ import annotations

import pytest

from ui.commands.top import named


@pytest.mark.parametrize(
    ("sent", "keys"),
    [
        ("q", ["q"]),
        ("\x1b[A\x1b[B", ["up", "down"]),
        ("\x1bOA", ["up"]),
        ("jk ", ["down", "up", "page-down"]),
        ("\x1b[5~d\x1b[6~", ["page-up", "d", "page-down"]),
        ("\x1b[H\x1b[F\x1b[1~\x1b[4~", ["home", "end", "home", "end"]),
        # Those that mean nothing: to the right, F5, a mouse, half a sequence.
        ("\x1b[C", []),
        ("\x1b[15~\x1bOP", []),
        ("\x1b[<0;12;5Mq", ["q"]),
        ("\x1b[99;9qq", ["q"]),
        ("\x1b[1", []),
        ("\x1b", []),
        ("", []),
    ],
)
def test_keys_are_named(sent: str, keys: list[str]) -> None:
    assert named(sent) == keys
