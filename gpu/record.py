"""The native record: a pod's request in the normal form, in one annotation (``moorage.dev/gpu``).

Written once, when a pod comes, and read by everything after that: so a setting that is changed later changes no pod
that is there. It is documented for users in docs/reference/record.md and fixed from then on (S8).

A new pod may bring one along, as a copied spec does or somebody who writes Moorage's own form: it is an ask like any
other, and gives nothing that an ask doesn't.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from gpu.dialects.assembly import MOST_ASKS
from gpu.dialects.plugin import MOST_DEVICES, containers, is_sidecar
from gpu.dialects.seating import MOST_TRIED
from gpu.enforcement import MODES
from gpu.request import (
    Ask,
    ContainerKind,
    ContainerRef,
    ContainerRequest,
    FractionAsk,
    GpuRequest,
    MemoryAsk,
    MigAsk,
    WholeAsk,
)
from gpu.share import NANO_PER_DEVICE
from gpu.translation import ANY_CARD, Cards, Note, Place, Translation, Wishes
from wire.core import PodSpec

VERSION: Final = 1
#: Of a record that asks otherwise on some nodes: who knows version 1 only must not read it as if it were for all.
VERSION_OF_PLACES: Final = 2
#: Most MiB of one ask, and most devices that a node can number: bounds against numbers that nobody means.
MOST_MIB: Final = 2**31 - 1
_MOST_INDEX: Final = 255
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
#: Fields of asks that are called otherwise in a record.
_SAID_AS: Final = {"profile": "mig"}
_KEY: Final = re.compile(r"([ci])(0|[1-9][0-9]{0,3})")


class RecordedAsk(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True, kw_only=True):
    """One ask, or ``count`` equal ones. Exactly one of ``nano``, ``mem_mib``, ``mig`` says of what; none: whole GPUs.

    ``nano`` beside ``mig`` is a share of each slice: of a whole one, where it has to be in our books.
    """

    container: str
    name: str = ""
    sidecar: bool = False
    count: int = 1
    nano: int = 0
    mem_mib: int = 0
    limit_mib: int = 0
    limit_nano: int = 0
    mig: str = ""
    seat: str = ""
    index: int = -1
    compute_percent: int = 0


class RecordedPlace(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True, kw_only=True):
    """Nodes with all of ``labels`` and not all of any of ``other_than``; ``unit`` as in Record."""

    labels: dict[str, str] = {}
    other_than: tuple[dict[str, str], ...] = ()
    unit: int = 0


class Record(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True, kw_only=True):
    """All of it. ``alternatives`` are whole lists of asks in order of preference; ``unit`` is the Translation's.

    ``places``: one for ``asks`` and one for each of the alternatives, where a pod asks otherwise on some nodes.
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


class _Malformed(ValueError):
    """Raised where a record says what can't be."""


_decoder = msgspec.json.Decoder(Record)


def render(translation: Translation) -> str:
    """Write the annotation."""
    record = Record(
        version=VERSION_OF_PLACES if translation.places else VERSION,
        dialect=translation.dialect,
        asks=tuple(_recorded(translation.request)),
        alternatives=tuple(tuple(_recorded(request)) for request in translation.alternatives),
        strategy=translation.strategy,
        cards=translation.cards if translation.cards != ANY_CARD else None,
        wishes=translation.wishes if translation.wishes != Wishes() else None,
        notes=translation.notes,
        unit=translation.unit if not translation.places else 0,
        places=tuple(_recorded_place(place) for place in translation.places),
    )
    return msgspec.json.encode(record).decode()


def read(text: str | None) -> Translation | None:
    """Read the annotation; None if there is none, or none that this version understands."""
    if not text:
        return None
    try:
        record = _decoder.decode(text)
        if not _is_sound(record):
            return None
        return Translation(
            dialect=record.dialect,
            request=_request(record.asks),
            alternatives=tuple(_request(asks) for asks in record.alternatives),
            strategy=record.strategy,
            cards=record.cards or ANY_CARD,
            wishes=record.wishes or Wishes(),
            notes=record.notes,
            unit=record.places[0].unit if record.places else record.unit,
            places=tuple(_place(place) for place in record.places),
        )
    except (msgspec.DecodeError, UnicodeError, RecursionError, _Malformed):
        return None


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
        # What is shown to people as it stands, on their terminals too. Values are shown in quotes.
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


def _recorded(request: GpuRequest) -> Iterator[RecordedAsk]:
    for container in request.containers:
        asks = list(container.asks)
        while asks:
            count = next((n for n, ask in enumerate(asks) if ask != asks[0]), len(asks))
            yield _one(container, asks[0], count)
            del asks[:count]


def _one(container: ContainerRequest, ask: Ask, count: int) -> RecordedAsk:
    where = RecordedAsk(
        container=container.container.key, name=container.container.name, sidecar=container.is_sidecar, count=count
    )
    match ask:
        case WholeAsk():
            return where
        case MigAsk(profile=profile):
            return msgspec.structs.replace(where, mig=profile)
        case FractionAsk() | MemoryAsk():
            said = {_SAID_AS.get(name, name): getattr(ask, name) for name in ask.__struct_fields__}
            return msgspec.structs.replace(where, **said)


def _request(asks: Iterable[RecordedAsk]) -> GpuRequest:
    """Put the asks of each container together. Raises _Malformed."""
    containers: dict[str, ContainerRequest] = {}
    for recorded in asks:
        made = ContainerRequest(_ref(recorded), _asks(recorded), recorded.sidecar)
        known = containers.get(recorded.container)
        if known is not None:
            made = msgspec.structs.replace(known, asks=known.asks + made.asks)
        if len(made.asks) > MOST_DEVICES:
            raise _Malformed(recorded.container)
        containers[recorded.container] = made
    request = GpuRequest(tuple(containers.values()))
    try:
        shared = request.shared
    except ValueError as error:
        raise _Malformed(str(error)) from error
    if any(isinstance(ask, FractionAsk) and ask.nano > NANO_PER_DEVICE for ask in shared):
        raise _Malformed("a seat with more than a device")
    return request


def _ref(recorded: RecordedAsk) -> ContainerRef:
    found = _KEY.fullmatch(recorded.container)
    if found is None:
        raise _Malformed(recorded.container)
    return ContainerRef(ContainerKind(found[1]), int(found[2]), recorded.name)


def _asks(recorded: RecordedAsk) -> tuple[Ask, ...]:
    for amount, least, most in (
        (recorded.count, 1, MOST_DEVICES),
        (recorded.nano, 0, NANO_PER_DEVICE),
        (recorded.limit_nano, 0, NANO_PER_DEVICE),
        (recorded.mem_mib, 0, MOST_MIB),
        (recorded.limit_mib, 0, MOST_MIB),
        (recorded.compute_percent, 0, 100),
        (recorded.index, -1, _MOST_INDEX),
    ):
        if not least <= amount <= most:
            raise _Malformed(recorded.container)
    return (_ask(recorded),) * recorded.count


def _ask(recorded: RecordedAsk) -> Ask:
    if recorded.mig and not recorded.nano:
        return MigAsk(recorded.mig)
    if recorded.nano and recorded.mem_mib:
        raise _Malformed(recorded.container)
    if not recorded.nano and not recorded.mem_mib:
        return WholeAsk()
    kind = FractionAsk if recorded.nano else MemoryAsk
    return kind(**{name: getattr(recorded, _SAID_AS.get(name, name)) for name in kind.__struct_fields__})
