"""Koordinator's dialect: percent and bytes *in total*, over several devices (docs/reference/dialects.md, O1-O16, T1).

The origin adds up what a pod's containers ask, judges the sum, and shows all devices to all containers. Here the sum is
judged by the same rules, and a container gets what it asked itself: where the sum is of one device, all share that one;
where it is of several, the containers' own numbers of devices have to make up that sum, or the pod is refused.

Devices of other vendors that it knows beside these names are not served, and refused there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from gpu.dialects.assembly import Assembled, assembled, taken_out
from gpu.dialects.handed import Handed, handed, quantity_text
from gpu.dialects.koordinatorsums import OWN, Said, Share, divided, said_by, summed
from gpu.dialects.plugin import MOST_DEVICES, amounts, containers, names_any, too_many
from gpu.dialects.seating import seat_name, sit
from gpu.dialects.settings import DialectSettings
from gpu.dialects.vgpu import chosen, field_of
from gpu.effective import effective
from gpu.refusal import Mistake, Refusal, shown
from gpu.request import Ask, ContainerKind, ContainerRef, FractionAsk, GpuRequest, MemoryAsk, SharedAsk, WholeAsk
from gpu.share import NANO_PER_DEVICE
from gpu.translation import GivenDevice, Note, NoteCode, Translation, Wishes, Written
from wire import names
from wire.core import Pod

NAME: Final = "koordinator"
#: What only a Binding may write.
WRITTEN_KEYS: Final = (names.KOORDINATOR_ALLOCATED,)

#: As its code has it, and as some of its documents do.
_PROVIDERS: Final = ("HAMi-core", "hami-core")
_MODE: Final = "hami-core"
_HINTS: Final = (names.KOORDINATOR_HINT, names.KOORDINATOR_JOINT, names.KOORDINATOR_PARTITION)
_NANO_PER_PERCENT: Final = NANO_PER_DEVICE // 100
_BYTES_PER_MIB: Final = 2**20

Asks = dict[ContainerRef, tuple[Ask, ...]]


def speaks(pod: Pod, settings: DialectSettings) -> bool:
    """Whether a container names one of Koordinator's resources for GPUs."""
    return names_any(pod.spec, OWN)


def translate(pod: Pod, settings: DialectSettings) -> Translation | Refusal:
    """Read a pod that speaks Koordinator."""
    said = said_by(pod.spec)
    if isinstance(said, Refusal):
        return said
    provider = chosen(pod.metadata.labels or {}, names.KOORDINATOR_ISOLATION, _PROVIDERS)
    if isinstance(provider, Refusal):
        return provider
    asks = _asks(said)
    if isinstance(asks, Refusal):
        return asks
    everything = assembled(pod.spec, asks, key=_key(pod))
    if isinstance(everything, Refusal):
        return everything
    return Translation(
        dialect=NAME,
        request=everything.request,
        wishes=_wishes(everything) if provider else Wishes(),
        notes=_notes(pod),
        edits=(*taken_out(pod.spec, OWN), *everything.edits),
    )


def written_back(translation: Translation, given: Sequence[GivenDevice]) -> Written:
    """The allocation as JSON, and HAMi-core's variables where the pod asked for isolation.

    ``given``: a device for each of ``translation.request.shared``.
    """
    request = translation.request
    if not request.is_shared:
        return Written()
    allocated = {"gpu": [_allocated(request, ask, device) for ask, device in zip(request.shared, given, strict=True)]}
    text = msgspec.json.encode(allocated, order="sorted").decode()
    isolated = translation.wishes.mode == _MODE
    env = {ref.key: _limits(each) for ref, each in handed(request, given)} if isolated else {}
    return Written(
        env={key: variables for key, variables in env.items() if variables},
        annotations={names.KOORDINATOR_ALLOCATED: text},
    )


# --- asks --------------------------------------------------------------------------------------------------------


def _asks(said: Sequence[Said]) -> Asks | Refusal:
    """What each container gets of what the pod asks in sum."""
    if not said:
        return {}
    total = divided(summed(said))
    if isinstance(total, Refusal):
        return total
    if total.devices > MOST_DEVICES:
        return too_many(said[0].field, str(total.devices))
    if len(said) == 1:
        return {said[0].ref: (_ask(total),) * total.devices}
    return _on_one(said) if total.devices == 1 else _on_several(said, total.devices)


def _on_one(said: Sequence[Said]) -> Asks | Refusal:
    """All containers on the one device that the pod asks in sum."""
    asks: Asks = {}
    wholly = True
    for own in said:
        percent = own.amounts.get(names.KOORDINATOR_GPU, 0)
        share = Share(
            mem_bytes=own.amounts.get(names.KOORDINATOR_MEMORY, 0),
            ratio=own.amounts.get(names.KOORDINATOR_RATIO, percent),
            core=own.amounts.get(names.KOORDINATOR_CORE, percent),
        )
        if not share.mem_bytes and not share.ratio:
            return _without_memory(own)
        ask = _ask(share)
        part = ask if isinstance(ask, SharedAsk) else FractionAsk(NANO_PER_DEVICE, compute_percent=share.core)
        wholly = wholly and part is not ask
        asks[own.ref] = (sit(part, seat_name(0)),)
    return {ref: (WholeAsk(),) for ref in asks} if wholly else asks


def _on_several(said: Sequence[Said], devices: int) -> Asks | Refusal:
    """Each container on devices of its own. Whole ones may be had again after an init container."""
    asks: Asks = {}
    for own in said:
        share = divided(own)
        if isinstance(share, Refusal):
            return share
        asks[own.ref] = (_ask(share),) * share.devices
    listed = [ask for mine in asks.values() for ask in mine]
    is_apart = len(listed) == devices and all(ref.kind is ContainerKind.REGULAR for ref in asks)
    if is_apart or all(isinstance(ask, WholeAsk) for ask in listed):
        return asks
    return Refusal(
        code=Mistake.CONFLICTING,
        field=said[0].field,
        value=said[0].value,
        message=f"the containers ask for {devices} devices in sum, but not for these one by one",
        allowed="one device in sum, whole devices, or containers whose own devices make up the sum",
    )


def _ask(share: Share) -> Ask:
    """What is asked of one device. A total of bytes that does not divide is rounded up on each."""
    core = share.core // share.devices
    if share.mem_bytes:
        return MemoryAsk(-(-share.mem_bytes // (share.devices * _BYTES_PER_MIB)), compute_percent=core)
    ratio = share.ratio // share.devices
    if ratio == 100 and core in {0, 100}:
        return WholeAsk()
    return FractionAsk(ratio * _NANO_PER_PERCENT, compute_percent=core)


def _without_memory(own: Said) -> Refusal:
    return Refusal(
        code=Mistake.INCOMPLETE,
        field=own.field,
        value=own.value,
        message=f"container {shown(own.ref.name)} shares a device with others, but says nothing of its memory",
        allowed=f"beside {names.KOORDINATOR_MEMORY} or {names.KOORDINATOR_RATIO}",
    )


def _key(pod: Pod) -> str:
    return next(name for _, container in containers(pod.spec) for name in OWN if name in amounts(container))


def _wishes(everything: Assembled) -> Wishes:
    """With the label for isolation, memory and compute are capped; without it the origin only keeps accounts."""
    asks = [ask for container in everything.request.containers for ask in container.asks if isinstance(ask, SharedAsk)]
    return Wishes(
        memory_cap=any(isinstance(ask, MemoryAsk) or ask.nano < NANO_PER_DEVICE for ask in asks),
        compute_cap=any(0 < ask.compute_percent < 100 for ask in asks),
        mode=_MODE,
    )


def _notes(pod: Pod) -> tuple[Note, ...]:
    annotations = pod.metadata.annotations or {}
    hints = (Note(NoteCode.APPROXIMATED, name, shown(annotations[name])) for name in _HINTS if name in annotations)
    spelled = (
        Note(
            NoteCode.MORE_THAN_ORIGIN,
            field_of(names.KOORDINATOR_SHARED_HYPHEN, ref),
            shown(str(amounts(container)[names.KOORDINATOR_SHARED_HYPHEN])),
            names.KOORDINATOR_SHARED,
        )
        for ref, container in containers(pod.spec)
        if names.KOORDINATOR_SHARED_HYPHEN in amounts(container)
    )
    return (*spelled, *hints)


# --- what is written back ----------------------------------------------------------------------------------------


def _allocated(request: GpuRequest, ask: SharedAsk, device: GivenDevice) -> dict[str, int | dict[str, str]]:
    each = Handed(ask, device)
    whole_nano = ask.nano if isinstance(ask, FractionAsk) else _nano(ask.mem_mib, device)
    resources = {
        names.KOORDINATOR_MEMORY: quantity_text(each.mem_mib),
        names.KOORDINATOR_RATIO: str(whole_nano // _NANO_PER_PERCENT),
    }
    if core := _core(request, ask):
        resources[names.KOORDINATOR_CORE] = str(core)
    return {"minor": device.index, "resources": resources}


def _nano(mem_mib: int, device: GivenDevice) -> int:
    """The part of a device that this memory is. The charge is what is known of a card that doesn't tell its memory."""
    return mem_mib * NANO_PER_DEVICE // device.mem_mib if device.mem_mib else device.nano


def _core(request: GpuRequest, ask: SharedAsk) -> int:
    """Compute of one device that is in use at one time."""
    if not ask.seat:
        return ask.compute_percent
    seated = [(c, each) for c in request.containers for each in c.asks if isinstance(each, SharedAsk)]
    regular, init = ContainerKind.REGULAR, ContainerKind.INIT
    return effective(
        (each.compute_percent for c, each in seated if c.container.kind is regular and each.seat == ask.seat),
        ((each.compute_percent, c.is_sidecar) for c, each in seated if c.container.kind is init),
    )


def _limits(devices: Sequence[Handed]) -> dict[str, str]:
    """One cap for all devices of a container, in bytes; nothing where all memory of a device is its own."""
    first = devices[0]
    if isinstance(first.ask, FractionAsk) and first.ask.nano == NANO_PER_DEVICE:
        return {}
    env = {names.ENV_CUDA_MEMORY_LIMIT: str(first.cap_mib * _BYTES_PER_MIB)}
    return {**env, names.ENV_CUDA_SM_LIMIT: str(first.ask.compute_percent)} if first.ask.compute_percent else env
