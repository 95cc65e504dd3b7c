"""What is said of a bound pod's memory caps, by what the agent of its node reports (docs/enforcement.md).

A pure step: caps of the book, the report, and what else the pod wishes that its node lacks -> a condition. Nothing is
said before the agent has seen anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from gpu.nodeuse import NodeUse, State, TenantUse

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
