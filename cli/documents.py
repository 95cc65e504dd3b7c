"""The documents of a manifest, as YAML or JSON: read quickly, and no more of them than stands there.

Ten thousand pods are 3 MB of text, so libyaml reads them where PyYAML has it. Manifests may repeat themselves by
aliases (``*name`` and ``<<: *name``), but twenty lines of aliases that repeat aliases say as much as a whole disk. So a
text is looked through before anything is made of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
import yaml
from yaml.composer import ComposerError
from yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent, DocumentStartEvent, ScalarEvent

#: Most values that the aliases of one file may repeat, keys counted too: some twenty thousand whole pods.
MOST_REPEATED: Final = 1_000_000
#: Long text counts as one more value for each this many characters: an alias repeats it whole where it is written out.
_CHARACTERS_A_VALUE: Final = 32
#: Most levels. libyaml goes down the stack of C with each of them and does not look how much of that is left.
DEEPEST: Final = 256
#: Some 50 pods, which take 10 ms.
_EVENTS_A_TICK: Final = 2_000
_Loader: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _nothing() -> None:
    """Nobody waits."""


def documents(text: str, tick: Callable[[], None] = _nothing) -> list[object]:
    """Read all documents of a text. Raises yaml.YAMLError, ValueError or RecursionError for what is none.

    ``tick`` is called again and again while a long text is read.
    """
    if text.lstrip()[:1] in {"{", "["}:
        try:
            return [msgspec.json.decode(text)]
        except (msgspec.DecodeError, UnicodeEncodeError):
            pass  # YAML has these brackets too
    seen = _Seen()
    for number, event in enumerate(yaml.parse(text, Loader=_Loader)):
        seen.event(event)
        if number % _EVENTS_A_TICK == 0:
            tick()
    found: list[object] = []
    for document in yaml.load_all(text, Loader=_Loader):
        found.append(document)
        tick()
    return found


class _Seen:
    """What of a text was seen: how many values, and how many of them aliases repeat."""

    def __init__(self) -> None:
        self._values = 0
        self._repeated = 0
        #: Of each list and object that is not complete: its anchor, and how many values there were before it.
        self._open: list[tuple[str | None, int]] = []
        self._sizes: dict[str | None, int] = {}

    def event(self, event: Any) -> None:
        """Go on by one event of the parser. Raises ComposerError for more than anybody means."""
        kind = type(event)
        if kind is ScalarEvent:
            before = self._values
            self._values += len(event.value) // _CHARACTERS_A_VALUE
            self._complete(event.anchor, before)
        elif issubclass(kind, CollectionStartEvent):
            self._open.append((event.anchor, self._values))
            if len(self._open) > DEEPEST:
                raise _wrong(f"it has more than {DEEPEST} levels", event)
        elif issubclass(kind, CollectionEndEvent):
            self._complete(*self._open.pop())
        elif kind is AliasEvent:
            self._repeat(event)
        elif kind is DocumentStartEvent:
            self._sizes.clear()

    def _complete(self, anchor: str | None, before: int) -> None:
        self._values += 1
        self._sizes[anchor] = self._values - before

    def _repeat(self, alias: Any) -> None:
        if any(anchor == alias.anchor for anchor, _ in self._open):
            raise _wrong(f"*{alias.anchor} stands inside of what it repeats", alias)
        size = self._sizes.get(alias.anchor, 0)
        self._values += size
        self._repeated += size
        if self._repeated > MOST_REPEATED:
            raise _wrong(f"its aliases repeat more than {MOST_REPEATED} values: write out what is meant", alias)


def _wrong(what: str, event: Any) -> ComposerError:
    return ComposerError(None, None, what, event.start_mark)
