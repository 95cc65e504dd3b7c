"""Hard memory caps by NVIDIA's driver: two variables of a container, which a hook of NVIDIA's runtime reads.

The container toolkit's hook ``apply-cuda-memory-limits`` (1.20.1 and later) reads both from the container's
specification, in whole MiB, and sets them as the limits of its control group on each of its devices. It refuses a
container whose value is empty or no number, and takes LIMIT alone for both limits. So both are written, the request as
0: a soft limit stays counted on parent groups when a container dies.

Only what one number can say is capped this way: whole-device containers have no cap, slices of MIG no hook, and devices
on which one container has unequal caps would all get the same. Each alternative has to have the same capped containers,
since a variable that no annotation fills is empty. Other pods keep their wish as bookkeeping.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from gpu.dialects.handed import Handed, handed
from gpu.request import Ask, ContainerKind, ContainerRef, GpuRequest, MemoryAsk, SharedAsk
from gpu.translation import GivenDevice, Translation
from wire import names
from wire.core import Container, PodSpec

#: In the order in which a container has them.
VARIABLES: Final = (names.ENV_MEMORY_LIMIT, names.ENV_MEMORY_REQUEST)

_NO_SOFT_LIMIT: Final = "0"


def decided(translation: Translation, *, is_on: bool) -> Translation:
    """Return the translation with its word on caps by the driver: where it is on, and all that is capped can be."""
    return msgspec.structs.replace(translation, driver_caps=is_on and bool(capped(translation)))


def capped(translation: Translation) -> tuple[str, ...]:
    """Keys of the containers that can be capped, whichever alternative is taken; empty unless that holds for all."""
    if not translation.wishes.memory_cap:
        return ()
    found = {_capped(request) for request in (translation.request, *translation.alternatives)}
    return found.pop() if len(found) == 1 else ()


def _capped(request: GpuRequest) -> tuple[str, ...]:
    sharing = {
        asked.container.key: asked.asks
        for asked in request.containers
        if any(isinstance(ask, SharedAsk) for ask in asked.asks)
    }
    return tuple(sorted(sharing)) if all(map(_is_one_number, sharing.values())) else ()


def _is_one_number(asks: Sequence[Ask]) -> bool:
    """Whether all devices of a container are shared cards with equal caps."""
    cards = [ask for ask in asks if isinstance(ask, SharedAsk) and not ask.profile]
    return len(cards) == len(asks) and len(set(map(_cap, cards))) == 1


def _cap(ask: SharedAsk) -> tuple[str, int]:
    if isinstance(ask, MemoryAsk):
        return "MiB", ask.limit_mib or ask.mem_mib
    return "nano", ask.limit_nano or ask.nano


def env(request: GpuRequest, given: Sequence[GivenDevice]) -> dict[str, Mapping[str, str]]:
    """Return the variables of each container with shares, by its key. ``given``: one device for each of ``shared``.

    Of equal parts of unlike cards the least counts: a larger cap would let the container into its neighbours' part of
    the smaller card. A container whose cap is not known gets none, and the hook refuses it: 0 could mean no limit.
    """
    caps = {ref.key: min(map(_cap_mib, mine)) for ref, mine in handed(request, given)}
    return {
        key: {names.ENV_MEMORY_LIMIT: str(mib), names.ENV_MEMORY_REQUEST: _NO_SOFT_LIMIT}
        for key, mib in caps.items()
        if mib > 0
    }


def _cap_mib(one: Handed) -> int:
    """The cap on one device in MiB; never above the device's memory, where that is known."""
    return min(one.cap_mib, one.device.mem_mib or one.cap_mib)


def env_key(container_key: str, name: str) -> str:
    """The annotation that one variable of a container reads."""
    return f"{names.ENV_PREFIX}{container_key}.{name}"


def are_read(spec: PodSpec) -> bool:
    """Whether a container reads its limit from what a Binding writes, as admission lets it."""
    listed = ((ContainerKind.INIT, spec.init_containers or ()), (ContainerKind.REGULAR, spec.containers))
    return any(
        _reads(container, ContainerRef(kind, index).key)
        for kind, containers in listed
        for index, container in enumerate(containers)
    )


def _reads(container: Container, key: str) -> bool:
    path = f"metadata.annotations['{env_key(key, names.ENV_MEMORY_LIMIT)}']"
    return any(
        variable.name == names.ENV_MEMORY_LIMIT
        and variable.value_from is not None
        and variable.value_from.field_ref is not None
        and variable.value_from.field_ref.field_path == path
        for variable in container.env or ()
    )
