from __future__ import annotations

from gpu.node_use import NodeUse, State, TenantUse
from gpu.reservation import Reservation, read
from tests.scheduler.core.objects import NANO, reservation
from ui.explain.server import MOST, idle_holders
from wire.rfc3339 import parse_ns

NOW_NS = parse_ns("2026-11-27T18:30:00Z") or 0
IDLE = TenantUse(5, 0, "2026-11-27T13:05:00Z")
LONGER = TenantUse(0, 0, "2026-11-26T13:05:00Z")
BUSY = TenantUse(90, 80)


def held(node: str, **shares: int) -> Reservation:
    """A reservation on a node; its device has the node's name."""
    return read(
        reservation(f"g-{node}", node, uuid=f"GPU-{node}", book={f"uid-{name}": n for name, n in shares.items()})
    )


def named(reports: dict[str, NodeUse], *there: Reservation, namespace: str = "") -> list[str]:
    return [each.message for each in idle_holders(there, reports.get, now_ns=NOW_NS, namespace=namespace)]


def use(of: dict[str, TenantUse], state: State = State.CURRENT) -> NodeUse:
    return NodeUse(state, {(f"uid-{name}", "GPU-n1"): one for name, one in of.items()})


HALVES = held("n1", a=NANO // 2, b=NANO // 4, c=NANO // 4)


def test_who_is_idle_is_named_with_what_it_holds_and_since_when() -> None:
    (first, second) = named({"n1": use({"a": IDLE, "b": LONGER, "c": BUSY})}, HALVES)
    assert first == "ns/p holds 0.25 of a GPU on node n1, and has used 5% of it at most since 2026-11-26 13:05Z"
    assert second == "ns/p holds 0.5 of a GPU on node n1, and has used 5% of it at most since 13:05Z"


def test_nobody_is_idle_by_the_word_of_an_agent_that_is_dead_or_not_there() -> None:
    assert named({"n1": use({"a": IDLE}, State.STALE)}, HALVES) == []
    assert named({}, HALVES) == []


def test_of_others_namespaces_nobody_is_named() -> None:
    reports = {"n1": use({"a": IDLE})}
    (one,) = idle_holders([HALVES], reports.get, now_ns=NOW_NS)
    assert named(reports, HALVES, namespace=one.namespace) == [one.message]
    assert named(reports, HALVES, namespace="elsewhere") == []


def test_few_are_named_of_many() -> None:
    many = held("n1", **{f"p{number}": NANO // 50 for number in range(40)})
    reports = {"n1": use({f"p{number}": IDLE for number in range(40)})}
    assert len(named(reports, many)) == MOST
