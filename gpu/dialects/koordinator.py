"""Koordinator's dialect: percent and bytes *in total*, over several devices (docs/reference/dialects.md, O1-O16, T1).

The origin adds up what a pod's containers ask, judges the sum, and shows all devices to all containers. Here the sum is
judged by the same rules, and a container gets what it asked itself: where the sum is of one device, all share that one;
where it is of several, the containers' own numbers of devices have to make up that sum, or the pod is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from gpu.colocation import seat_name, sit
from gpu.container_devices import Handed, handed, quantity_text
from gpu.device_plugin import (
    MOST_DEVICES,
    Assembled,
    amounts,
    assembled,
    containers,
    count_of,
    is_sidecar,
    names_any,
    taken_out,
    too_many,
)
from gpu.dialects.settings import DialectSettings
from gpu.dialects.vgpu import chosen, field_of
from gpu.request import (
    Ask,
    ContainerKind,
    ContainerRef,
    FractionAsk,
    GpuRequest,
    MemoryAsk,
    SharedAsk,
    WholeAsk,
    effective,
)
from gpu.share import NANO_PER_DEVICE
from gpu.translation import GivenDevice, Mistake, Note, NoteCode, Refusal, Translation, Wishes, Written, shown
from wire import names
from wire.core import Container, Pod, PodSpec

_GPU: Final = names.KOORDINATOR_GPU
_SHARED: Final = names.KOORDINATOR_SHARED
_CORE: Final = names.KOORDINATOR_CORE
_MEMORY: Final = names.KOORDINATOR_MEMORY
_RATIO: Final = names.KOORDINATOR_RATIO

_NAMES: Final = (_GPU, _SHARED, _CORE, _MEMORY, _RATIO)
#: All names that this dialect owns, the documents' spelling too.
#: Devices of other vendors that Koordinator knows beside these are not served, and refused.
OWN: Final = (_GPU, _SHARED, names.KOORDINATOR_SHARED_HYPHEN, _CORE, _MEMORY, _RATIO)

_TOGETHER: Final = frozenset({
    frozenset({_GPU}),
    frozenset({_MEMORY}),
    frozenset({_RATIO}),
    frozenset({_CORE, _MEMORY}),
    frozenset({_CORE, _RATIO}),
    frozenset({_SHARED, _MEMORY}),
    frozenset({_SHARED, _RATIO}),
    frozenset({_SHARED, _CORE, _MEMORY}),
    frozenset({_SHARED, _CORE, _RATIO}),
})  # fmt: skip
_ALLOWED: Final = f"{_GPU} alone, or one of {_MEMORY} and {_RATIO}, each with or without {_CORE} and {_SHARED}"

_MISPLACED: Final = "invalid resource device requests: [%s]"


class Said(msgspec.Struct, frozen=True):
    """Amounts of one container by name, none of them zero."""

    ref: ContainerRef
    amounts: Mapping[str, int]
    is_sidecar: bool = False

    @property
    def field(self) -> str:
        """The first of them, as refusals call it."""
        return field_of(next(iter(self.amounts)), self.ref)

    @property
    def value(self) -> str:
        """What that says."""
        return str(next(iter(self.amounts.values())))


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """Totals over ``devices``. Bytes or percent of memory, the other one 0; ``core`` 0: no compute is said."""

    devices: int = 1
    mem_bytes: int = 0
    ratio: int = 0
    core: int = 0


def said_by(spec: PodSpec) -> tuple[Said, ...] | Refusal:
    """Read all containers that ask for something, or return the first refusal."""
    said = []
    for ref, container in containers(spec):
        own = _read(ref, container)
        if isinstance(own, Refusal):
            return own
        if own.amounts:
            foreign = next((name for name in names.KOORDINATOR_FOREIGN if name in amounts(container)), None)
            if foreign is not None:
                return _together(
                    own, {*own.amounts, foreign}, allowed="devices of NVIDIA: no other vendor's are served"
                )
            said.append(own)
    return tuple(said)


def summed(said: Sequence[Said]) -> Said:
    """What the pod asks at one time (gpu/request.py), under the name of the first container.

    The origin's rules and messages are of this sum, without zeros.
    """
    regular = ContainerKind.REGULAR
    total = {
        name: effective(
            (own.amounts.get(name, 0) for own in said if own.ref.kind is regular),
            ((own.amounts.get(name, 0), own.is_sidecar) for own in said if own.ref.kind is not regular),
        )
        for name in _NAMES
    }
    return Said(said[0].ref, {name: amount for name, amount in total.items() if amount})


def divided(said: Said) -> Share | Refusal:
    """Judge totals, and tell over how many devices they go: as many as are said, or hundreds of percent of memory.

    Stricter than the origin in two places, where it divides and forgets the rest, or asks more than all of a device:
    compute has to divide by the devices, to at most 100 of each.
    """
    if frozenset(said.amounts) not in _TOGETHER:
        return _together(said, said.amounts, allowed=_ALLOWED)
    percent = said.amounts.get(_GPU, 0)
    ratio, core = said.amounts.get(_RATIO, percent), said.amounts.get(_CORE, percent)
    shared = said.amounts.get(_SHARED, 0)
    refusal = _of_shared(said, shared) if shared else _of_hundreds(said)
    if refusal is not None:
        return refusal
    share = Share(
        devices=shared or max(1, ratio // 100), mem_bytes=said.amounts.get(_MEMORY, 0), ratio=ratio, core=core
    )
    if core % share.devices or core > 100 * share.devices:
        return _unit(
            said, _CORE if _CORE in said.amounts else _GPU, f"a multiple of {share.devices}, at most 100 of each"
        )
    return share


def _read(ref: ContainerRef, container: Container) -> Said | Refusal:
    found: dict[str, int] = {}
    for name in OWN:
        count = count_of(ref, container, name)
        if isinstance(count, Refusal):
            return count
        if count:
            found[name] = count
    spelled = found.pop(names.KOORDINATOR_SHARED_HYPHEN, 0)
    if spelled and found.setdefault(_SHARED, spelled) != spelled:
        return _together(Said(ref, found), {_SHARED, names.KOORDINATOR_SHARED_HYPHEN}, allowed=f"{_SHARED} alone")
    return Said(ref, found, is_sidecar(ref, container))


def _of_hundreds(said: Said) -> Refusal | None:
    """Percentages go up to one device, or are of whole ones."""
    for name in (_GPU, _CORE, _RATIO):
        amount = said.amounts.get(name, 0)
        if amount > 100 and amount % 100:
            return _unit(said, name, "1 to 100, or a multiple of 100")
    return None


def _of_shared(said: Said, shared: int) -> Refusal | None:
    """The memory in percent divides by the devices; of bytes the rest is rounded."""
    ratio = said.amounts.get(_RATIO, 0)
    if ratio % shared or ratio > 100 * shared:
        return _unit(said, _RATIO, f"a multiple of {shared}, at most 100 of each")
    return None


def _unit(said: Said, name: str, allowed: str) -> Refusal:
    """Refuse an amount, in the origin's words."""
    amount = str(said.amounts[name])
    return Refusal(
        code=Mistake.MALFORMED,
        field=field_of(name, said.ref),
        value=amount,
        message=f"invalid resource unit {name}: {amount}",
        allowed=allowed,
    )


def _together(said: Said, listed: Iterable[str], *, allowed: str) -> Refusal:
    """Refuse what does not stand together, in the origin's words; it lists names in no order."""
    alone = frozenset(listed) <= {_CORE, _SHARED}
    return Refusal(
        code=Mistake.INCOMPLETE if alone else Mistake.CONFLICTING,
        field=said.field,
        value=said.value,
        message=_MISPLACED % " ".join(sorted(listed)),
        allowed=allowed,
    )


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
