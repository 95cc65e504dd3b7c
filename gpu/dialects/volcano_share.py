"""Volcano's GPU share, the form before vGPU: MiB of one card for the pod, or whole cards (V11-V16).

The origin puts all containers of a pod on one card, and what it needs there is what containers use at one time. A
Volcano has GPU share or vGPU switched on, and GPU share by memory or by number, so a pod with two of these is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from gpu.colocation import seat_name
from gpu.container_devices import handed
from gpu.device_plugin import MOST_DEVICES, amounts, assembled, containers, count_of, names_any, taken_out, too_many
from gpu.dialects.settings import DialectSettings
from gpu.dialects.vgpu import LARGEST_MIB, field_of, malformed
from gpu.dialects.volcano import OWN as VGPU
from gpu.request import Ask, ContainerRef, MemoryAsk, WholeAsk
from gpu.translation import GivenDevice, Mistake, Refusal, Translation, Written, shown
from wire import names
from wire.core import Container, Pod

NAME: Final = "volcano-share"
#: What only a Binding may write.
WRITTEN_KEYS: Final = (names.VOLCANO_SHARE_INDEX, names.VOLCANO_SHARE_TIME)

OWN: Final = (names.VOLCANO_SHARE_MEMORY, names.VOLCANO_SHARE_NUMBER)
_ONE_CARD: Final = seat_name(0)


def speaks(pod: Pod, settings: DialectSettings) -> bool:
    """Whether a container names a resource of GPU share."""
    return names_any(pod.spec, OWN)


def translate(pod: Pod, settings: DialectSettings) -> Translation | Refusal:
    """Read a pod that speaks GPU share."""
    asks: dict[ContainerRef, tuple[Ask, ...]] = {}
    for ref, container in containers(pod.spec):
        found = _asks(ref, container)
        if isinstance(found, Refusal):
            return found
        asks[ref] = found
    by_memory = any(isinstance(ask, MemoryAsk) for mine in asks.values() for ask in mine)
    by_number = any(isinstance(ask, WholeAsk) for mine in asks.values() for ask in mine)
    beside = next(_named(pod, VGPU), None)
    if beside is not None or (by_memory and by_number):
        return _conflict(pod, beside or next(_named(pod, (names.VOLCANO_SHARE_NUMBER,))))
    everything = assembled(pod.spec, asks, key=next(_named(pod, OWN))[1])
    if isinstance(everything, Refusal):
        return everything
    edits = (*taken_out(pod.spec, OWN), *everything.edits)
    return Translation(dialect=NAME, request=everything.request, edits=edits)


def written_back(translation: Translation, given: Sequence[GivenDevice], *, at_ns: int) -> Written:
    """The card by index, and in each container its MiB and the card's. ``given``: the one device of the pod."""
    devices = dict(handed(translation.request, given))
    if not devices:
        return Written()
    env = {
        ref.key: {
            names.ENV_VOLCANO_ALLOCATED: str(each[0].mem_mib),
            names.ENV_VOLCANO_TOTAL: str(each[0].device.mem_mib),
        }
        for ref, each in devices.items()
    }
    index = ",".join(str(device.index) for device in given)
    return Written(env=env, annotations={names.VOLCANO_SHARE_INDEX: index, names.VOLCANO_SHARE_TIME: str(at_ns)})


def _asks(ref: ContainerRef, container: Container) -> tuple[Ask, ...] | Refusal:
    mem_mib = count_of(ref, container, names.VOLCANO_SHARE_MEMORY)
    if isinstance(mem_mib, Refusal):
        return mem_mib
    if mem_mib > LARGEST_MIB:
        field = field_of(names.VOLCANO_SHARE_MEMORY, ref)
        rule = "is memory of one device in MiB as a plain number, without a suffix"
        return malformed(field, str(mem_mib), rule=rule, allowed=f"0 to {LARGEST_MIB}")
    number = count_of(ref, container, names.VOLCANO_SHARE_NUMBER)
    if isinstance(number, Refusal):
        return number
    if number > MOST_DEVICES:
        return too_many(field_of(names.VOLCANO_SHARE_NUMBER, ref), str(number))
    shared = (MemoryAsk(mem_mib, seat=_ONE_CARD),) if mem_mib else ()
    return (*shared, *(WholeAsk() for _ in range(number)))


def _named(pod: Pod, resources: Sequence[str]) -> Iterator[tuple[ContainerRef, str]]:
    for ref, container in containers(pod.spec):
        for name in resources:
            if name in amounts(container):
                yield ref, name


def _conflict(pod: Pod, other: tuple[ContainerRef, str]) -> Refusal:
    ref, name = next(_named(pod, OWN))
    container = next(container for each, container in containers(pod.spec) if each == ref)
    return Refusal(
        code=Mistake.CONFLICTING,
        field=field_of(name, ref),
        value=shown(str(amounts(container)[name])),
        message=f"{field_of(name, ref)} and {field_of(other[1], other[0])} belong to modes that exclude each other",
        allowed=f"one of {names.VOLCANO_SHARE_MEMORY}, {names.VOLCANO_SHARE_NUMBER} and {names.VOLCANO_NUMBER}",
    )
