"""Limits that the agent of a node puts into containers: which pods are given them, by the words of their node.

Pods with shares ask kubelet for no device, so no device plug-in can add anything to their containers. A Binding names a
CDI device of the pod beside its GPUs (gpu/beside.py), and the agent's CDI file has its mounts and variables. The
runtime refuses a container whose device is not in the file. So the device is named only where the administrator says,
by a word such as ``memory-cap=hami-core``, that the agent serves it, and only for pods whose books have a limit for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

import msgspec

from gpu import memorycaps
from gpu.enforcement import COMPUTE_CAP, HAMI_CORE, MEMORY_CAP, MPS, TIME_SLICING, by_agent
from gpu.memorycaps import NO_CAP, Cap, MemoryCaps
from gpu.request import SharedAsk
from gpu.share import PERCENT_PER_DEVICE
from gpu.translation import Translation
from wire import names


def _hami_core(taken: Translation, caps: Sequence[Cap]) -> bool:
    """Serve pods of one container with equal limits on its GPUs.

    The library knows GPUs by their number in the container, and counts the processes of one container. What the agent
    knows are sums of a pod by GPU. So of several containers nobody could say which one may use how much.
    """
    shares = [[ask for ask in asked.asks if isinstance(ask, SharedAsk)] for asked in taken.request.containers]
    (mine, *others) = [asks for asks in shares if asks] or [[]]
    return (
        bool(mine)
        and not others
        and not any(ask.profile for ask in mine)
        and taken.wishes.mode in {"", TIME_SLICING, HAMI_CORE}
        and len({ask.compute_percent for ask in mine}) == 1
        and len({*caps}) <= 1
    )


def _mps(taken: Translation, caps: Sequence[Cap]) -> bool:
    """Serve pods with one share of one GPU.

    A client of MPS has one server, which is one GPU's. Its limits hold for each process, and books have the sum of a
    pod: of several containers nobody could say which one may use how much.
    """
    shares = [ask for asked in taken.request.containers for ask in asked.asks if isinstance(ask, SharedAsk)]
    return len(shares) == 1 and not shares[0].profile and len(caps) <= 1 and taken.wishes.mode in {"", MPS}


#: Back ends of the agent -> which pods they serve. ``caps``: as books have them, empty for none.
BACK_ENDS: Final[Mapping[str, Callable[[Translation, Sequence[Cap]], bool]]] = {HAMI_CORE: _hami_core, MPS: _mps}


def serving(taken: Translation) -> tuple[str, ...]:
    """Return the back ends that limit the pod in each form it may be placed in, where containers get devices by CDI."""
    if not (taken.wishes.memory_cap or taken.wishes.compute_cap):
        return ()
    forms = [msgspec.structs.replace(taken, request=each) for each in (taken.request, *taken.alternatives)]
    capped = [(form, memorycaps.caps(form, MemoryCaps.ALL)) for form in forms]
    return tuple(name for name, serves in BACK_ENDS.items() if all(serves(form, caps) for form, caps in capped))


def were_given(annotations: Mapping[str, str]) -> bool:
    """Whether a bound pod's containers name the device with their limits, by what was written with its Binding.

    Without CDI they can't, and a share that a claim gives has no book.
    """
    told = (text for key, text in annotations.items() if key.startswith(names.VISIBLE_DEVICES_PREFIX))
    return any(names.LIMITS_DEVICE_PREFIX in text for text in told)


def named(enforces: Collection[str]) -> tuple[str, ...]:
    """Return the back ends that the words of a node name, as the agent there is to have them."""
    words = {word.partition("=")[2] for word in enforces}
    return tuple(name for name in BACK_ENDS if name in words)


def are_given(taken: Translation, caps: Sequence[Cap], enforces: Collection[str]) -> bool:
    """Whether a pod's containers are given their limits by the agent of a node that ``enforces`` these words.

    ``caps``: the memory caps of its entries, one for each share, or empty.
    """
    return any(_has_work(taken, caps, name, enforces) and BACK_ENDS[name](taken, caps) for name in named(enforces))


def _has_work(taken: Translation, caps: Sequence[Cap], name: str, enforces: Collection[str]) -> bool:
    """Whether there is a limit in the books for this back end. What the driver caps needs no other cap of memory."""
    is_capped = any(cap != NO_CAP for cap in caps) and not taken.driver_caps
    asks_compute = any(0 < ask.compute_percent < PERCENT_PER_DEVICE for ask in taken.request.shared)
    return (is_capped and by_agent(MEMORY_CAP, name) in enforces) or (
        asks_compute and by_agent(COMPUTE_CAP, name) in enforces
    )
