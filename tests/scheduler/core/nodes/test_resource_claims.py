"""What ResourceClaims say of pods that wait: why they wait, where they may be, and by which reservations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from scheduler.core.cluster import Cluster
from scheduler.core.convert.resource_claims import resource_claim_record
from scheduler.core.model.plan import placements
from scheduler.core.model.verdict import Code
from scheduler.core.nodes.resource_claims import AllocationOrder, ReservedElsewhere
from tests.scheduler.core.device_objects import ask
from tests.scheduler.core.nodes.claiming import GPU, chosen, claimed, claiming, offered, reserve
from tests.scheduler.core.nodes.mounting import places, reasons, told
from tests.scheduler.core.objects import Fed, changed, cluster, feed, node, pod, pod_group
from wire import names
from wire.core import PodSpec
from wire.resource import ResourceClaim

_NODES = (node("a", gpus=0), node("b", gpus=0))
_OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p", "controller": True}
_OWNED: Any = {"ownerReferences": [_OWNER]}
_GROUP = {
    "apiVersion": "scheduling.k8s.io/v1alpha2",
    "kind": "PodGroup",
    "name": "g",
    "uid": "uid-g",
    "controller": True,
}
#: The pod names its PodGroup, and is a pod alone for this scheduler.
_IN_GROUP = {"schedulingGroup": {"podGroupName": "g"}}
_FULL = tuple(f"u{number}" for number in range(256))


@pytest.mark.parametrize(
    ("objects", "pod", "expected"),
    [
        ([], claiming("p", "c"), (Code.RESOURCE_CLAIM_NOT_FOUND, "c")),
        ([], claiming("p", template="-"), (Code.RESOURCE_CLAIM_NOT_MADE, "own")),
        ([claimed()], claiming("p", template="c"), (Code.RESOURCE_CLAIM_NOT_OWN, "c")),
        (
            [claimed(ownerReferences=[{**_GROUP, "name": "other"}])],
            claiming("p", template="c", annotations={names.IGNORE_WORKLOAD_API: "true"}, spec=_IN_GROUP),
            (Code.RESOURCE_CLAIM_OF_GROUP, "c"),
        ),
        ([claimed(ownerReferences=[_GROUP])], claiming("p", template="c"), (Code.RESOURCE_CLAIM_OF_GROUP, "c")),
        (
            [claimed(ownerReferences=[{**_GROUP, "uid": "uid-p"}])],
            claiming("p", template="c"),
            (Code.RESOURCE_CLAIM_OF_GROUP, "c"),
        ),
        (
            [claimed(ownerReferences=[{**_GROUP, "apiVersion": "scheduling.run.ai/v2alpha2"}])],
            claiming("p", template="c"),
            (Code.RESOURCE_CLAIM_NOT_OWN, "c"),
        ),
        (
            [claimed(ownerReferences=[{**_GROUP, "controller": False}, _OWNER | {"uid": "uid-q"}])],
            claiming("p", template="c"),
            (Code.RESOURCE_CLAIM_NOT_OWN, "c"),
        ),
        ([claimed(deletionTimestamp="2026-01-01T00:00:00Z")], claiming("p", "c"), (Code.RESOURCE_CLAIM_LEAVING, "c")),
        ([claimed(on=("a", "d0"), by=_FULL)], claiming("p", "c"), (Code.RESOURCE_CLAIM_IN_USE, "c")),
        ([claimed("c", ask(cls="tpu"))], claiming("p", "c"), (Code.DEVICE_CLASS_NOT_FOUND, "tpu")),
        (
            [claimed("c", {"name": "r"})],
            claiming("p", "c"),
            (Code.UNSUPPORTED_CONSTRAINT, "spec.devices.requests[0] of ResourceClaim c"),
        ),
        ([], claiming("p", spec={"resourceClaims": [{"name": "x"}]}), (Code.UNSUPPORTED_CONSTRAINT, "resourceClaims")),
        (
            [],
            claiming("p", *(f"c{number}" for number in range(33))),
            (Code.UNSUPPORTED_CONSTRAINT, "more than 32 ResourceClaims"),
        ),
    ],
)
def test_a_claim_that_can_t_be_had_keeps_its_pod_waiting(
    objects: list[Fed], pod: Fed, expected: tuple[Code, str]
) -> None:
    made = cluster(*_NODES, GPU, offered("a"), *objects, pod)
    assert told(made) == expected


def test_a_claim_that_was_made_from_a_template_is_its_pod_s() -> None:
    made = cluster(*_NODES, GPU, offered("b"), claimed(**_OWNED), claiming("p", template="c"))
    assert chosen(made.decide(0)) == {"p": ("b", {"c": "d0"})}


def _bound(spec: PodSpec) -> PodSpec:
    return msgspec.structs.replace(spec, node_name="b")


def in_group(name: str, *, template: str = "c", group: str = "g") -> Any:
    """A pod of a PodGroup of Kubernetes, in a gang, with a claim that was made from a template."""
    return claiming(name, template=template, group=group, spec=_IN_GROUP)


def test_a_claim_that_was_made_for_a_pod_group_of_kubernetes_is_that_of_all_its_pods() -> None:
    made = cluster(*_NODES, GPU, offered("b", 3), claimed(ownerReferences=[_GROUP]), pod_group("g", 2))
    feed(made, in_group("p"), in_group("q"))
    plan = made.decide(0)
    assert chosen(plan) == {"p": ("b", {"c": "d0"}), "q": ("b", {"c": "d0"})}
    reserve(made, plan)
    (gang,) = made.decide(0).entries
    assert {each.name: each.node for each in placements([gang])} == {"p": "b", "q": "b"}
    feed(made, *(msgspec.structs.replace(each, spec=_bound(each.spec)) for each in (in_group("p"), in_group("q"))))
    feed(made, in_group("late"))
    plan = made.decide(0)
    assert chosen(plan) == {"late": ("b", {"c": "d0"})}
    reserve(made, plan)
    record = made.claims.claims.get(("ns", "c"))
    assert record is not None
    assert sorted(record.reserved_for) == ["uid-late", "uid-p", "uid-q"]


@pytest.mark.parametrize(("used_by", "starts"), [(252, True), (253, False)])
def test_no_more_than_256_pods_of_a_pod_group_use_its_claim(used_by: int, starts: bool) -> None:
    there = claimed(on=("b", "d0"), by=_FULL[:used_by], ownerReferences=[_GROUP])
    made = cluster(*_NODES, GPU, offered("b"), there, pod_group("g", 4), *map(in_group, "pqrs"))
    assert bool(chosen(made.decide(0))) is starts


def test_pods_whose_own_claims_ask_the_same_are_of_one_class() -> None:
    made = cluster(*_NODES, GPU, offered("a", 9))
    for name in ("p", "q"):
        owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": f"uid-{name}", "controller": True}
        feed(made, claimed(f"of-{name}", ownerReferences=[owner]), claiming(name, template=f"of-{name}"))
    assert len({pod.cls for pod in made.waiting()}) == 1
    feed(made, claimed("named"), claiming("r", "named"))
    assert len({pod.cls for pod in made.waiting()}) == 1
    feed(made, claiming("s", "named"))
    assert len({pod.cls for pod in made.waiting()}) == 2
    made.remove_pod("uid-s")
    assert len({pod.cls for pod in made.waiting()}) == 1


@pytest.mark.parametrize("kind", ["claims", "slices", "classes", "rules"])
def test_a_kind_that_can_t_be_read_keeps_pods_waiting(kind: str) -> None:
    made = cluster(*_NODES, claimed(), claiming("p", "c"), *([] if kind == "classes" else [GPU]), offered("a"))
    inventory = made.claims.inventory
    facts: Any = made.claims.claims if kind == "claims" else getattr(inventory, kind)
    facts.note_in_step(False)
    names = {
        "claims": "resourceclaims",
        "slices": "resourceslices",
        "classes": "deviceclasses",
        "rules": "devicetaintrules",
    }
    assert told(made) == (Code.NOT_READ, f"{names[kind]}.resource.k8s.io")
    facts.note_in_step(True)
    assert told(made)[0] is Code.DEVICE_CLASS_NOT_FOUND if kind == "classes" else chosen(made.decide(0))


def test_an_allocated_claim_holds_its_pod_to_the_nodes_of_its_devices() -> None:
    made = cluster(*_NODES, GPU, claimed(on=("b", "d0"), by=("other",)), claiming("p", "c"))
    assert chosen(made.decide(0)) == {"p": ("b", {"c": "d0"})}
    elsewhere = cluster(node("a", gpus=0), GPU, claimed(on=("b", "d0"), by=("other",)), claiming("p", "c"))
    assert reasons(elsewhere) == {"claim-place": 1}


def test_a_reservation_that_another_process_wrote_is_given_back() -> None:
    made = cluster(*_NODES, GPU, offered("a"), claimed(on=("a", "d0"), by=("uid-p",)), claiming("p", "c"))
    assert told(made) == (Code.RESOURCE_CLAIM_GIVEN_BACK, "")
    assert [pod.uid for pod in made.claims.held_by_waiting()] == ["uid-p"]
    made.claims.note_leaving("uid-p")
    assert made.claims.held_by_waiting() == []
    feed(made, claimed())
    # It is shown before it is answered. A reservation that is written now would be taken for the old one.
    assert told(made) == (Code.RESOURCE_CLAIM_GIVEN_BACK, "")
    made.claims.note_left("uid-p", {"uid-c": "1"})
    assert chosen(made.decide(0)) == {"p": ("a", {"c": "d0"})}


def _held_twice() -> Cluster:
    """A pod whose claim ``c`` is being given back when a reservation of ``d`` comes, which was on its way."""
    held = claimed(on=("a", "d0"), by=("uid-p",), rv="5")
    made = cluster(*_NODES, GPU, offered("a", 2), held, claimed("d", rv="5"), claiming("p", "c", "d"))
    made.claims.note_leaving("uid-p")
    feed(made, claimed("d", on=("a", "d1"), by=("uid-p",), rv="7"))
    return made


@pytest.mark.parametrize("is_seen_first", [False, True])
def test_a_reservation_that_comes_while_others_are_given_back_is_given_back_after_them(is_seen_first: bool) -> None:
    made = _held_twice()
    steps: list[Callable[[], object]] = [
        lambda: made.claims.note_left("uid-p", {"uid-c": "8"}),
        lambda: feed(made, claimed(rv="8")),
    ]
    for step in reversed(steps) if is_seen_first else steps:
        assert made.claims.held_by_waiting() == []
        step()
    assert [pod.uid for pod in made.claims.held_by_waiting()] == ["uid-p"]
    assert told(made) == (Code.RESOURCE_CLAIM_GIVEN_BACK, "")
    made.claims.note_leaving("uid-p")
    made.claims.note_left("uid-p", {"uid-d": "9"})
    feed(made, claimed("d", rv="9"))
    assert chosen(made.decide(0)) == {"p": ("a", {"c": "d0", "d": "d1"})}


@pytest.mark.parametrize(("left", "is_again"), [("8", True), ("10", False), ("", False)])
def test_a_claim_that_was_reserved_again_meanwhile_is_given_back_again(left: str, is_again: bool) -> None:
    made = cluster(*_NODES, GPU, offered("a"), claimed(on=("a", "d0"), by=("uid-p",), rv="5"), claiming("p", "c"))
    made.claims.note_leaving("uid-p")
    made.claims.note_left("uid-p", {"uid-c": left})
    assert made.claims.held_by_waiting() == []
    feed(made, claimed(on=("a", "d0"), by=("uid-p",), rv="9"))
    assert [pod.uid for pod in made.claims.held_by_waiting()] == ["uid-p"] * is_again


def test_a_reservation_for_a_version_of_the_pod_that_is_past_is_given_back() -> None:
    made = cluster(*_NODES, GPU, offered("a"), claimed(), waiting := claiming("p", "c"))
    reserve(made, made.decide(0))
    assert places(made.decide(0)) == {"p": "a"}
    feed(made, changed(waiting))
    assert told(made) == (Code.RESOURCE_CLAIM_GIVEN_BACK, "")


def test_of_two_claims_with_one_device_the_later_one_is_given_back() -> None:
    made = cluster(*_NODES, GPU, offered("a", 2), claimed(rv="10"), claimed("theirs", rv="11"), claiming("p", "c"))
    plan = made.decide(0)
    feed(made, claimed("theirs", on=("a", "d0"), rv="12"))
    reserve(made, plan)
    assert told(made) == (Code.RESOURCE_CLAIM_GIVEN_BACK, "")


def test_of_two_claims_with_one_device_the_earlier_one_is_used() -> None:
    made = cluster(*_NODES, GPU, offered("a", 2), claimed(rv="10"), claimed("theirs", rv="11"), claiming("p", "c"))
    reserve(made, made.decide(0))
    feed(made, claimed("theirs", on=("a", "d0"), rv="99999999"))
    assert places(made.decide(0)) == {"p": "a"}


def test_pods_wake_when_devices_come() -> None:
    made = cluster(*_NODES, GPU, claimed(), claiming("p", "c"))
    assert reasons(made) == {"claim-devices": 2}
    feed(made, offered("b"))
    assert chosen(made.decide(0)) == {"p": ("b", {"c": "d0"})}


def test_a_pod_that_is_bound_or_gone_is_none_that_waits() -> None:
    made = cluster(*_NODES, GPU, offered("a"), claimed(on=("a", "d0"), by=("uid-p",)), claiming("p", "c"))
    feed(made, claiming("p", "c", bound_to="a"))
    assert made.claims.held_by_waiting() == []
    gone = cluster(*_NODES, claimed(on=("a", "d0"), by=("uid-p",)), claiming("p", "c"))
    gone.remove_pod("uid-p")
    assert gone.claims.held_by_waiting() == []


def test_a_list_that_shows_another_claim_with_the_device_of_a_reserved_one_takes_it_from_the_pod() -> None:
    made = cluster(*_NODES, GPU, offered("a", 2), claimed(rv="10"), claiming("p", "c"))
    reserve(made, made.decide(0))
    assert places(made.decide(0)) == {"p": "a"}
    with made.claims.order.listing():
        feed(made, claimed("theirs", on=("a", "d0")))
    assert told(made) == (Code.RESOURCE_CLAIM_GIVEN_BACK, "")


def _reported(name: str, *conditions: str, by: tuple[str, ...] = ("uid-p",)) -> Any:
    """A claim whose device has to report ``up``, and has reported these conditions."""
    written = msgspec.to_builtins(claimed(name, on=("a", "d0"), by=by))
    (result,) = written["status"]["allocation"]["devices"]["results"]
    result |= {"bindingConditions": ["up"], "bindingFailureConditions": ["bad"]}
    found = [{"type": each, "status": "True"} for each in conditions]
    written["status"]["devices"] = [{key: result[key] for key in ("driver", "pool", "device")} | {"conditions": found}]
    return msgspec.convert(written, ResourceClaim)


@pytest.mark.parametrize(
    ("conditions", "is_bound"), [((), False), (("up",), True), (("up", "bad"), False)], ids=["pending", "ready", "bad"]
)
def test_a_pod_is_bound_once_the_devices_that_are_reserved_for_it_are_ready(
    conditions: tuple[str, ...], is_bound: bool
) -> None:
    wanted = claiming("p", "c")
    made = cluster(*_NODES, GPU, offered("a"), _reported("c", *conditions), wanted)
    made.claims.note_own("uid-p", wanted.metadata.resource_version)
    assert (places(made.decide(0)) == {"p": "a"}) is is_bound
    assert is_bound or told(made) == (Code.RESOURCE_CLAIM_GIVEN_BACK, "")


@pytest.mark.parametrize(("by", "is_tried"), [((), True), (("uid-q",), False)])
def test_a_claim_whose_device_failed_is_joined_by_nobody_while_others_use_it(
    by: tuple[str, ...], is_tried: bool
) -> None:
    made = cluster(*_NODES, GPU, offered("a"), _reported("c", "bad", by=by), claiming("p", "c"))
    assert bool(chosen(made.decide(0))) is is_tried
    assert is_tried or told(made) == (Code.RESOURCE_CLAIM_FAILED, "c")


def test_claims_that_clash_are_kept_in_the_order_in_which_they_were_seen_to() -> None:
    """Events are written in this order: it may not come from hashes."""
    made = cluster(*_NODES, GPU, offered("a"), *(claimed(f"c{number}", on=("a", "d0")) for number in range(8)))
    assert list(made.claims.clashing) == ["uid-c7", *(f"uid-c{number}" for number in range(7))]


def test_pods_that_one_claim_was_reserved_for_give_it_back_in_the_order_in_which_they_came() -> None:
    pods = [f"p{number}" for number in range(8)]
    made = cluster(*_NODES, GPU, offered("a"), *(claiming(name, "c") for name in pods))
    feed(made, claimed(on=("a", "d0"), by=tuple(f"uid-{name}" for name in pods)))
    assert [pod.name for pod in made.claims.held_by_waiting()] == pods


# Of two claims it is known which was allocated first, or neither is taken for the first.


def _put(order: AllocationOrder, name: str, device: str = "d0", rv: str = "1") -> None:
    record = resource_claim_record(claimed(name, on=("a", device) if device else None, rv=rv))
    order.put(record, record.allocation.results if record.allocation is not None else ())


def _later(order: AllocationOrder) -> tuple[bool, bool]:
    """Whether x is surely later than y, and y later than x."""
    return order.is_later("uid-x", "uid-y"), order.is_later("uid-y", "uid-x")


def test_a_watch_shows_the_order_of_writes_and_later_writes_of_a_claim_change_nothing() -> None:
    order = AllocationOrder()
    for name, device, rv in (("x", "", "1"), ("y", "", "2"), ("x", "d0", "3"), ("y", "d0", "4"), ("x", "d0", "9")):
        _put(order, name, device, rv)
    assert _later(order) == (False, True)


def test_of_listed_claims_none_is_surely_later() -> None:
    order = AllocationOrder()
    with order.listing():
        _put(order, "x", rv="3")
        _put(order, "y", rv="4")
    assert _later(order) == (False, False)


def test_what_a_watch_shows_is_later_than_what_was_listed() -> None:
    order = AllocationOrder()
    with order.listing():
        _put(order, "x", rv="3")
        _put(order, "y", "", rv="3")
    _put(order, "y", rv="4")
    assert _later(order) == (False, True)


def test_a_claim_that_comes_with_an_allocation_may_have_had_it_for_long() -> None:
    order = AllocationOrder()
    with order.listing():
        _put(order, "x", rv="3")
    _put(order, "y", rv="4")
    assert _later(order) == (False, False)


def test_other_devices_are_another_allocation() -> None:
    order = AllocationOrder()
    for name, device, rv in (("x", "", "1"), ("y", "", "2"), ("x", "d0", "3"), ("y", "d0", "4"), ("x", "d1", "9")):
        _put(order, name, device, rv)
    assert _later(order) == (True, False)


@pytest.mark.parametrize("is_forgotten", [True, False])
def test_a_claim_that_is_gone_or_has_given_back_has_no_place_in_the_order(is_forgotten: bool) -> None:
    order = AllocationOrder()
    for name, device, rv in (("x", "", "1"), ("y", "", "2"), ("x", "d0", "3"), ("y", "d0", "4")):
        _put(order, name, device, rv)
    if is_forgotten:
        order.forget("uid-y")
    else:
        _put(order, "y", "", "5")
    assert _later(order) == (False, False)


def test_versions_that_are_no_numbers_have_no_order() -> None:
    order = AllocationOrder()
    for name, device, rv in (("x", "", "a"), ("y", "", "b"), ("x", "d0", "c"), ("y", "d0", "d")):
        _put(order, name, device, rv)
    assert _later(order) == (False, False)


# What another process reserved for a pod is given back at once, and then after longer and longer pauses.


def test_the_first_reservation_is_given_back_at_once_and_later_ones_after_pauses_up_to_ten_minutes() -> None:
    elsewhere = ReservedElsewhere()
    pauses = []
    for _ in range(13):
        pauses.append(elsewhere.pause_s("p"))
        elsewhere.note_given_back("p")
    assert pauses == [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600]
    assert elsewhere.pause_s("q") == 0


def test_a_pod_that_is_gone_is_forgotten() -> None:
    elsewhere = ReservedElsewhere()
    elsewhere.note_given_back("p")
    elsewhere.drop("p")
    assert elsewhere.pause_s("p") == 0


def test_a_pod_is_left_alone_until_its_pause_is_over() -> None:
    elsewhere = ReservedElsewhere()
    assert not elsewhere.is_left_alone("p")
    elsewhere.leave_alone("p")
    assert (elsewhere.is_left_alone("p"), elsewhere.is_left_alone("q")) == (True, False)
    elsewhere.end("p")
    assert not elsewhere.is_left_alone("p")


@pytest.mark.parametrize("group", ["", "g"])
def test_a_place_for_which_claims_were_prepared_is_given_to_nobody_else(group: str) -> None:
    """Also not to a pod that has its turn first, and comes while the claims are written."""
    waits = claiming("p", "c", gpus=1, group=group)
    gang = [pod_group("g", 1)] if group else []
    made = cluster(node(gpus=1), GPU, offered("n1"), claimed("c"), *gang, waits)
    reserve(made, made.decide(0))
    feed(made, pod("urgent", gpus=1, priority=50))
    assert [each.name for each in placements(made.decide(0).entries)] == ["p"]
