"""MIG slices on demand: nodes that are offered for it and can't serve, and attempts that do not end (docs/mig.md)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Final

import msgspec

from cli.checks.reader import Finding, Level, Raw, Reader, some_of
from kube.client.clock import Clock
from ui.inspect.use import age
from wire import names
from wire.core import Node
from wire.crds.gpunode import DEFINITION, MIG_ON_DEMAND, PLUGIN_OWN, CardStatus, GpuNode
from wire.rfc3339 import parse_ns

_CHECK: Final = "mig on demand"
_PATH: Final = f"/apis/{names.MOORAGE_GROUP}/{DEFINITION.version}/{DEFINITION.plural}"
_NODES: Final = "/api/v1/nodes"
_MIXED: Final = "mixed"
_UNDER_WAY: Final = "underway"
_FAILED: Final = "failed"
#: An attempt takes 30 s until slices are free, and then seconds for each.
_STUCK_NS: Final = 180 * 10**9
_LONGEST_WHY: Final = 120


class _Offered(msgspec.Struct, frozen=True):
    """A node, and what its agent reports and is asked; None: nothing. ``asked_ns``: when it was asked last."""

    node: Node
    report: GpuNode | None
    asked_ns: int | None = None

    @property
    def name(self) -> str:
        """Of the node."""
        return self.node.metadata.name

    @property
    def is_dynamic(self) -> bool:
        """Whether its administrator offers its GPUs."""
        return (self.node.metadata.labels or {}).get(names.NODE_MIG) == names.MIG_DYNAMIC


def mig_check(clock: Clock) -> Callable[[Reader], Awaitable[list[Finding]]]:
    """Return the check. ``clock`` gives the time from which ages of attempts are counted."""

    async def check_mig(reader: Reader) -> list[Finding]:
        """Check that nodes with offered GPUs can make slices, and that no attempt hangs."""
        raw = {str(each["metadata"]["name"]): each for each in await reader.items(_PATH, if_served=True)}
        nodes = [_offered(each, raw) for each in await reader.items(_NODES, if_served=True)]
        offered = [each for each in nodes if each is not None]
        dynamic = [each for each in offered if each.is_dynamic]
        why = {each.name: text for each in dynamic if (text := _unfit(each))}
        found = list(_listed(why, "can't serve MIG on demand", "docs/mig.md, Offering a GPU"))
        stuck = {each.name: text for each in offered if (text := _stuck(each, clock.now_ns()))}
        do = "look at the agent's log there, and whether its pod is Ready; or take the entry out of spec.mig"
        found += _listed(stuck, "an attempt at MIG slices does not end", do)
        failed = {each.name: text for each in dynamic if (text := _failed(each))}
        do = "status.cards[].layout shows what is there; ask with another attempt where nobody waits for slices"
        found += _listed(failed, "the driver refused MIG slices", do)
        if dynamic and not found:
            said = f"{names.NODE_MIG}={names.MIG_DYNAMIC} on {len(dynamic)} node(s), and all can serve"
            return [Finding(Level.OK, _CHECK, said)]
        return found

    return check_mig


def _offered(raw: Raw, reports: Mapping[str, Raw]) -> _Offered | None:
    """Read a node and its report; None for a node that can't be read."""
    try:
        node = msgspec.convert(raw, Node)
    except msgspec.ValidationError:
        return None
    report = reports.get(node.metadata.name)
    try:
        return _Offered(node, None if report is None else msgspec.convert(report, GpuNode), _asked_ns(report or {}))
    except msgspec.ValidationError:
        return _Offered(node, None)


def _asked_ns(report: Raw) -> int | None:
    """When somebody wrote ``spec`` last, as the API server keeps it; None: not known."""
    fields = (report.get("metadata") or {}).get("managedFields") or ()
    times = (parse_ns(str(each.get("time", ""))) for each in fields if "f:spec" in (each.get("fieldsV1") or {}))
    return max((time for time in times if time is not None), default=None)


def _unfit(one: _Offered) -> str:
    """Why slices can't be made on a node that is offered; "" if they can."""
    report, labels = one.report, one.node.metadata.labels or {}
    if report is None:
        return "no agent has reported"
    agent = report.status.agent
    cards = [card for card in report.status.cards or () if card.mig]
    trouble = next((each.why for each in agent.missing or () if each.what == MIG_ON_DEMAND), "")
    is_mixed = labels.get(names.NODE_MIG_STRATEGY) == _MIXED
    lacks = (
        (agent.plugin_mode != PLUGIN_OWN, "its agent is not the device plug-in"),
        (bool(trouble), trouble[:_LONGEST_WHY]),
        (not cards, "no GPU is in MIG mode"),
        (
            all(card.layout is None for card in cards),
            "its agent makes no slices: migOnDemand is off, or the driver has not answered",
        ),
        (not is_mixed, f"{names.NODE_MIG_STRATEGY} is not {_MIXED}"),
    )
    return next((text for is_lacking, text in lacks if is_lacking), "")


def _stuck(one: _Offered, now_ns: int) -> str:
    """Which attempts at the GPUs of a node do not end, and for how long that is known; "" for none."""
    return ", ".join(_open(one, now_ns))


def _open(one: _Offered, now_ns: int) -> Iterator[str]:
    report = one.report
    if report is None:
        return
    cards = {card.uuid: card for card in report.status.cards or ()}
    reported_ns = parse_ns(report.status.reported_at or "")
    for asked in report.spec.mig or ():
        card = cards.get(asked.uuid)
        partitioning = None if card is None else card.partitioning
        is_taken_up = partitioning is not None and partitioning.attempt == asked.attempt
        if is_taken_up and partitioning is not None and partitioning.state != _UNDER_WAY:
            continue
        # A status under way is written when it begins, and then seldom: it is at least as old as its last write.
        since_ns = reported_ns if is_taken_up else one.asked_ns
        if since_ns is None or now_ns - since_ns < _STUCK_NS:
            continue
        what = "under way" if is_taken_up else _untaken(one)
        yield f"{asked.uuid} {what} for {age(now_ns - since_ns)}"


def _untaken(one: _Offered) -> str:
    return "not taken up" if one.is_dynamic else f"not taken up, without {names.NODE_MIG}={names.MIG_DYNAMIC},"


def _failed(one: _Offered) -> str:
    cards = [] if one.report is None else one.report.status.cards or []
    return ", ".join(f"{card.uuid}: {why[:_LONGEST_WHY]}" for card in cards if (why := _why_failed(card)))


def _why_failed(card: CardStatus) -> str:
    return (
        card.partitioning.why or "no reason"
        if card.partitioning is not None and card.partitioning.state == _FAILED
        else ""
    )


def _listed(why: Mapping[str, str], said: str, do: str) -> Iterator[Finding]:
    if why:
        each = some_of([f"{name} ({text})" for name, text in sorted(why.items())])
        yield Finding(Level.WARNING, _CHECK, f"{said}: {each}", do)
