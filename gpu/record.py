"""The native record: a pod's request in the normal form, in one annotation (``moorage.dev/gpu``).

Written once, when a pod comes, and read by everything after that: so a setting that is changed later changes no pod
that is there. It is documented for users in docs/reference/record.md and fixed from then on (S8).

A new pod may bring one along, as a copied spec does or somebody who writes Moorage's own form. It gives nothing that
another request doesn't. A field that means nothing where it stands is a mistake and never dropped: it was meant as a
limit, or as a choice of devices.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from gpu.colocation import MOST_TRIED
from gpu.device_plugin import MOST_ASKS, MOST_DEVICES, containers, is_sidecar
from gpu.limits import MODES
from gpu.request import (
    MOST_INDEX,
    Ask,
    ContainerKind,
    ContainerRef,
    ContainerRequest,
    FractionAsk,
    GpuRequest,
    MemoryAsk,
    MigAsk,
    WholeAsk,
    served,
    would_hide,
)
from gpu.share import NANO_PER_DEVICE, PERCENT_PER_DEVICE
from gpu.translation import ANY_CARD, Cards, Mistake, Note, Place, Refusal, Translation, Wishes, shown
from wire import names
from wire.core import PodSpec

#: Most MiB of one ask: a bound against numbers that nobody means.
MOST_MIB: Final = 2**31 - 1
#: Fields of asks that have another name in a record.
_SAID_AS: Final = {"profile": "mig"}
_KEY: Final = re.compile(r"([ci])(0|[1-9][0-9]{0,3})")
#: A seat, or the profile of a slice: shown to people unchanged, and a profile is part of a resource's name.
_WORD: Final = re.compile(r"[A-Za-z0-9._+-]{1,63}", re.ASCII)
_A_WORD: Final = "at most 63 of A-Z, a-z, 0-9, ., _, + and -"


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


#: Fields that say how much of what, with what they say where they are left out, and their names in a record.
_AMOUNTS: Final = {
    name: (getattr(RecordedAsk(container=""), name), said_as)
    for name, said_as in zip(RecordedAsk.__struct_fields__, RecordedAsk.__struct_encode_fields__, strict=True)
    if name not in {"container", "name", "sidecar", "count"}
}
_BOUNDS: Final = (
    ("count", 1, MOST_DEVICES),
    ("nano", 0, NANO_PER_DEVICE),
    ("limit_nano", 0, NANO_PER_DEVICE),
    ("mem_mib", 0, MOST_MIB),
    ("limit_mib", 0, MOST_MIB),
    ("compute_percent", 0, PERCENT_PER_DEVICE),
    ("index", -1, MOST_INDEX),
)
_KINDS: Final[dict[type[Ask], str]] = {
    WholeAsk: "a whole device",
    MigAsk: "a whole MIG slice",
    FractionAsk: "a share by nano",
    MemoryAsk: "a share by memMib",
}
#: By kind of ask: which fields make it, under their names here and there, and which ones mean nothing.
_MEANT: Final[dict[type[Ask], tuple[tuple[str, str], ...]]] = {
    kind: tuple((name, _SAID_AS.get(name, name)) for name in kind.__struct_fields__) for kind in _KINDS
}
_FOREIGN: Final[dict[type[Ask], tuple[tuple[str, int | str], ...]]] = {
    kind: tuple(
        (name, unsaid) for name, (unsaid, _) in _AMOUNTS.items() if name not in {said_as for _, said_as in meant}
    )
    for kind, meant in _MEANT.items()
}


class MalformedAsk(ValueError):
    """Raised where asks can't be, or would not be given as they stand: what is wrong, and what is allowed."""

    def __init__(self, field: str, value: object, allowed: str) -> None:
        super().__init__(field, value, allowed)
        self.field = field
        self.value = shown(str(value))
        self.allowed = allowed


# --- written -----------------------------------------------------------------------------------------------------


def recorded(request: GpuRequest) -> Iterator[RecordedAsk]:
    """Write a request: equal asks that follow each other are one with their count."""
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


# --- read --------------------------------------------------------------------------------------------------------


def request(asks: Sequence[RecordedAsk]) -> GpuRequest:
    """Put the asks of each container together. Raises MalformedAsk."""
    containers: dict[str, ContainerRequest] = {}
    for each in asks:
        made = ContainerRequest(_ref(each), _asks(each), each.sidecar)
        known = containers.get(each.container)
        if known is not None:
            made = msgspec.structs.replace(known, asks=known.asks + made.asks)
        if len(made.asks) > MOST_DEVICES:
            raise MalformedAsk(f"asks of {each.container}", f"{len(made.asks)} devices", f"at most {MOST_DEVICES}")
        containers[each.container] = made
    hidden = next((key for key, made in containers.items() if would_hide(made.asks)), "")
    if hidden:
        raise MalformedAsk(
            f"asks of {hidden}",
            msgspec.json.encode([ask for ask in asks if ask.container == hidden]).decode(),
            "shares, and whole GPUs or slices of the device plugin, in containers of their own: one could see only one"
            f" of both; or a whole GPU as a share, of {NANO_PER_DEVICE} nano",
        )
    read = GpuRequest(tuple(containers.values()))
    try:
        shared = read.shared
    except ValueError as error:
        raise MalformedAsk("seat", error, "asks of one unit, one profile and one index on each seat") from error
    if any(isinstance(ask, FractionAsk) and ask.nano > NANO_PER_DEVICE for ask in shared):
        raise MalformedAsk("seat", "more than a device", f"at most {NANO_PER_DEVICE} nano at one time on each seat")
    if (percent := max((ask.compute_percent for ask in shared), default=0)) > PERCENT_PER_DEVICE:
        allowed = f"at most {PERCENT_PER_DEVICE} percent at one time on each seat"
        raise MalformedAsk("computePercent", f"{percent} percent of a device", allowed)
    return read


def alternatives(ways: Sequence[Sequence[RecordedAsk]], first: GpuRequest) -> tuple[GpuRequest, ...]:
    """Read other requests for the containers of ``first``, which admission made ready for what they are given.

    Raises MalformedAsk where a container gets shares in one of both only, or other whole devices: it would be bound
    without a device, and nothing would be charged.
    """
    if not ways:
        return ()
    ready = served(first)
    read = []
    for number, asks in enumerate(ways):
        other = request(asks)
        given = served(other)
        wrong = next((key for key in {**ready, **given} if ready.get(key, Counter()) != given.get(key, Counter())), "")
        if wrong:
            said = msgspec.json.encode([ask for ask in asks if ask.container == wrong]).decode()
            raise MalformedAsk(
                f"alternatives[{number}] of {wrong}",
                said,
                "shares for the containers that have them in asks, and the same whole GPUs and MIG slices",
            )
        read.append(other)
    return tuple(read)


def _ref(recorded: RecordedAsk) -> ContainerRef:
    found = _KEY.fullmatch(recorded.container)
    if found is None:
        raise MalformedAsk("container", recorded.container, "c0 to c9999, i0 to i9999")
    return ContainerRef(ContainerKind(found[1]), int(found[2]), recorded.name)


def _asks(recorded: RecordedAsk) -> tuple[Ask, ...]:
    for name, least, most in _BOUNDS:
        if not least <= (amount := getattr(recorded, name)) <= most:
            raise MalformedAsk(_field(recorded, name), amount, f"{least} to {most}")
    for name in ("seat", "mig"):
        if (word := getattr(recorded, name)) and not _WORD.fullmatch(word):
            raise MalformedAsk(_field(recorded, name), word, _A_WORD)
    return (_ask(recorded),) * recorded.count


def _ask(recorded: RecordedAsk) -> Ask:
    kind = _kind(recorded)
    for name, unsaid in _FOREIGN[kind]:
        if (said := getattr(recorded, name)) != unsaid:
            own = ", ".join(_AMOUNTS[other][1] for _, other in _MEANT[kind])
            raise MalformedAsk(_field(recorded, name), said, f"for {_KINDS[kind]}: {own or 'no amount'}")
    return kind(**{name: getattr(recorded, said_as) for name, said_as in _MEANT[kind]})


def _kind(recorded: RecordedAsk) -> type[Ask]:
    if recorded.nano:
        return FractionAsk
    if recorded.mig:
        return MigAsk
    return MemoryAsk if recorded.mem_mib else WholeAsk


def _field(recorded: RecordedAsk, name: str) -> str:
    return f"{_AMOUNTS[name][1] if name in _AMOUNTS else name} of {recorded.container}"


VERSION: Final = 1
#: Of a record that asks differently on some nodes: a reader of version 1 only must not take it as valid for all nodes.
VERSION_OF_PLACES: Final = 2
#: Twice what any dialect makes (gpu/colocation.py); each costs the scheduler a trial.
_MOST_ALTERNATIVES: Final = 128
#: Most asks in all of them: the scheduler reads a record with each event of its pod.
_MOST_TRIED: Final = 2 * MOST_TRIED
#: Twice what the settings hold (gpu/dialects/settings_file.py); each node is compared with all of them.
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
