"""What holds a pod to its share on a node: the node's words, caps of memory, and limits put into containers.

Sharing alone enforces nothing: tenants of a device take turns, and each takes as much of its memory as it likes. What
else a node can do (MPS, a library that is preloaded) nobody but its administrator knows, who says it in words on the
node (docs/enforcement.md). How well a cap holds is a strength behind the word, as in ``memory-cap/hard``: no program
can pass a hard cap.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

import msgspec

from gpu.container_devices import Handed, handed
from gpu.request import Ask, ContainerKind, ContainerRef, GpuRequest, MemoryAsk, SharedAsk
from gpu.share import PERCENT_PER_DEVICE
from gpu.translation import GivenDevice, Mistake, Refusal, Translation, Wishes, shown
from wire import names
from wire.core import Container, PodSpec

MEMORY_CAP: Final = "memory-cap"
#: The same by NVIDIA's driver, for pods whose containers read their cap, and for no others.
DRIVER_CAP: Final = "memory-cap=driver"
COMPUTE_CAP: Final = "compute-cap"
TIME_SLICING: Final = "time-slicing"
HAMI_CORE: Final = "hami-core"
MPS: Final = "mps"
#: Modes in which tenants of a device may run (gpu/translation.py, Wishes).
MODES: Final = (TIME_SLICING, "sm-sharing", MPS, HAMI_CORE, "mig")
#: All that a node's annotation may say.
WORDS: Final = (MEMORY_CAP, DRIVER_CAP, COMPUTE_CAP, *MODES)


def by_agent(cap: str, back_end: str) -> str:
    """Return the word of a node whose agent puts what holds this cap into containers."""
    return f"{cap}={back_end}"


#: Back ends of the agent that a node's annotation may name behind a cap. None is hard.
AGENTS: Final = (HAMI_CORE, MPS)
#: Before the back ends that serve a pod, in what it needs of a node: the cap by the node's own means or by one of them.
#: No node says it.
_ANY_MEANS: Final = "=any:"

#: A hard cap can't be passed. Others end a program after it has passed the cap, or can be switched off by a program.
_HARD, _WEAKER = "/hard", ("/after", "/soft")
#: Words of an annotation -> what they mean to pods. The driver's cap is always hard.
_MEANT: Final[Mapping[str, tuple[str, ...]]] = {
    **{word: (word,) for word in WORDS},
    **{cap + strength: (cap,) for cap in (MEMORY_CAP, COMPUTE_CAP) for strength in _WEAKER},
    **{cap + _HARD: (cap, cap + _HARD) for cap in (MEMORY_CAP, COMPUTE_CAP)},
    DRIVER_CAP + _HARD: (DRIVER_CAP,),
    **{by_agent(cap, one): (by_agent(cap, one),) for cap in (MEMORY_CAP, COMPUTE_CAP) for one in AGENTS},
}


class Requirement(enum.Enum):
    """Whether a pod waits for a node that enforces what it wishes: at all, or so that no program can pass it."""

    NONE = "false"
    ANY = "true"
    HARD = "hard"


class Listed(msgspec.Struct, frozen=True, gc=False):
    """What a node's annotation says: words that we know, sorted, and those that mean nothing."""

    known: tuple[str, ...]
    unknown: tuple[str, ...]


def listed(text: str | None) -> Listed:
    """Read the annotation ``moorage.dev/enforces``: words joined by commas.

    A hard cap is known as any cap, too. One by the agent is not: it is for pods that the agent's back end serves.
    """
    words = {word for part in (text or "").split(",") if (word := part.strip())}
    known = {meant for word in words for meant in _MEANT.get(word, ())}
    return Listed(tuple(sorted(known)), tuple(sorted(words - _MEANT.keys())))


def needed(
    wishes: Wishes, *, by_driver: bool = False, is_hard: bool = False, by_agents: Collection[str] = ()
) -> tuple[str, ...]:
    """What a node has to be able to do for these wishes, sorted (``does``). Taking turns is what every node does.

    ``by_driver``: the pod's containers read their memory caps for the driver, so no other way caps them. ``is_hard``:
    caps have to be hard. ``by_agents``: the agents' back ends that serve the pod; none is hard.
    """
    strength = _HARD if is_hard else _ANY_MEANS + ",".join(sorted(by_agents)) if by_agents else ""
    found = {
        DRIVER_CAP if by_driver else MEMORY_CAP + strength: wishes.memory_cap,
        COMPUTE_CAP + strength: wishes.compute_cap,
        wishes.mode: wishes.mode not in {"", TIME_SLICING},
    }
    return tuple(sorted(word for word, is_needed in found.items() if is_needed))


def does(word: str, enforced: Collection[str]) -> bool:
    """Whether a node that enforces these words does what is needed by one of ``needed``."""
    cap, is_any, back_ends = word.partition(_ANY_MEANS)
    return cap in enforced or (bool(is_any) and any(by_agent(cap, one) in enforced for one in back_ends.split(",")))


def lacking(
    wishes: Wishes, enforced: Collection[str], *, by_driver: bool = False, by_agents: Collection[str] = ()
) -> tuple[str, ...]:
    """What a node that enforces these words can't do for these wishes, as the words of a node."""
    words = needed(wishes, by_driver=by_driver, by_agents=by_agents)
    return tuple(word.partition(_ANY_MEANS)[0] for word in words if not does(word, enforced))


def requirement(annotations: Mapping[str, str] | None) -> Requirement | Refusal:
    """Whether a pod says that it goes only where its wishes are enforced."""
    text = (annotations or {}).get(names.REQUIRE_ENFORCEMENT, Requirement.NONE.value)
    try:
        return Requirement(text)
    except ValueError:
        return Refusal(
            code=Mistake.MALFORMED,
            field=names.REQUIRE_ENFORCEMENT,
            value=shown(text),
            message="whether limits have to be enforced can't be read",
            allowed="true, hard or false",
        )


class MemoryCaps(enum.Enum):
    """Which tenants' caps are written into books."""

    #: None: entries are as versions without caps read them.
    NONE = "none"
    #: Those of pods that wish a memory cap.
    WISHED = "wished"
    #: Those of all pods with shares.
    ALL = "all"


class Cap(msgspec.Struct, frozen=True, gc=False):
    """At most this on one device: ``mib`` of its memory, or ``nano`` of it. Both 0: no cap."""

    mib: int = 0
    nano: int = 0


NO_CAP = Cap()


def caps(taken: Translation | None, which: MemoryCaps) -> tuple[Cap, ...]:
    """Return the cap on each device of ``taken.request.shared``; empty where none is written.

    The device's book has it for the program that ends over-use on the node. A part of a device stays a part here, since
    a pod may join before anybody knows its card; memory stays memory. The cap is what the pod may use on the device in
    all: its containers there are not told apart.
    """
    if taken is None or which is MemoryCaps.NONE or not (taken.wishes.memory_cap or which is MemoryCaps.ALL):
        return ()
    return tuple(
        Cap(mib=ask.limit_mib or ask.mem_mib) if isinstance(ask, MemoryAsk) else Cap(nano=ask.limit_nano or ask.nano)
        for ask in taken.request.shared
    )


#: In the order in which a container has them.
#: The container toolkit's hook ``apply-cuda-memory-limits`` (1.20.1 and later) reads both from the container's
#: specification, in whole MiB, and sets them as the limits of its control group on each of its devices. It refuses a
#: container whose value is empty or no number, and takes LIMIT alone for both limits. So both are written, the request
#: as 0: a soft limit stays counted on parent groups when a container dies.
VARIABLES: Final = (names.ENV_MEMORY_LIMIT, names.ENV_MEMORY_REQUEST)

_NO_SOFT_LIMIT: Final = "0"


def decided(translation: Translation, *, is_on: bool) -> Translation:
    """Return the translation with its word on caps by the driver: where it is on, and all that is capped can be."""
    return msgspec.structs.replace(translation, driver_caps=is_on and bool(capped(translation)))


def capped(translation: Translation) -> tuple[str, ...]:
    """Keys of the containers that can be capped, whichever alternative is taken; empty unless that holds for all.

    Only what one number can say is capped by the driver: whole-device containers have no cap, slices of MIG no hook,
    and devices on which one container has unequal caps would all get the same. Each alternative has to have the same
    capped containers, since a variable that no annotation fills is empty. Other pods keep their wish as bookkeeping.
    """
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
#: Pods with shares ask kubelet for no device, so no device plug-in can add anything to their containers. A Binding
#: names a CDI device of the pod beside its GPUs, whose mounts and variables are in the agent's CDI file. The runtime
#: refuses a container whose device is not in the file. So the device is named only where the node's words say that the
#: agent serves it, as ``memory-cap=hami-core``, and only for pods whose books have a limit for it.
BACK_ENDS: Final[Mapping[str, Callable[[Translation, Sequence[Cap]], bool]]] = {HAMI_CORE: _hami_core, MPS: _mps}


def serving(taken: Translation) -> tuple[str, ...]:
    """Return the back ends that limit the pod in each form it may be placed in, where containers get devices by CDI."""
    if not (taken.wishes.memory_cap or taken.wishes.compute_cap):
        return ()
    forms = [msgspec.structs.replace(taken, request=each) for each in (taken.request, *taken.alternatives)]
    capped = [(form, caps(form, MemoryCaps.ALL)) for form in forms]
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


#: Before the pod's UID.
PREFIXES: Final = (names.VIEW_DEVICE_PREFIX, names.LIMITS_DEVICE_PREFIX)


def devices(
    pod_uid: str, taken: Translation, *, enforces: Collection[str], shows_tenants: bool, memory_caps: MemoryCaps
) -> tuple[str, ...]:
    """Return the CDI names of what a pod that is bound to a node is given beside its GPUs.

    Each is a prefix and the pod's UID; the CDI files of the node's agent define them. ``enforces``: what the node says
    that it holds pods to. ``shows_tenants``: its agent shows tenants their own shares. ``memory_caps``: whose memory
    caps are written into books.
    """
    has_limits = are_given(taken, caps(taken, memory_caps), enforces)
    given = {names.VIEW_DEVICE_PREFIX: shows_tenants, names.LIMITS_DEVICE_PREFIX: has_limits}
    return tuple(prefix + pod_uid for prefix, is_given in given.items() if is_given)
