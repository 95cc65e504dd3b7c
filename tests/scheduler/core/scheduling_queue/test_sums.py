"""One node at a time gives the same answer as many at once, and neither is stricter than a placement."""

from __future__ import annotations

from collections import Counter

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.cluster import Cluster
from scheduler.core.decide.placer import Placer
from scheduler.core.scheduling_queue import hints
from scheduler.core.scheduling_queue.hints import Columns, has_slots, needs_of, passing, slots
from tests.scheduler.core.objects import Fed, bound, cluster, node, pod, reservation
from tests.values import there

_SHARES = st.sampled_from([{"fraction": "0.3"}, {"fraction": "0.7"}, {"mem": 30_000}, {"gpus": 1}, {"gpus": 2}, {}])
_WHOLE = st.sampled_from([{"gpus": 1}, {"gpus": 2}, {}])
_NODES = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.booleans(), st.sampled_from([0, 250, 600, 1_000])), max_size=20
)


def _made(nodes: list[tuple[int, int, bool, int]], asked: dict[str, object]) -> Cluster:
    objects: list[Fed] = []
    for number, (gpus, used, is_closed, milli) in enumerate(nodes):
        name = f"n{number}"
        objects.append(node(name, gpus=gpus, mem_mib=81_920, cordoned=is_closed, cpu="8"))
        objects.append(bound(pod(f"r{name}", gpus=used, cpu=str(number % 9)), name))
        if gpus and milli < 1_000:
            objects.append(
                reservation(f"g{name}", name, book={"t": milli * 1_000_000} if milli else {}, mem_mib=81_920)
            )
    return cluster(*objects, pod("p", cpu="2", **asked))  # type: ignore[arg-type]  # drawn by name


@given(nodes=_NODES, asked=_SHARES)
def test_few_rows_pass_as_many_do_and_whatever_takes_a_pod_passes(
    nodes: list[tuple[int, int, bool, int]], asked: dict[str, object]
) -> None:
    made = _made(nodes, asked)
    record, ledger = there(made.pod("uid-p")), made.refresh()
    rows = sorted(ledger.row_of.values())
    needs = needs_of(ledger, record.cls)
    own = Columns(ledger.table, lambda row: row)
    one_by_one = [row for row in rows if passing(ledger, needs, [row], own)]
    assert list(passing(ledger, needs, rows)) == one_by_one
    many = rows * (1 + hints._FEW // max(1, len(rows)))
    assert sorted(set(passing(ledger, needs, many))) == one_by_one
    placed = Placer(made.snapshot()).place(record)
    assert placed is None or ledger.row_of[placed.node] in one_by_one


@given(nodes=_NODES, asked=_WHOLE)
def test_a_row_has_at_least_as_many_slots_as_pods_find_a_place_there(
    nodes: list[tuple[int, int, bool, int]], asked: dict[str, object]
) -> None:
    made = _made(nodes, asked)
    record, ledger = there(made.pod("uid-p")), made.refresh()
    needs = needs_of(ledger, record.cls)
    had = {row: slots(ledger.table, needs, row) for row in passing(ledger, needs, sorted(ledger.row_of.values()))}
    assert all(has_slots(ledger, needs, [row], count) for row, count in had.items())
    assert not has_slots(ledger, needs, list(had), sum(had.values()) + 1)
    placer, found = Placer(made.snapshot()), Counter[int]()
    while (placed := placer.place(record)) is not None:
        found[ledger.row_of[placed.node]] += 1
    while (room := placer.wait_for_device(record)) is not None:
        found[ledger.row_of[room[0]]] += 1
    assert found == had


def test_a_class_passes_nowhere_while_no_node_has_its_resource() -> None:
    made = cluster(node(), pod("p", extended={"example.com/dongle": "1"}))
    record, ledger = there(made.pod("uid-p")), made.refresh()
    assert not passing(ledger, needs_of(ledger, record.cls), list(ledger.row_of.values()))


def test_a_row_without_a_node_in_the_other_table_does_not_pass() -> None:
    made = cluster(node(), pod("p", cpu="1"))
    record, ledger = there(made.pod("uid-p")), made.refresh()
    nowhere = Columns(ledger.table, lambda _: None)
    assert not passing(ledger, needs_of(ledger, record.cls), list(ledger.row_of.values()), nowhere)


def test_a_node_that_is_out_for_a_class_does_not_pass() -> None:
    made = cluster(node("n1"), node("n2"), pod("p", cpu="1"))
    record, ledger = there(made.pod("uid-p")), made.refresh()
    needs = needs_of(ledger, msgspec.structs.replace(record.cls, excluded=frozenset({"n1"})))
    assert list(passing(ledger, needs, list(ledger.row_of.values()))) == [ledger.row_of["n2"]]
