"""What a node can hold a pod to, in words of its administrator, and what a pod wishes of it (docs/enforcement.md).

Sharing alone enforces nothing: tenants of a device take turns, and each takes as much of its memory as it likes.
What else a node can do (MPS, a library that is preloaded) nobody but its administrator knows. How well a cap holds is
a strength behind the word, as in ``memory-cap/hard``: no program can pass a hard cap.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from gpu.refusal import Mistake, Refusal, shown
from gpu.translation import Wishes
from wire import names

MEMORY_CAP: Final = "memory-cap"
#: The same by NVIDIA's driver, for pods whose containers read their cap (gpu/drivercaps.py), and for no others.
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
    """Return the word of a node whose agent puts what holds this cap into containers (gpu/agentlimits.py)."""
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
    caps have to be hard. ``by_agents``: the agents' back ends that serve the pod (gpu/agentlimits.py); none is hard.
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
