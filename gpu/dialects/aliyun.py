"""Aliyun gpushare's dialect: memory of one card in units of a GiB or a MiB (rows A1-A13 of docs/reference/dialects.md).

All containers of a pod sit on one card, as its design says. That works here also where two of them ask, or an init
container does, which the origin never binds. Its annotations are ours to write: what a user has put there means
nothing (A13).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from gpu.colocation import seat_name
from gpu.device_plugin import (
    MOST_DEVICES,
    assembled,
    containers,
    count_of,
    names_any,
    taken_out,
    too_many,
    too_many_together,
)
from gpu.dialects.settings import AliyunSettings, DialectSettings
from gpu.request import Ask, ContainerKind, ContainerRef, ContainerRequest, GpuRequest, MemoryAsk, SharedAsk, WholeAsk
from gpu.translation import GivenDevice, Mistake, Note, NoteCode, Refusal, Translation, Written, shown
from wire import names
from wire.core import Container, Pod, PodSpec

NAME: Final = "aliyun"
MEMORY: Final = "aliyun.com/gpu-mem"
COUNT: Final = "aliyun.com/gpu-count"

INDEX: Final = "ALIYUN_COM_GPU_MEM_IDX"
DEVICE_UNITS: Final = "ALIYUN_COM_GPU_MEM_DEV"
POD_UNITS: Final = "ALIYUN_COM_GPU_MEM_POD"
CONTAINER_UNITS: Final = "ALIYUN_COM_GPU_MEM_CONTAINER"
ASSIGNED: Final = "ALIYUN_COM_GPU_MEM_ASSIGNED"
ASSUME_TIME: Final = "ALIYUN_COM_GPU_MEM_ASSUME_TIME"
#: JSON, container index -> card index -> units: what the inspecting tool reads of pods with several cards.
ALLOCATION: Final = "scheduler.framework.gpushare.allocation"
#: MiB of one unit, unless the settings name another number.
_USUAL_MIB: Final = AliyunSettings().unit_mib
#: What a Binding writes, over any value that a user has put there (A13).
WRITTEN_KEYS: Final = (INDEX, DEVICE_UNITS, POD_UNITS, ASSIGNED, ASSUME_TIME, ALLOCATION)


class _Asked(msgspec.Struct, frozen=True, gc=False):
    """What one container asks: units of memory and cards; 0 for what it doesn't name."""

    ref: ContainerRef
    container: Container
    units: int
    cards: int


def speaks(pod: Pod, settings: DialectSettings) -> bool:
    """Whether a container names one of the two resources."""
    del settings  # the names are fixed
    return names_any(pod.spec, (MEMORY, COUNT))


def translate(pod: Pod, settings: DialectSettings) -> Translation | Refusal:
    """Read memory and counts of all containers."""
    asked = _asked(pod.spec)
    if isinstance(asked, Refusal):
        return asked
    refusal = _conflict(asked, settings.aliyun)
    if refusal is not None:
        return refusal
    notes = tuple(_more_than_origin(asked) or _overridden(asked))
    if settings.strict and any(note.code is NoteCode.VARIABLE_OVERRIDDEN for note in notes):
        return _variable_refused(notes[0])
    key = MEMORY if any(one.units for one in asked) else COUNT
    refusal = too_many_together(key, sum(max(one.cards, 1) for one in asked))
    if refusal is not None:
        return refusal
    made = assembled(pod.spec, _asks(asked, settings.aliyun), key=key)
    if isinstance(made, Refusal):
        return made
    strategy = "binpack" if made.request.is_shared else ""
    edits = (*made.edits, *taken_out(pod.spec, (COUNT, MEMORY)))
    unit = settings.aliyun.unit_mib if settings.aliyun.unit_mib != _USUAL_MIB else 0
    return Translation(dialect=NAME, request=made.request, strategy=strategy, notes=notes, unit=unit, edits=edits)


def _asked(spec: PodSpec) -> list[_Asked] | Refusal:
    found: list[_Asked] = []
    for ref, container in containers(spec):
        units, cards = count_of(ref, container, MEMORY), count_of(ref, container, COUNT)
        if isinstance(units, Refusal):
            return units
        if isinstance(cards, Refusal):
            return cards
        if cards > MOST_DEVICES:
            return too_many(_field(COUNT, ref), str(cards))
        if units or cards:
            found.append(_Asked(ref, container, units, cards))
    return found


def _field(resource: str, ref: ContainerRef) -> str:
    return f"{resource} of container {ref.name}"


def _conflict(asked: Iterable[_Asked], settings: AliyunSettings) -> Refusal | None:
    """Both resources in one pod: refused, or that many cards with a part of the memory each (A10)."""
    asked = list(asked)
    if not any(one.units for one in asked):
        return None
    for one in (one for one in asked if one.cards):
        if not settings.count_divides_memory:
            return _unclear(one, Mistake.CONFLICTING, f"either {MEMORY} or {COUNT}; an administrator may allow both")
        if not one.units:
            return _unclear(one, Mistake.INCOMPLETE, f"beside {MEMORY} of the same container")
        if one.units % one.cards:
            return Refusal(
                code=Mistake.MALFORMED,
                field=_field(MEMORY, one.ref),
                value=str(one.units),
                message=f"{MEMORY} {one.units} can't be divided among {one.cards} cards",
                allowed=f"a multiple of {COUNT}",
            )
    return None


def _unclear(one: _Asked, code: Mistake, allowed: str) -> Refusal:
    message = f"{COUNT} beside {MEMORY} is not clear: the open source of gpushare serves one GPU a pod"
    return Refusal(code=code, field=_field(COUNT, one.ref), value=str(one.cards), message=message, allowed=allowed)


def _asks(asked: Sequence[_Asked], settings: AliyunSettings) -> dict[ContainerRef, tuple[Ask, ...]]:
    """The nth cards of all containers are one and the same: a seat, where several containers have an nth card."""
    if not any(one.units for one in asked):
        return {one.ref: (WholeAsk(),) * one.cards for one in asked}
    in_common = sorted(max(one.cards, 1) for one in asked)[:-1]
    seats = [seat_name(number) for number in range(in_common[-1] if in_common else 0)]
    return {
        one.ref: tuple(
            MemoryAsk(
                one.units // max(one.cards, 1) * settings.unit_mib, seat=seats[number] if number < len(seats) else ""
            )
            for number in range(max(one.cards, 1))
        )
        for one in asked
    }


# --- words that the origin treats differently --------------------------------------------------------------------


def _more_than_origin(asked: Iterable[_Asked]) -> list[Note]:
    """Counts alone: the origin's scheduler counts them, and its device plugin knows nothing of them (A9)."""
    return [
        Note(NoteCode.MORE_THAN_ORIGIN, _field(COUNT, one.ref), str(one.cards), f"{names.GPU_RESOURCE}: {one.cards}")
        for one in asked
        if not one.units
    ]


def _overridden(asked: Iterable[_Asked]) -> Iterator[Note]:
    """A variable that would show its container other cards, as in the origin's own examples (A11)."""
    for one in asked:
        for variable in one.container.env or ():
            if variable.name == names.ENV_VISIBLE_DEVICES:
                field = f"env {names.ENV_VISIBLE_DEVICES} of container {one.ref.name}"
                yield Note(NoteCode.VARIABLE_OVERRIDDEN, field, shown(variable.value), "the GPU of the pod")


def _variable_refused(note: Note) -> Refusal:
    return Refusal(
        code=Mistake.CONFLICTING,
        field=note.field,
        value=note.value,
        message=f"{note.field} is {note.value or 'set'}, which shows other GPUs than the one that is asked for",
        allowed="no such variable: it is set to the GPU of the pod",
    )


# --- what is written back ----------------------------------------------------------------------------------------


def written_back(translation: Translation, given: Sequence[GivenDevice], *, at_ns: int) -> Written:
    """What gpushare's plugin gives to containers, and what its inspecting tool reads. ``at_ns``: of the Binding.

    ``given`` is one device for each of ``request.shared``. Units are those that the pod came with. ``ASSIGNED`` is true
    at once, since no plugin follows that would do it.
    """
    return _written(translation.request, given, translation.unit or _USUAL_MIB, at_ns) if given else Written()


def _written(request: GpuRequest, given: Sequence[GivenDevice], unit_mib: int, at_ns: int) -> Written:
    used = [_units(ask.mem_mib, unit_mib) for ask in request.shared if isinstance(ask, MemoryAsk)]
    common = {
        INDEX: ",".join(str(device.index) for device in given),
        DEVICE_UNITS: str(given[0].mem_mib // unit_mib),
        POD_UNITS: str(sum(used)),
    }
    annotations = {**common, ASSIGNED: "true", ASSUME_TIME: str(at_ns)}
    if len(given) > 1:
        annotations[ALLOCATION] = msgspec.json.encode(_allocation(request, given, unit_mib)).decode()
    devices = request.devices()
    env = {
        asking.container.key: {**common, **_of_container(asking, devices[asking.container], given, unit_mib)}
        for asking in request.containers
        if any(isinstance(ask, MemoryAsk) for ask in asking.asks)
    }
    return Written(env=env, annotations=annotations)


def _of_container(
    asking: ContainerRequest, devices: Sequence[int], given: Sequence[GivenDevice], unit_mib: int
) -> Mapping[str, str]:
    units = sum(_units(ask.mem_mib, unit_mib) for ask in asking.asks if isinstance(ask, MemoryAsk))
    return {CONTAINER_UNITS: str(units), INDEX: ",".join(str(given[number].index) for number in devices)}


def _allocation(request: GpuRequest, given: Sequence[GivenDevice], unit_mib: int) -> dict[str, dict[str, int]]:
    """Units by regular container and card; the tool knows no other containers."""
    allocation: dict[str, dict[str, int]] = {}
    devices = request.devices()
    for asking in request.containers:
        shares = (ask for ask in asking.asks if isinstance(ask, SharedAsk))
        if asking.container.kind is ContainerKind.REGULAR:
            each = {
                str(given[number].index): _units(ask.mem_mib, unit_mib)
                for number, ask in zip(devices.get(asking.container, ()), shares, strict=True)
                if isinstance(ask, MemoryAsk)
            }
            allocation |= {str(asking.container.index): each} if each else {}
    return allocation


def _units(mem_mib: int, unit_mib: int) -> int:
    """Whole units that hold this much: it is a multiple of them, unless somebody wrote the record by hand."""
    return -(-mem_mib // unit_mib)
