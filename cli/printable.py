"""Text from manifests and clusters, for terminals: its author must not be able to move the cursor or forge lines."""

from __future__ import annotations


def line(text: str) -> str:
    """One line of it; all that does not print, line ends too, is written as Python writes it in a literal."""
    return text if text.isprintable() else "".join(map(_shown, text))


def _shown(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
