"""The ledger of nodes: what it notes, what all of them may hold, which changes may help, and caps of slices."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.cluster import Cluster
from scheduler.core.filters.registry import NO_NODE, OK
from scheduler.core.model.pod_class import Constraints
from scheduler.core.nodes.ledger import Capacity
from scheduler.core.nodes.slice_caps import SliceCaps
from scheduler.core.nodes.table import GPUS
from tests.scheduler.core.nodes.test_nominated_usage import running
from tests.scheduler.core.objects import NANO, Fed, bound, cluster, ended, feed, node, pod, queue, reservation
from tests.scheduler.core.preemption.scenes import Scene, device, need_of, sharing, trial_of, waiting
from tests.scheduler.core.stories.test_slices import cut

# Which changes of a node the ledger notes, what it keeps of constraints, and which wrong cells a check names.

_HALF = NANO // 2
_RUNS = pod("r", gpus=2, bound_to="n1")
_CPU_RUNS = pod("c", cpu="1", bound_to="plain")
_OBJECTS = (node("n1", 4), node("plain", 0), reservation("g"), _RUNS, _CPU_RUNS)


def _constraints(made: Cluster, name: str) -> Constraints:
    record = made.pod(f"uid-{name}")
    assert record is not None
    return record.cls.constraints


@pytest.mark.parametrize(
    ("happens", "is_change", "may_help"),
    [
        pytest.param(lambda made: made.count_again("n1"), False, False, id="it is counted again"),
        pytest.param(lambda made: made.count_again("plain"), False, False, id="one without devices is counted again"),
        pytest.param(
            lambda made: feed(made, pod("x", cpu="1", bound_to="plain")), True, False, id="a pod comes, no devices"
        ),
        pytest.param(lambda made: feed(made, pod("x", gpus=1, bound_to="n1")), True, False, id="a pod comes"),
        pytest.param(lambda made: feed(made, reservation("g", book={"t": _HALF})), True, False, id="a tenant comes"),
        pytest.param(lambda made: feed(made, ended(_RUNS)), True, True, id="a pod ends"),
        pytest.param(lambda made: feed(made, ended(_CPU_RUNS)), True, True, id="a pod ends, no devices"),
        pytest.param(lambda made: feed(made, node("n1", 4, ready=False)), True, True, id="its record changes"),
        pytest.param(lambda made: made.remove_node("plain"), True, False, id="it is gone"),
        pytest.param(lambda made: made.ledger.touch("n1"), True, True, id="something else may help there"),
        pytest.param(lambda made: made.ledger.touch("nowhere"), False, False, id="something helps on no node"),
    ],
)
def test_a_change_is_noted_and_whether_it_may_help(
    happens: Callable[[Cluster], object], is_change: bool, may_help: bool
) -> None:
    made = cluster(*_OBJECTS)
    changes = made.refresh().changes
    before = changes.last
    happens(made)
    made.refresh()
    assert (changes.last > before, changes.has_helped_since(before)) == (is_change, may_help)
    assert bool(changes.helped_since(before)) is may_help


def test_all_that_is_wrong_of_a_node_is_named() -> None:
    made = cluster(*_OBJECTS)
    ledger = made.refresh()
    row = ledger.row_of["n1"]
    ledger.table.free[:, row] += 1
    ledger.table.devices[row] = ()
    ledger.table.share_nano[:, row] = 7
    found = made.validate()
    assert found == made.differences("n1")
    assert [each.split()[2] for each in found] == [*ledger.table.resources, "shared", "the"]
    assert made.differences("plain") == []


def test_a_slice_slot_that_is_wrong_is_named() -> None:
    made = cluster(cut("n1", 2), reservation("g", resource="nvidia.com/mig-1g.10gb", book={"t": _HALF}))
    ledger = made.refresh()
    assert made.validate() == []
    ledger.table.slice_nano[0, ledger.row_of["n1"]] += 1
    (found,) = made.validate()
    assert "slice slots" in found


def test_nodes_that_come_later_are_judged_as_they_come() -> None:
    made = cluster(node("n0", labels={"color": "blue"}), pod("p", gpus=9, spec={"nodeSelector": {"color": "blue"}}))
    made.decide(0)
    wanted = _constraints(made, "p")
    for number in range(1, 40):
        feed(made, node(f"n{number}", labels={"color": "blue" if number % 2 else "red"}))
    ledger = made.refresh()
    assert ledger.effort(wanted) == 0
    judged = ledger.eligible(wanted)
    assert {name for name, row in ledger.row_of.items() if judged[row] == OK} == {
        f"n{number}" for number in range(40) if number % 2 or not number
    }
    assert (judged == NO_NODE).sum() == len(judged) - 40


@pytest.mark.parametrize("came", list(permutations(["n1", "n2", "n3"])))
@pytest.mark.parametrize("gone", ["", "n1", "n2"])
def test_nodes_are_looked_at_by_name_in_whatever_order_they_came(came: tuple[str, ...], gone: str) -> None:
    gpus = {"n1": 1, "n2": 2, "n3": 3}
    made = cluster(*(node(name, gpus[name]) for name in came))
    made.refresh()
    if gone:
        made.remove_node(gone)
        del gpus[gone]
    ledger = made.refresh()
    order = ledger.in_order()
    assert [each.name for each in order.nodes] == list(gpus)
    assert ledger.table.free[GPUS, order.rows].tolist() == list(gpus.values())


@pytest.mark.parametrize("most", [1, 3, 10_000])
def test_judging_takes_what_was_said_however_little_is_judged_at_a_time(most: int) -> None:
    made = cluster(*(node(f"n{number}") for number in range(20)), pod("p", spec={"nodeSelector": {"color": "blue"}}))
    ledger, wanted = made.refresh(), _constraints(made, "p")
    total, steps = ledger.effort(wanted), 0
    spent = 0
    while ledger.effort(wanted):
        spent += ledger.judge_some(wanted, most)
        steps += 1
    assert spent == total
    assert (steps > 1) is (most < total)
    assert ledger.judge_some(wanted, most) == 0
    assert (
        ledger.eligible(wanted).tolist()
        == cluster(*(node(f"n{number}") for number in range(20))).refresh().eligible(wanted).tolist()
    )


def test_what_nobody_asks_any_more_is_forgotten_and_all_else_is_kept() -> None:
    made = cluster(
        cut("n1"), pod("p", spec={"nodeSelector": {"color": "blue"}}), pod("q", spec={"nodeSelector": {"color": "red"}})
    )
    ledger, asked, other = made.refresh(), _constraints(made, "p"), _constraints(made, "q")
    for each in (asked, other):
        ledger.eligible(each)
    ledger.slice_rows("1g.10gb")
    assert ledger.constraints == 2
    ledger.forget_constraints({asked})
    ledger.forget_profiles(set())
    assert (ledger.constraints, ledger.effort(asked), ledger.effort(other) > 0) == (1, 0, True)
    feed(made, cut("n2"))
    rows = made.refresh().slice_rows("1g.10gb")
    assert [int(rows[ledger.row_of[name]]) for name in ("n1", "n2")] == [
        ledger.table.resources.index("nvidia.com/mig-1g.10gb")
    ] * 2


def test_a_row_that_is_used_again_has_nothing_of_the_node_before() -> None:
    made = cluster(node("n1", labels={"color": "blue"}), bound(pod("t", fraction="0.5"), "n1", ("g", _HALF)))
    made.refresh()
    made.remove_node("n1")
    feed(made, node("n2", 1, cpu="4"))
    ledger = made.refresh()
    fresh = cluster(node("n2", 1, cpu="4")).refresh()
    row, other = ledger.row_of["n2"], fresh.row_of["n2"]
    assert ledger.table.free[:, row].tolist() == fresh.table.free[:, other].tolist()
    assert ledger.table.extra[:, row].tolist() == fresh.table.extra[:, other].tolist()
    assert (ledger.table.share_nano[:, row] == -1).all()
    assert ledger.table.devices[row] == ()


def test_what_a_node_uses_of_a_resource_that_another_one_brings_is_counted_from_then_on() -> None:
    made = cluster(node("n1"), bound(pod("p", extended={"example.com/dongle": "1"}), "n1"))
    made.refresh()
    feed(made, node("n2", extended={"example.com/dongle": "4"}))
    ledger = made.refresh()
    assert made.validate() == []
    assert ledger.table.free[ledger.table.resources.index("example.com/dongle"), ledger.row_of["n1"]] == -1


def test_domains_are_numbered_until_labels_change_and_few_of_them_are_kept() -> None:
    made = cluster(node("a", labels={"zone": "x"}), node("b", labels={"zone": "y"}), node("c"))
    ledger = made.refresh()
    numbers, count = ledger.domains("zone")
    of = {name: int(numbers[row]) for name, row in ledger.row_of.items()}
    assert (count, of["c"], {of["a"], of["b"]}) == (2, -1, {0, 1})
    spent = ledger.effort_spent
    for number in range(2_000):
        ledger.domains(f"key-{number}")
    assert ledger.effort_spent > spent
    assert len(ledger._domain_numbers) <= 1_000
    feed(made, node("c", labels={"zone": "x"}))
    numbers, count = made.refresh().domains("zone")
    assert (count, numbers[ledger.row_of["c"]]) == (2, numbers[ledger.row_of["a"]])


# A pod that asks more than any node has in all fits nowhere, with all other pods gone.


def may_hold(made: Cluster, **asked: Any) -> bool:
    feed(made, pod("mine", **asked))
    ledger = made.refresh()
    return Capacity.of(ledger).may_hold(ledger, made.snapshot().pods.records["uid-mine"].cls)


@pytest.mark.parametrize(
    ("asked", "may"),
    [
        ({"gpus": 4}, True),
        ({"gpus": 5}, False),
        ({"cpu": "40"}, True),
        ({"cpu": "41"}, False),
        ({"gpus": 1, "cpu": "40"}, False),
        ({"fraction": "0.5", "devices": 8}, True),
        ({"fraction": "0.6", "devices": 4}, True),
        ({"fraction": "0.6", "devices": 5}, False),
        ({"gpus": 1, "extended": {"example.com/nic": "2"}}, True),
        ({"gpus": 1, "extended": {"example.com/nic": "3"}}, False),
        ({"gpus": 1, "extended": {"example.com/none": "1"}}, False),
        ({"cpu": "9" * 17}, False),
    ],
)
def test_one_node_has_to_have_all_that_is_asked_whoever_uses_it(asked: dict[str, Any], may: bool) -> None:
    made = cluster(node("n1", 4, cpu="32", extended={"example.com/nic": "2"}), node("n2", 0, cpu="40"))
    feed(made, running("v", 4))
    assert may_hold(made, **asked) is may


def test_devices_that_are_shared_count_though_their_node_reports_no_gpus() -> None:
    shares: list[Fed] = [device("g", "n1", x=NANO // 2), sharing("x", "", "n1", "g", NANO // 2)]
    assert may_hold(cluster(node("n1", 0), *shares), fraction="0.5")


def test_it_is_another_one_when_a_node_has_more_or_less_and_not_when_pods_come_and_go() -> None:
    made = cluster(node("n1", 4), queue("a"))
    known = Capacity.of(made.refresh())
    feed(made, running("v", 3), pod("w", gpus=9))
    made.remove_pod("uid-v")
    assert Capacity.of(made.refresh(), known) is known
    versions = [known.version]
    for changed in (node("n1", 3), node("n1", 4), node("n2", 1), node("n1", 4, extended={"example.com/nic": "1"})):
        feed(made, changed)
        known = Capacity.of(made.refresh(), known)
        versions.append(known.version)
    assert versions == [0, 1, 2, 3, 4]


@given(st.integers(0, 1 << 32), st.integers(1, 4))
def test_what_no_capacity_holds_the_placer_places_nowhere_though_all_have_gone(seed: int, gpus: int) -> None:
    made = Scene(seed).cluster()
    feed(made, queue("free"), waiting("large", "free", gpus=gpus))
    trial = trial_of(made)
    need, ledger = need_of(trial, "large"), made.refresh()
    trial.statement.evict(*(each for each in trial.pods.records.values() if each.node))
    may = Capacity.of(ledger).may_hold(ledger, need.pods[0].cls)
    # On nodes without rules the sums are exact for whole GPUs.
    assert (trial.paper.place(need) is not None) is may


ONE, TWO = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-2g.20gb"


def test_a_cap_holds_for_every_record_that_is_read_until_it_is_taken_away() -> None:
    made, caps = cluster(), SliceCaps()
    read = made.read_node(node("n1", extended={ONE: "3", TWO: "1"}))
    assert caps.capped(read) == read
    assert caps.put(read, {ONE: 1}).capacity.extended == ((ONE, 1), (TWO, 1))
    later = made.read_node(node("n1", extended={ONE: "2"}))
    assert caps.capped(later).capacity.extended == ((ONE, 1),)
    assert caps.put(later, {ONE: 0}).capacity.extended == ()
    assert caps.put(caps.capped(later), {}) == later
    assert caps.capped(later) == later


def test_nobody_is_placed_on_what_is_capped_and_the_ledger_stays_true() -> None:
    made = cluster(node("n1", extended={ONE: "1"}), pod("p", extended={ONE: "1"}))
    made.cap_slices("n1", {ONE: 0})
    assert made.validate() == []
    assert made.free_slices("n1") == {}
    assert [entry.__class__.__name__ for entry in made.decide(0).entries] == ["Explain"]
    made.upsert_node(node("n1", extended={ONE: "1"}, cpu="32"))
    assert made.validate() == []
    assert [entry.__class__.__name__ for entry in made.decide(0).entries] == ["Explain"]
    made.cap_slices("n1", {})
    assert made.validate() == []
    assert made.free_slices("n1") == {ONE: 1}
    assert [entry.__class__.__name__ for entry in made.decide(0).entries] == ["Bind"]


def test_a_node_that_is_gone_is_forgotten_with_its_cap() -> None:
    made = cluster(node("n1", extended={ONE: "1"}))
    made.cap_slices("n1", {ONE: 0})
    made.remove_node("n1")
    made.cap_slices("n1", {ONE: 0})
    made.upsert_node(node("n1", extended={ONE: "1"}))
    assert made.free_slices("n1") == {ONE: 1}
