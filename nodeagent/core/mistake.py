"""Why a device plug-in does not serve by a file: the place, what is wrong there, and what is allowed."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override


@dataclass(frozen=True, slots=True)
class Mistake:
    """One thing that is wrong. ``path`` names an entry, as in ``sharing.timeSlicing.resources[1].replicas``.

    ``is_unserved``: the file is right, and asks for something that this plug-in does not do.
    """

    path: str
    problem: str
    allowed: str
    is_unserved: bool = False

    @override
    def __str__(self) -> str:
        """In one line, for a log or an event."""
        return f"{self.path}: {self.problem}; allowed: {self.allowed}"


def shown(value: object) -> str:
    """A value of a file in at most 40 characters. Lists and objects are not written out."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    text = {True: "true", False: "false", None: "null"}[value] if isinstance(value, bool | None) else str(value)
    printable = "".join(character if character.isprintable() else "?" for character in text)
    return repr(printable if len(printable) <= 40 else f"{printable[:37]}...")
