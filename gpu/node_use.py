"""What tenants use of their shares, and how well their caps hold, as the agent of their node reports it."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from gpu.mig import GpuPartitioning, partitionings
from gpu.share import NANO_PER_DEVICE
from wire import names
from wire.core import Pod
from wire.crds.gpunode import GpuNode, TenantStatus
from wire.rfc3339 import parse_ns

_READY: Final = "Ready"
#: How well a back end holds a cap (docs/enforcement.md), by the word of ``status.tenants[].enforced``.
STRENGTHS: Final[Mapping[str, str]] = {"driver": "hard", "kill": "after", "mps": "soft", "hami-core": "soft"}
#: Of what an agent says, in characters: it goes into conditions of pods.
_LONGEST: Final = 300
#: What ``status.agent.missing`` calls the limits that a memory enforcer judges; others have " by " and their name
#: behind it.
CAPS: Final = "memory caps"
#: Back ends that are the memory enforcer's, which measures use.
_MEASURES: Final = frozenset({"kill", "driver"})
_NO_ENFORCER: Final = "the node has no memory enforcer, which measures use"
_NONE_YET: Final = "the memory enforcer of the node has not reported"
_NOT_TOLD: Final = "the driver does not report it, or the memory enforcer has not reported yet"

#: UID of a pod, UUID of a device.
Key = tuple[str, str]


class State(enum.Enum):
    """How far a report counts."""

    CURRENT = "current"
    #: The agent's pod is not Ready, or there is none.
    STALE = "stale"
    #: Nobody may say whether the agent works: its pods can't be read.
    UNSURE = "unsure"


class Agent(msgspec.Struct, frozen=True, gc=False):
    """An agent's pod. ``since``: RFC 3339, since when it is Ready or not; "": not known."""

    is_ready: bool
    since: str = ""


class TenantUse(msgspec.Struct, frozen=True, gc=False):
    """Use of a share of one device, in percent of the share, 100 at most; None: not known.

    ``idle_since``: RFC 3339, "" where it is not idle. ``enforced``: what caps its memory now, "" for nothing.
    """

    memory_percent: int | None = None
    sm_percent: int | None = None
    idle_since: str = ""
    enforced: str = ""

    @property
    def strength(self) -> str:
        """How well its memory cap holds: ``hard``, ``after``, ``soft``; "" for no cap that is enforced."""
        return STRENGTHS.get(self.enforced, "")


class NodeUse(msgspec.Struct, frozen=True):
    """The report of a node. Without ``tenants`` of a stale one: they were, and nobody knows what is.

    ``since``: of a stale report since when the agent has not worked, "" where nobody knows: the time of the report's
    last write is no such time. ``why``: why use is not measured there, "". ``has_limits``: something there caps
    tenants, or did by a stale report; ``why_no_limit``: else why not, as the agent says. ``written_at``: of a stale
    report, RFC 3339, when it was written last; "" where it does not say. ``partitionings``: MIG slices that are being
    made, also where the report is stale: what is asked for stays asked for.
    """

    state: State
    tenants: Mapping[Key, TenantUse] = msgspec.field(default_factory=dict)
    since: str = ""
    why: str = ""
    has_limits: bool = False
    why_no_limit: str = ""
    written_at: str = ""
    partitionings: tuple[GpuPartitioning, ...] = ()


def is_agent(pod: Pod) -> bool:
    """Whether a pod is the agent of its node. Only administrators make pods in that namespace."""
    return (
        pod.metadata.namespace == names.NODE_NAMESPACE
        and pod.spec.service_account_name == names.NODE_AGENT_SERVICE_ACCOUNT
        and bool(pod.spec.node_name)
    )


def agents(pods: Iterable[Pod]) -> dict[str, Agent]:
    """Return the agent of each node that has one, by node. Of several (one is replaced) a Ready one counts."""
    found: dict[str, Agent] = {}
    for pod in pods:
        if is_agent(pod):
            ready = next((c for c in pod.status.conditions or () if c.type == _READY), None)
            one = Agent(ready is not None and ready.status == "True", (ready and ready.last_transition_time) or "")
            before = found.get(pod.spec.node_name)
            found[pod.spec.node_name] = one if before is None or one.is_ready else before
    return found


def node_use(report: GpuNode, known: Mapping[str, Agent] | None) -> NodeUse:
    """Read the report of a node. ``known``: agents by node; None: they can't be read.

    A GpuNode is written when something changes, so its age says nothing. What does is whether the agent's pod is Ready:
    else its numbers are of the past, and are shown to nobody as current (docs/node-agent.md).
    """
    has_limits = bool(report.status.agent.back_ends)
    if known is None:
        state = State.UNSURE
    else:
        agent = known.get(report.metadata.name)
        if agent is None or not agent.is_ready:
            return NodeUse(
                State.STALE,
                since=agent.since if agent is not None else "",
                has_limits=has_limits,
                written_at=report.status.reported_at or "",
                partitionings=partitionings(report),
            )
        state = State.CURRENT
    tenants = {(one.pod_uid, one.card): _tenant(one) for one in report.status.tenants or ()}
    return NodeUse(
        state,
        tenants,
        why="" if _is_measured(tenants.values()) else why_no_caps(report),
        has_limits=has_limits,
        why_no_limit="" if has_limits else why_no_caps(report),
        partitionings=partitionings(report),
    )


def _tenant(one: TenantStatus) -> TenantUse:
    since = one.idle_since or ""
    enforced = one.enforced if one.enforced in STRENGTHS else ""
    return TenantUse(one.memory_percent, one.sm_percent, since if parse_ns(since) is not None else "", enforced)


def _is_measured(tenants: Iterable[TenantUse]) -> bool:
    uses = list(tenants)
    return not uses or any(one.memory_percent is not None or one.sm_percent is not None for one in uses)


def why_no_caps(report: GpuNode) -> str:
    """Why nothing measures or caps tenants there, as its agent says."""
    said = report.status.agent.missing or ()
    missing = next((each.why for each in said if each.what == CAPS or each.what.startswith(f"{CAPS} by ")), None)
    if missing is None:
        return _NO_ENFORCER if _MEASURES.isdisjoint(report.status.agent.back_ends or ()) else _NOT_TOLD
    return missing[:_LONGEST] or _NONE_YET


def idle_nano_seconds(nano: int, since: str, now_ns: int) -> int:
    """How much an idle share has cost so far, in nano-GPU times seconds; 0 where the times make no sense."""
    since_ns = parse_ns(since)
    return 0 if since_ns is None else nano * max(0, now_ns - since_ns) // NANO_PER_DEVICE


def is_idle(use: NodeUse, one: TenantUse) -> bool:
    """Whether somebody may be told that this tenant is idle: only of what a report says of now."""
    return bool(one.idle_since) and use.state is not State.STALE


ENFORCED: Final[Mapping[str, str]] = {
    "driver": "EnforcedByDriver",
    "mps": "EnforcedByMPS",
    "kill": "EnforcedByKilling",
    "hami-core": "EnforcedByHamiCore",
}
NOT_IN_PLACE: Final = "NotInPlace"
NOT_REPORTED: Final = "AgentNotReady"
NOT_ENFORCED: Final = "NotEnforced"
#: Reasons that only reports are a cause of.
BY_REPORT: Final = frozenset({*ENFORCED.values(), NOT_IN_PLACE, NOT_REPORTED})

_HOW: Final[Mapping[str, str]] = {
    "driver": "the driver refuses what is beyond it (strength: hard)",
    "kill": "processes above it are ended (strength: after)",
    "mps": "MPS limits each process, and a program can pass it (strength: soft)",
    "hami-core": "a preloaded library limits it, and a program can pass it (strength: soft)",
}
#: The weakest first: several devices of a pod are as well capped as the worst of them.
_WEAKEST: Final = ("hami-core", "mps", "kill", "driver")
_NO_USE: Final = TenantUse()


class Told(msgspec.Struct, frozen=True):
    """A condition. ``is_correction``: it is said only where a report was said before, of which it takes back.

    ``may_be_first``: also where nothing was said before.
    """

    status: str
    reason: str
    message: str
    is_correction: bool = False
    may_be_first: bool = False


def caps_condition(
    node: str, uid: str, caps: Mapping[str, int], use: NodeUse, *, lacks: str = "", needs_agent: bool = True
) -> Told | None:
    """Say how a pod's caps stand; None: nothing can be said. ``caps``: MiB by device (UUID), 0: not known how many.

    ``lacks``: what else the pod wishes and its node can't do, in words; "": nothing. ``needs_agent``: nothing but the
    agent of the node would cap it.

    Pure (docs/enforcement.md). Nothing is said before the agent has seen anything.
    """
    if not caps:
        return None
    cap = _cap(caps)
    if use.state is not State.CURRENT:
        since = f" since {use.since}" if use.since else ""
        message = (
            f"Whether a memory cap of {cap} is enforced is not known: the agent of node {node} does not work{since}"
        )
        if use.written_at:
            message += f"; its last report is of {use.written_at}"
        # Where the agent capped nobody when it worked, there is nothing to miss.
        may_be_first = use.state is State.STALE and use.has_limits and needs_agent
        return Told("Unknown", NOT_REPORTED, message, is_correction=True, may_be_first=may_be_first)
    by = {use.tenants.get((uid, device), _NO_USE).enforced for device in caps}
    if "" in by:
        message = f"A memory cap of {cap} is not enforced now: {use.why_no_limit or 'the agent reports no limit'}"
        if lacks:
            message += f". Node {node} does not enforce {lacks} either"
        return Told("False", NOT_IN_PLACE, message, is_correction=not use.has_limits)
    weakest = next(each for each in _WEAKEST if each in by)
    said = f"Memory cap of {cap}: {_HOW[weakest]}"
    if lacks:
        return Told("False", NOT_ENFORCED, f"Node {node} does not enforce {lacks}: kept as bookkeeping only. {said}")
    return Told("True", ENFORCED[weakest], said)


def _cap(caps: Mapping[str, int]) -> str:
    texts = [f"{mib} MiB on {device}" if mib else f"its share of {device}" for device, mib in sorted(caps.items())]
    return " and ".join(texts)
