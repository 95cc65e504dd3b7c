"""A further share waits, charged, for the device that a first share is about to make known."""

from __future__ import annotations

from gpu.bind_request import PlannedDevice
from scheduler.core.cluster import Cluster
from scheduler.core.model.plan import Attempt, Hold, Join, Placement
from scheduler.core.nodes.table import GPUS
from tests.scheduler.core.objects import NANO, bound, cluster, commit, feed, node, pod, reservation
from wire import names

HALF = NANO // 2
FIRST, SECOND, THIRD = (pod(name, fraction="0.5") for name in ("a", "b", "c"))


def _opened() -> tuple[Cluster, str]:
    """Two halves of one card, the first at the binder; and the name of their group."""
    made = cluster(node(gpus=1), FIRST, SECOND)
    plan = made.decide(0)
    assert [type(entry) for entry in plan.entries] == [Attempt, Hold]
    commit(made, plan)
    flight = made.commits.flight("uid-a")
    assert flight is not None
    return made, flight.placement.devices[0].group


def test_the_second_share_of_a_new_device_is_held_in_the_same_decision() -> None:
    made, group = _opened()
    held = made.commits.flight("uid-b")
    assert held is not None
    assert held.placement.devices[0].group == group


def test_a_share_that_comes_later_is_held_as_well() -> None:
    made = cluster(node(gpus=1), FIRST)
    commit(made, made.decide(0))
    feed(made, SECOND)
    assert [type(entry) for entry in made.decide(0).entries] == [Hold]


def test_what_is_held_is_charged() -> None:
    made, _ = _opened()
    feed(made, THIRD)
    assert not any(isinstance(entry, (Attempt, Hold, Join)) for entry in made.decide(0).entries)
    ledger = made.refresh()
    assert int(ledger.table.free[GPUS, ledger.row_of["n1"]]) == 0
    assert made.validate() == []


def test_it_joins_when_the_first_share_is_bound() -> None:
    made, group = _opened()
    feed(made, reservation(group, book={"uid-a": HALF}, uuid="GPU-1", uid="r1"))
    assert made.decide(0).entries == ()
    feed(made, bound(FIRST, "n1", (group, HALF), reservation="r1", uuid="GPU-1"))
    (entry,) = made.decide(0).entries
    assert isinstance(entry, Join)
    assert entry.placement.devices[0].group == group


def test_it_goes_first_itself_when_the_first_share_failed() -> None:
    made, _ = _opened()
    made.commits.failed("uid-a", "", "Refused", now_ns=0)
    made.commits.release("uid-a", attempt=0)
    entries = [entry for entry in made.decide(0).entries if isinstance(entry, (Attempt, Hold))]
    assert [(type(entry), entry.placement.name) for entry in entries] == [(Attempt, "b")]


def test_it_goes_first_itself_when_the_first_share_is_deleted() -> None:
    made, _ = _opened()
    made.remove_pod("uid-a")
    (entry,) = made.decide(0).entries
    assert isinstance(entry, Attempt)
    assert entry.placement.name == "b"


def test_a_share_that_is_deleted_while_it_is_held_leaves_nothing_behind() -> None:
    made, group = _opened()
    made.remove_pod("uid-b")
    feed(made, THIRD)
    (entry,) = made.decide(0).entries
    assert isinstance(entry, Hold)
    assert entry.placement.devices[0].group == group
    assert made.validate() == []


def test_one_that_waits_for_two_devices_goes_on_waiting_for_the_second() -> None:
    both = pod("both", fraction="0.3", devices=2)
    made = cluster(node(gpus=2), pod("a", fraction="0.7"), pod("b", fraction="0.6"))
    commit(made, made.decide(0))
    feed(made, both)
    commit(made, made.decide(0))
    made.remove_pod("uid-a")
    made.commits.forget_departed("uid-a")
    feed(made, pod("a2", fraction="0.7"))
    plan = made.decide(0)
    assert made.is_in_flight("uid-both") is False
    assert [type(entry) for entry in plan.entries if isinstance(entry, (Attempt, Hold))] == [Attempt, Hold]


def test_one_that_waited_for_two_devices_and_went_elsewhere_stays_charged_there() -> None:
    made = cluster(node("a", gpus=2), pod("a", fraction="0.7"), pod("b", fraction="0.6"))
    commit(made, made.decide(0))
    feed(made, pod("both", fraction="0.3", devices=2))
    commit(made, made.decide(0))
    made.remove_pod("uid-a")
    flight = made.commits.flight("uid-b")
    assert flight is not None
    elsewhere = Placement(
        pod_uid="uid-both",
        namespace="ns",
        name="both",
        rv="1",
        node="a",
        devices=(PlannedDevice("elsewhere", NANO // 3),),
        number=made.next_number("uid-both"),
    )
    made.commits.assume(elsewhere)
    made.commits.release("uid-b", attempt=flight.placement.number)
    assert made.is_in_flight("uid-both")
    assert made.validate() == []


def test_a_share_that_needs_the_binder_anyway_is_not_held() -> None:
    source = {"configMapKeyRef": {"name": "maps-0", "key": names.ENV_VISIBLE_DEVICES}}
    env = [{"name": names.ENV_VISIBLE_DEVICES, "valueFrom": source}]
    by_config_map = pod(
        "b",
        fraction="0.5",
        admitted=False,
        annotations={names.SHARED_GPU_CONFIGMAP: "maps"},
        spec={"containers": [{"name": "main", "env": env}]},
    )
    made = cluster(node(gpus=1), FIRST, by_config_map)
    assert [type(entry) for entry in made.decide(0).entries] == [Attempt, Attempt]


def test_who_has_waited_too_long_opens_the_device_itself() -> None:
    made, group = _opened()
    assert made.commits.give_up_opening("uid-a", attempt=0)
    (entry,) = made.decide(0).entries
    assert isinstance(entry, Attempt)
    assert entry.placement.pod_uid == "uid-b"
    assert entry.placement.devices[0].group == group
    assert not made.commits.give_up_opening("uid-a", attempt=0)


def test_an_attempt_that_is_over_is_not_given_up_in_the_name_of_a_newer_one() -> None:
    made, _ = _opened()
    assert not made.commits.give_up_opening("uid-a", attempt=1)
    assert made.commits.flight("uid-b") is not None


def test_a_share_whose_device_is_not_made_known_by_anybody_is_decided_on_again() -> None:
    made = cluster(node(gpus=1), FIRST)
    plan = made.decide(0)
    (entry,) = plan.entries
    assert isinstance(entry, Attempt)
    made.commits.hold(entry.placement)
    assert made.commits.flight("uid-a") is None
    assert made.decide(0) is not plan
