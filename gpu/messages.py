"""Requests, wishes and notes in words for people: the one place where they are made into text."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final

from gpu.limits import COMPUTE_CAP, DRIVER_CAP, MEMORY_CAP
from gpu.request import (
    Ask,
    ContainerKind,
    ContainerRef,
    ContainerRequest,
    FractionAsk,
    GpuRequest,
    MemoryAsk,
    MigAsk,
    SharedAsk,
)
from gpu.share import NANO_PER_DEVICE
from gpu.translation import Labels, Note, NoteCode, Place, ResourceEdit, Translation, Wishes, shown

_NOTES: Final = {
    NoteCode.COUNT_DROPPED: "a count of whole GPUs beside a share is not read",
    NoteCode.COUNT_DIFFERS: "another count of whole GPUs than belongs to this share",
    NoteCode.ROUNDED_UP: "rounded up to a share that there is",
    NoteCode.VARIABLE_OVERRIDDEN: "overridden: it would show other devices than are given",
    NoteCode.MORE_THAN_ORIGIN: "served here, other than at the origin",
    NoteCode.WEAKENED: "less than is asked may be given",
    NoteCode.NO_EFFECT: "no effect",
    NoteCode.SAID_TWICE: "says again what another form says",
    NoteCode.EXCLUSIVE: "all the compute of a device is asked, so nobody else gets in and it is charged whole",
    NoteCode.APPROXIMATED: "placement can't follow this, or only in part",
    NoteCode.LEFT_OUT: "the pod is not placed on these: its words would change its containers in another way there",
}


def note_text(note: Note) -> str:
    """One remark: what stands there, what is made of it, and what that means."""
    instead = f", read as {note.instead}" if note.instead else ""
    return f"{note.field} is {shown(note.value)!r}{instead}: {_NOTES[note.code]}"


def lost_text(node: str) -> str:
    """Of a pod that asks for shares and brings its node along."""
    return f"spec.nodeName is {shown(node)!r}: no scheduler chose it, so the pod runs there without its share of a GPU"


def place_text(place: Place) -> str:
    """On which nodes a request is meant."""
    parts = [f"with {_labels(place.labels)}"] if place.labels else []
    parts += [f"without {' or '.join(map(_labels, place.other_than))}"] if place.other_than else []
    return f"on nodes {', '.join(parts)}" if parts else "on all nodes"


def _labels(labels: Labels) -> str:
    return ",".join(f"{key}={value}" for key, value in labels)


def way_lines(translation: Translation) -> Iterator[tuple[str, ...]]:
    """The lines of each request, best first; where requests are for some nodes only, the last line says for which."""
    requests = (translation.request, *translation.alternatives)
    for number, request in enumerate(requests):
        place = (place_text(translation.places[number]),) if translation.places else ()
        yield (*request_lines(request), *place)


def taken_text(requests: Sequence[GpuRequest], number: int, first: int = 0) -> str:
    """Which of a pod's requests was served: ``number`` is an alternative, told beside the ``first`` for such nodes."""
    given, wanted = ("; ".join(request_lines(requests[index])) for index in (number, first))
    return f"given is {given}, instead of {wanted}"


def request_lines(request: GpuRequest) -> list[str]:
    """A line for each container that asks, in the pod's order."""
    return [f"{_name(asking.container)}: {_asks(asking)}" for asking in request.containers] or ["no GPU"]


def wish_lines(translation: Translation) -> Iterator[str]:
    """What a node may be unable to do, and which cards will do."""
    wishes, cards = translation.wishes, translation.cards
    if wishes.memory_cap:
        yield "no more memory than that"
    if wishes.compute_cap:
        yield "no more compute than that"
    if wishes.mode:
        yield f"mode {wishes.mode}"
    if translation.strategy:
        yield translation.strategy
    for words, listed in (
        ("GPUs of type", cards.products),
        ("no GPUs of type", cards.not_products),
        ("GPUs", cards.uuids),
        ("not the GPUs", cards.not_uuids),
    ):
        if listed:
            yield f"{words} {', '.join(listed)}"


def unenforced_text(request: GpuRequest, wishes: Wishes, lacking: Collection[str]) -> str:
    """What of these wishes a node can't do, with the amounts asked: ``lacking`` in words of gpu/limits.py."""
    asks = [ask for container in request.containers for ask in container.asks if isinstance(ask, SharedAsk)]
    parts: list[str] = []
    if MEMORY_CAP in lacking:
        parts.append("a memory cap" + _amounts(_cap(ask) for ask in asks))
    if DRIVER_CAP in lacking:
        parts.append("a memory cap by the driver" + _amounts(_cap(ask) for ask in asks))
    if COMPUTE_CAP in lacking:
        parts.append("a compute cap" + _amounts(f"{ask.compute_percent}%" for ask in asks if ask.compute_percent))
    if wishes.mode in lacking:
        parts.append(f"mode {wishes.mode}")
    return ", ".join(parts)


def _amounts(texts: Iterable[str]) -> str:
    listed = " and ".join(dict.fromkeys(texts))
    return f" of {listed}" if listed else ""


def _cap(ask: SharedAsk) -> str:
    if isinstance(ask, FractionAsk):
        return percent(ask.limit_nano or ask.nano)
    return f"{ask.limit_mib or ask.mem_mib} MiB"


def edit_text(edit: ResourceEdit) -> str:
    """What admission does to a resource of a container."""
    if edit.count is None:
        return f"{_name(edit.container)}: {edit.resource} is taken out"
    return f"{_name(edit.container)}: {edit.resource} is set to {edit.count}"


def _name(ref: ContainerRef) -> str:
    kind = "init container " if ref.kind is ContainerKind.INIT else ""
    return f"{kind}{ref.name or ref.key}"


def _asks(asking: ContainerRequest) -> str:
    return " + ".join(_counted(ask, len(list(equal))) for ask, equal in groupby(asking.asks))


def _counted(ask: Ask, count: int) -> str:
    match ask:
        case FractionAsk(nano=nano, profile=profile):
            device = f"MIG slice {profile}" if profile else "a GPU"
            amount = f"{percent(nano)} of {device}" + (f" (up to {percent(ask.limit_nano)})" if ask.limit_nano else "")
        case MemoryAsk(mem_mib=mem_mib):
            amount = f"{mem_mib} MiB of a GPU" + (f" (up to {ask.limit_mib} MiB)" if ask.limit_mib else "")
        case MigAsk(profile=profile):
            amount = f"MIG slice {profile}"
        case _:
            amount = "a whole GPU"
    text = amount if count == 1 else f"{count} times {amount}"
    return text + (_more(ask) if isinstance(ask, SharedAsk) else "")


def _more(ask: SharedAsk) -> str:
    compute = f", {ask.compute_percent}% of its compute" if ask.compute_percent else ""
    index = f", index {ask.index}" if ask.index >= 0 else ""
    return compute + index + (f", on device {ask.seat}" if ask.seat else "")


def percent(nano: int) -> str:
    """Write a share in percent, exactly."""
    digits = f"{nano % (NANO_PER_DEVICE // 100):07d}".rstrip("0")
    return f"{nano // (NANO_PER_DEVICE // 100)}{'.' + digits if digits else ''}%"
