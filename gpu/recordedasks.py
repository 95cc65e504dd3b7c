"""The asks of a record (gpu/record.py), written and read: all that they say is given, or the record is refused.

A record may be a user's own, so a field that means nothing where it stands is a mistake and never dropped: it was meant
as a limit, or as a choice of devices. The alternatives are for the containers that admission made ready for ``asks``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from gpu.dialects.plugin import MOST_DEVICES
from gpu.refusal import shown
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
