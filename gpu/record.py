"""The native record: a pod's request in the normal form, in one annotation (``moorage.dev/gpu``).

Written once, when a pod comes, and read by everything after that: so a setting that is changed later changes no pod
that is there. It is documented for users in docs/reference/record.md and fixed from then on (S8).

A new pod may bring one along, as a copied spec does or somebody who writes Moorage's own form: it is an ask like any
other, and gives nothing that an ask doesn't.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from gpu.dialects.assembly import MOST_ASKS
from gpu.dialects.plugin import containers, is_sidecar
from gpu.dialects.seating import MOST_TRIED
from gpu.enforcement import MODES
from gpu.recordedasks import MOST_MIB, MalformedAsk, RecordedAsk, alternatives, recorded, request
from gpu.refusal import Mistake, Refusal, shown
from gpu.request import ContainerRef, ContainerRequest
from gpu.translation import ANY_CARD, Cards, Note, Place, Translation, Wishes
from wire import names
from wire.core import PodSpec

VERSION: Final = 1
#: Of a record that asks differently on some nodes: a reader of version 1 only must not take it as valid for all nodes.
VERSION_OF_PLACES: Final = 2
#: Twice what any dialect makes (gpu/dialects/seating.py); each costs the scheduler a trial.
_MOST_ALTERNATIVES: Final = 128
#: Most asks in all of them: the scheduler reads a record with each event of its pod.
_MOST_TRIED: Final = 2 * MOST_TRIED
#: Twice what the settings hold (gpu/dialects/nodesettings.py); each node is compared with all of them.
_MOST_SELECTORS: Final = 33
_MOST_LABELS: Final = 16
_STRATEGIES: Final = frozenset({"", "binpack", "spread"})
_MODES: Final = frozenset({"", *MODES})
_DIALECT: Final = re.compile(r"[a-z][a-z0-9-]{0,30}")
#: Records that are remembered, and the longest one of these, in characters: a bound on memory that no user can raise.
_MOST_REMEMBERED: Final = 256
_LONGEST_REMEMBERED: Final = 16 * 1024


class RecordedPlace(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True, kw_only=True):
    """Nodes with all of ``labels`` and not all of any of ``other_than``; ``unit`` as in Record."""

    labels: dict[str, str] = {}
    other_than: tuple[dict[str, str], ...] = ()
    unit: int = 0


class Record(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True, kw_only=True):
    """All of it. ``alternatives`` are whole lists of asks in order of preference; ``unit`` is the Translation's.

    ``places``: one for ``asks`` and one for each of the alternatives, where a pod asks for something else on some
    nodes.
    """

    version: int
    dialect: str
    asks: tuple[RecordedAsk, ...] = ()
    alternatives: tuple[tuple[RecordedAsk, ...], ...] = ()
    strategy: str = ""
    cards: Cards | None = None
    wishes: Wishes | None = None
    notes: tuple[Note, ...] = ()
    unit: int = 0
    places: tuple[RecordedPlace, ...] = ()


_decoder = msgspec.json.Decoder(Record)


def render(translation: Translation) -> str:
    """Write the annotation."""
    record = Record(
        version=VERSION_OF_PLACES if translation.places else VERSION,
        dialect=translation.dialect,
        asks=tuple(recorded(translation.request)),
        alternatives=tuple(tuple(recorded(way)) for way in translation.alternatives),
        strategy=translation.strategy,
        cards=translation.cards if translation.cards != ANY_CARD else None,
        wishes=translation.wishes if translation.wishes != Wishes() else None,
        notes=translation.notes,
        unit=translation.unit if not translation.places else 0,
        places=tuple(_recorded_place(place) for place in translation.places),
    )
    return msgspec.json.encode(record).decode()


def read(text: str) -> Translation | Refusal:
    """Read the annotation, or say what in it this version does not understand.

    Pods of one job have equal records, and each pod is seen several times: what was read lately is remembered.
    """
    return _remembered(text) if len(text) <= _LONGEST_REMEMBERED else read_anew(text)


def read_anew(text: str) -> Translation | Refusal:
    """Read the annotation without the cache: the function itself, for measuring."""
    try:
        record = _decoder.decode(text)
        if not _is_sound(record):
            return _unreadable(text)
        first = request(record.asks)
        return Translation(
            dialect=record.dialect,
            request=first,
            alternatives=alternatives(record.alternatives, first),
            strategy=record.strategy,
            cards=record.cards or ANY_CARD,
            wishes=record.wishes or Wishes(),
            notes=record.notes,
            unit=record.places[0].unit if record.places else record.unit,
            places=tuple(_place(place) for place in record.places),
        )
    except MalformedAsk as error:
        return refused(f"{names.GPU_RECORD}: {error.field}", error.value, error.allowed)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return _unreadable(text)


_remembered: Final = lru_cache(maxsize=_MOST_REMEMBERED)(read_anew)


def _unreadable(text: str) -> Refusal:
    allowed = f"a record of version {VERSION} or {VERSION_OF_PLACES}, as docs/reference/record.md says"
    return refused(names.GPU_RECORD, shown(text), allowed)


def refused(field: str, value: str, allowed: str) -> Refusal:
    """Refuse a record, or ``field`` of it."""
    return Refusal(
        code=Mistake.MALFORMED,
        field=field,
        value=value,
        message="the record of what the pod asks of GPUs can't be read",
        allowed=allowed,
    )


def _is_sound(record: Record) -> bool:
    return (
        record.version == (VERSION_OF_PLACES if record.places else VERSION)
        and len(record.places) in {0, 1 + len(record.alternatives)}
        and all(_is_sound_place(place) for place in record.places)
        and record.strategy in _STRATEGIES
        and (record.wishes is None or record.wishes.mode in _MODES)
        and 0 <= record.unit <= MOST_MIB
        and len(record.alternatives) <= _MOST_ALTERNATIVES
        and _are_few(record.asks)
        and all(map(_are_few, record.alternatives))
        and sum(map(_count, (record.asks, *record.alternatives))) <= _MOST_TRIED
        # These fields are shown to people unchanged, on their terminals too. Values are shown in quotes.
        and _DIALECT.fullmatch(record.dialect) is not None
        and all((note.field + note.instead).isprintable() for note in record.notes)
    )


def _are_few(asks: Sequence[RecordedAsk]) -> bool:
    return all(ask.count > 0 for ask in asks) and _count(asks) <= MOST_ASKS


def _count(asks: Iterable[RecordedAsk]) -> int:
    return sum(ask.count for ask in asks)


def _is_sound_place(place: RecordedPlace) -> bool:
    labels = (place.labels, *place.other_than)
    return (
        0 <= place.unit <= MOST_MIB
        and len(labels) <= _MOST_SELECTORS
        and all(len(each) <= _MOST_LABELS for each in labels)
        and all(other for other in place.other_than)
        and all((key + value).isprintable() for each in labels for key, value in each.items())
    )


def _recorded_place(place: Place) -> RecordedPlace:
    return RecordedPlace(
        labels=dict(place.labels), other_than=tuple(dict(other) for other in place.other_than), unit=place.unit
    )


def _place(recorded: RecordedPlace) -> Place:
    return Place(
        labels=tuple(sorted(recorded.labels.items())),
        other_than=tuple(tuple(sorted(other.items())) for other in recorded.other_than),
        unit=recorded.unit,
    )


def is_about(translation: Translation, spec: PodSpec) -> bool:
    """Whether a pod of this spec has all the containers that ask, each of its kind and, where one is said, its name."""
    there = {ref.key: (ref, is_sidecar(ref, container)) for ref, container in containers(spec)}
    asking = [asked for request in (translation.request, *translation.alternatives) for asked in request.containers]
    return all(_is(asked, *there.get(asked.container.key, (None, False))) for asked in asking)


def _is(asked: ContainerRequest, ref: ContainerRef | None, sidecar: bool) -> bool:
    return ref is not None and asked.is_sidecar is sidecar and asked.container.name in {"", ref.name}
