"""S6: what is bound beyond a limit is found, whoever bound it; what was bound before the limit came is not."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import pytest

from scheduler.conditions.messages import told
from scheduler.core.model.verdict import Code, QueueCause, Verdict
from simulator.checks import queues
from simulator.checks.checker import BIND_REQUESTS, POD_GROUPS, PODS, QUEUES
from simulator.checks.limits import Lateness
from simulator.checks.queues import QueueTree
from tests.simulator.checks.claim_stories import ClaimStory
from tests.simulator.made_up import Story, pod

FREE = {"limit": -1}


def queue(name: str, parent: str = "", **gpu: float) -> dict[str, Any]:
    """A queue that limits GPUs only."""
    resources = {"cpu": FREE, "memory": FREE, "gpu": {"limit": -1, **gpu}}
    return {"metadata": {"name": name, "uid": f"q-{name}"}, "spec": {"parentQueue": parent, "resources": resources}}


def of(team: str, name: str, *, gpus: int = 1, nano: int = 0, priority: int = 50, **more: Any) -> dict[str, Any]:
    """A pod of a team, bound: of whole GPUs, or of a part of one."""
    limits = {} if nano else {"nvidia.com/gpu": str(gpus)}
    grant = {"devices": [{"group": "g", "reservation": "r", "uuid": "GPU-a", "nano": nano}]} if nano else {}
    made = pod(
        name,
        labels={"kai.scheduler/queue": team, **more.pop("labels", {})},
        annotations={"moorage.dev/grant": json.dumps(grant), **more.pop("annotations", {})},
        containers=[{"name": "main", "resources": {"limits": limits}}],
        **more,
    )
    made["spec"]["priority"] = priority
    return made


def found(story: Story) -> list[str]:
    """What was found of S6."""
    return [each.text for each in story.checker.findings.found.values() if each.invariant == "S6"]


def story(*objects: dict[str, Any], lag_s: float = 0.0) -> Story:
    """Queues first, then pods, each bound when it comes."""
    made = Story(lateness=Lateness(lag_s))
    for each in objects:
        made.sees(each, kind=QUEUES if each["metadata"]["uid"].startswith("q-") else PODS)
    return made


def test_a_gpu_beyond_the_limit_is_found() -> None:
    told = story(queue("a", limit=1), of("a", "p"), of("a", "q"))
    assert found(told) == ["queue a uses 2 gpu of a limit of 1 with pod team/q"]


def test_three_tenths_of_a_gpu_are_exactly_three_tenths() -> None:
    shares = [of("a", f"p{i}", nano=100_000_000) for i in range(4)]
    assert found(story(queue("a", limit=0.3), *shares[:3])) == []
    assert len(found(story(queue("a", limit=0.3), *shares))) == 1


def _shares_by_claims(*, gib: int) -> Story:
    """Two shares of 1 GiB of one device of this memory, where the node has no GPUs of a device plugin."""
    told = story(queue("a", limit=0.1))
    claims = ClaimStory()
    claims.claims = told.checker.claims
    claims.offers("node-1", "d0", parts_gib=gib)
    for name in ("p", "q"):
        claims.claim(f"of-{name}", "d0", node="node-1", part_gib=1, by=name, owner=name)
        made = pod(name, node="node-1", labels={"kai.scheduler/queue": "a"}, annotations={"gpu-memory": "1024"})
        mapping = {"containerName": "main", "resourceName": "moorage.dev/gpu-share", "requestName": "r"}
        named = {"resourceClaimName": f"of-{name}", "requestMappings": [mapping]}
        told.sees({**made, "status": {**made["status"], "extendedResourceClaimStatus": named}})
    return told


def test_memory_that_a_claim_gives_counts_on_the_device_that_it_is_of() -> None:
    assert found(_shares_by_claims(gib=20)) == []
    assert found(_shares_by_claims(gib=16)) == ["queue a uses 0.125 gpu of a limit of 0.1 with pod team/q"]


def test_a_department_is_judged_by_all_its_teams() -> None:
    tree = (queue("dept", limit=1), queue("a", "dept"), queue("b", "dept"))
    assert found(story(*tree, of("a", "p"), of("b", "q"))) == ["queue dept uses 2 gpu of a limit of 1 with pod team/q"]


def test_a_terminating_pod_counts_until_it_is_gone() -> None:
    leaving = of("a", "p", metadata={"deletionTimestamp": "now"})
    told = story(queue("a", limit=1), leaving)
    assert found(told.sees(leaving, event="DELETED").sees(of("a", "q"))) == []
    assert len(found(story(queue("a", limit=1), leaving, of("a", "q")))) == 1


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_had_ended_and_runs_again_was_decided_on_by_nobody(phase: str) -> None:
    """As in a restored etcd, of which pods are seen one after another: those that had come since are there still."""
    ended = of("a", "p", phase=phase)
    told = story(queue("a", limit=1), of("a", "p"), ended, of("a", "q"))
    assert found(told.sees(of("a", "p", phase="Running"))) == []
    assert len(found(told.after(400).sees(of("a", "r")))) == 1


@pytest.mark.parametrize(
    ("more", "is_found"),
    [
        ({"priority": 100}, True),
        ({"priority": 99}, False),
        ({"labels": {"kai.scheduler/preemptibility": "non-preemptible"}}, True),
        ({"priority": 100, "labels": {"kai.scheduler/preemptibility": "preemptible"}}, False),
    ],
)
def test_what_can_not_be_preempted_stays_within_the_quota(more: dict[str, Any], is_found: bool) -> None:
    told = found(story(queue("a", quota=1), of("a", "p", priority=100), of("a", "q", **more)))
    assert told == (["queue a uses 2 gpu of a quota of 1 with pod team/q"] if is_found else [])


def group(queue: str, name: str = "g", **metadata: Any) -> dict[str, Any]:
    metadata = {"namespace": "team", "name": name, "uid": name, **metadata}
    return {"metadata": metadata, "spec": {"minMember": 1, "queue": queue}}


def test_the_queue_of_a_gang_is_its_pod_groups() -> None:
    told = Story().sees(queue("a", limit=0), kind=QUEUES).sees(queue("b"), kind=QUEUES)
    told.sees(group("b"), kind=POD_GROUPS)
    assert found(told.sees(of("a", "p", annotations={"pod-group-name": "g"}))) == []
    told.sees(group("a"), kind=POD_GROUPS).after(1)
    assert len(found(told.sees(of("b", "q", annotations={"pod-group-name": "g"})))) == 1


def test_what_runs_when_a_limit_comes_down_is_no_violation_and_what_starts_then_is() -> None:
    told = story(queue("a"), of("a", "p"), of("a", "q")).sees(queue("a", limit=1), kind=QUEUES).after(1)
    assert found(told.sees(of("a", "p", phase="Running"))) == []
    assert len(found(told.sees(of("a", "r")))) == 1


def test_what_runs_when_its_queue_is_moved_below_a_full_one_is_no_violation_and_what_starts_then_is() -> None:
    told = story(queue("dept", limit=1), queue("b", "dept"), queue("a"), of("a", "p"), of("a", "q"))
    told.sees(queue("a", "dept"), kind=QUEUES).after(1)
    assert found(told.sees(of("a", "q", phase="Running"))) == []
    assert found(told.sees(of("b", "r"))) == ["queue dept uses 3 gpu of a limit of 1 with pod team/r"]


def test_pods_that_are_moved_into_a_queue_pass_its_limit_and_what_starts_then_does_not() -> None:
    told = story(queue("a", limit=1), queue("b"), of("a", "p"), of("b", "q")).sees(of("a", "q")).after(1)
    assert found(told.sees(of("a", "p", phase="Running"))) == []
    assert found(told.sees(of("a", "r"))) == ["queue a uses 3 gpu of a limit of 1 with pod team/r"]


def test_a_pod_that_names_its_node_itself_was_not_bound_by_us_and_what_starts_then_is() -> None:
    told = story(queue("a", limit=1)).sees(of("a", "p"), by_hand=True).sees(of("a", "q"), by_hand=True).after(1)
    assert found(told) == []
    assert len(found(told.sees(of("a", "r")))) == 1


def test_a_bound_pod_that_comes_to_use_more_is_found() -> None:
    told = story(queue("a", limit=0.5), of("a", "p", nano=500_000_000))
    assert found(told) == []
    assert len(found(told.after(1).sees(of("a", "p", nano=600_000_000)))) == 1


def test_slices_count_as_what_they_have_of_the_compute() -> None:
    slices = {"name": "main", "resources": {"limits": {"nvidia.com/mig-3g.20gb": "1"}}}
    made = of("a", "p", gpus=0)
    made["spec"]["containers"] = [slices]
    assert found(story(queue("a", limit=2), made)) == ["queue a uses 3 gpu of a limit of 2 with pod team/p"]


def test_what_any_version_of_the_queues_permits_that_may_have_been_known_is_permitted() -> None:
    told = story(queue("a", limit=1), lag_s=10).sees(of("b", "before"), by_hand=True)
    told.sees(queue("a", limit=0), kind=QUEUES).after(9)
    assert found(told.sees(of("a", "p"))) == []
    told.after(9)
    assert len(found(told.sees(of("a", "q")))) == 1


def test_in_spans_in_which_events_are_late_earlier_versions_count_for_longer() -> None:
    told = Story(lateness=Lateness(1, 100, ((20, 30),))).sees(queue("a", limit=1), kind=QUEUES).after(5)
    told.sees(queue("a", limit=0), kind=QUEUES).after(20)
    assert found(told.sees(of("a", "p"))) == []
    assert len(found(told.after(10).sees(of("a", "q")))) == 1


def test_what_was_decided_before_a_limit_came_down_may_be_bound_after_it() -> None:
    def request(name: str) -> dict[str, Any]:
        return {"metadata": {"namespace": "team", "name": name, "uid": f"r-{name}"}, "spec": {"podName": name}}

    told = story(queue("a", limit=2), of("a", "o")).sees(request("p"), kind=BIND_REQUESTS, event="ADDED").after(5)
    told.sees(queue("a", limit=1), kind=QUEUES).after(5)
    assert found(told.sees(of("a", "p"))) == []
    told.sees(request("q"), kind=BIND_REQUESTS, event="ADDED").after(5)
    assert len(found(told.sees(of("a", "q")))) == 1


def test_a_plan_is_when_its_gang_was_decided() -> None:
    told = story(queue("a", limit=2), of("a", "o"))
    planned = group("a", annotations={"moorage.dev/plan": "{}"})
    told.sees(group("a"), kind=POD_GROUPS).after(5).sees(planned, kind=POD_GROUPS).after(5)
    told.sees(queue("a", limit=1), kind=QUEUES).after(5)
    assert found(told.sees(of("a", "p", annotations={"pod-group-name": "g"}))) == []
    told.sees(group("a"), kind=POD_GROUPS).sees(planned, kind=POD_GROUPS).after(5)
    assert len(found(told.sees(of("a", "q", annotations={"pod-group-name": "g"})))) == 1


def test_what_a_pod_waits_for_may_be_its_queue() -> None:
    told = story(queue("a", limit=2), of("a", "p"), queue("b", limit=1), queue("c", "nowhere"))
    limits = told.checker.limits

    def may_hold(team: str, gpus: int, **more: Any) -> bool:
        waiting = of(team, f"w-{team}-{gpus}", gpus=gpus)
        waiting["spec"]["nodeName"] = ""
        told.checker.observed(PODS, "ADDED", waiting, told.now_s)
        return limits.may_hold(told.checker.live[waiting["metadata"]["uid"]], **more)

    assert [may_hold(*each) for each in [("a", 1), ("a", 2), ("b", 1), ("b", 2), ("c", 1), ("d", 1)]] == [
        False, True, False, True, True, True,
    ]  # fmt: skip
    assert not may_hold("a", 2, without=told.checker.live["uid-p"])
    assert may_hold("b", 2, without=told.checker.live["uid-p"])


@pytest.mark.parametrize("amount", [-2, 1e300, float("nan")])
@pytest.mark.parametrize("field", ["quota", "limit", "overQuotaWeight"])
def test_nothing_is_bound_in_a_queue_with_an_amount_without_meaning(field: str, amount: float) -> None:
    (told,) = found(story(queue("a", "", **{field: amount}), of("a", "p")))
    assert str(amount) in told


@pytest.mark.parametrize(
    "queues",
    [[queue("a", "gone")], [queue("a", "b"), queue("b", "a")], [queue("a"), queue("b", "a")]],
    ids=["no parent", "a cycle", "no leaf"],
)
def test_nothing_is_bound_in_a_queue_that_can_not_be_used(queues: list[dict[str, Any]]) -> None:
    assert len(found(story(*queues, of("a", "p")))) == 1


def granted(team: str, name: str, *, to: str, is_preemptible: bool = True, **more: Any) -> dict[str, Any]:
    """A pod of a team that a Binding of ours gave to a queue."""
    pool = {"pool": more.pop("pool")} if "pool" in more else {}
    charged = json.dumps({"queue": to, "preemptible": is_preemptible, **pool})
    annotations = {"moorage.dev/charged": charged, "received-resource-type": "Regular", **more.pop("annotations", {})}
    return of(team, name, annotations=annotations, **more)


def test_a_pod_that_runs_counts_in_the_queue_that_it_was_placed_for() -> None:
    told = story(queue("a", limit=1), queue("b", limit=1), granted("a", "p", to="a"))
    told.sees(granted("b", "p", to="a")).after(400)
    assert found(told.sees(granted("b", "q", to="b"))) == []
    assert found(told.sees(granted("a", "r", to="a"))) == ["queue a uses 2 gpu of a limit of 1 with pod team/r"]


def test_a_podgroup_that_is_changed_under_its_pods_moves_none_of_them() -> None:
    group = {"metadata": {"namespace": "team", "name": "g", "uid": "g"}, "spec": {"queue": "a"}}
    told = story(queue("a", limit=1), queue("b", limit=1)).sees(group, kind=POD_GROUPS)
    told.sees(granted("b", "p", to="a", annotations={"pod-group-name": "g"}))
    told.sees({**group, "spec": {"queue": "b"}}, kind=POD_GROUPS).after(400)
    told.sees(group, kind=POD_GROUPS, event="DELETED").after(400)
    assert found(told.sees(granted("b", "q", to="b"))) == []
    assert found(told.sees(granted("a", "r", to="a"))) == ["queue a uses 2 gpu of a limit of 1 with pod team/r"]


@pytest.mark.parametrize(
    ("bound", "text"),
    [
        (granted("a", "p", to="b"), "was bound to count as"),
        (granted("a", "p", to="a", is_preemptible=False), "was bound to count as"),
        (of("a", "p", annotations={"received-resource-type": "Regular"}), "nothing says what it counts for"),
        (granted("a", "p", to="a"), ""),
        (granted("a", "p", to="a", pool=""), ""),
        (granted("a", "p", to="a", pool="x"), "was bound to count as"),
    ],
    ids=["another queue", "not preemptible", "nothing", "as it is due", "the default node pool", "another node pool"],
)
def test_a_binding_says_what_its_pod_is_due_to_count_for(bound: dict[str, Any], text: str) -> None:
    told = found(story(queue("a", quota=1), queue("b", quota=1), bound))
    assert len(told) == bool(text)
    assert all(text in each for each in told)


def test_what_changed_since_the_decision_may_be_what_the_pod_was_decided_on() -> None:
    before = {**of("a", "p"), "spec": {**of("a", "p")["spec"], "nodeName": ""}}
    moved = {**of("b", "p"), "spec": before["spec"]}
    request = {"metadata": {"namespace": "team", "name": "p", "uid": "r"}, "spec": {"podName": "p"}}
    told = story(queue("a"), queue("b")).sees(before).after(10).sees(request, kind=BIND_REQUESTS, event="ADDED")
    told.after(1).sees(moved)
    assert found(told.after(1).sees(granted("b", "p", to="a"))) == []


def test_a_pod_that_vanished_may_be_why_another_one_waits() -> None:
    waits = {**of("a", "q"), "spec": {**of("a", "q")["spec"], "nodeName": ""}}
    told = story(queue("a", limit=1), of("a", "p"), waits)
    limits, pod_waits = told.checker.limits, told.checker.live["uid-q"]
    assert limits.may_hold(pod_waits)
    told.sees(of("a", "p"), event="DELETED")
    assert limits.may_hold(pod_waits)
    ended = story(queue("a", limit=1), of("a", "p"), waits, of("a", "p", phase="Succeeded"))
    ended.sees(of("a", "p", phase="Succeeded"), event="DELETED")
    assert not ended.checker.limits.may_hold(ended.checker.live["uid-q"])


# L3 of queues: pods say what their queue has, and which link of the tree is broken; anything else is found.

TREE = QueueTree({
    each["metadata"]["name"]: each["spec"]
    for each in (queue("dept", limit=0.3333333333), queue("a", "dept", quota=1), queue("b", "gone"))
})  # fmt: skip
#: What pods of each queue and those below it use; half of it can't be preempted.
USED = {"dept": Fraction("0.3"), "a": Fraction(1)}
NANO = 10**9


def _used(at: str, _: str, of_fixed: bool) -> tuple[Fraction, Fraction]:
    used = USED[at] / (2 if of_fixed else 1)
    return used, used


def untrue(code: Code, team: str = "a", *, name: str = "a", cause: QueueCause | None = None) -> list[str]:
    """What is found of the product's own words."""
    text = told(Verdict(code=code, detail=name, queue=cause)).message
    found = queues.untrue(text, team, TREE, _used)
    return list(found)


def amounts(at: str, most: int, held: int, asked: int, resource: str = "gpu") -> QueueCause:
    return QueueCause(at=at, resource=resource, most=most, held=held, asked=asked)


@pytest.mark.parametrize(
    ("code", "cause", "is_found"),
    [
        (Code.OVER_LIMIT, amounts("dept", 333_333_333, 3 * NANO // 10, NANO), False),
        (Code.OVER_LIMIT, amounts("dept", 333_333_334, 3 * NANO // 10, NANO), True),
        (Code.OVER_LIMIT, amounts("dept", 333_333_333, 2 * NANO // 10, NANO), True),
        (Code.OVER_LIMIT, amounts("dept", 333_333_333, 3 * NANO // 10, 33_333_333), True),
        (Code.OVER_LIMIT, amounts("a", NANO, NANO, NANO), True),
        (Code.OVER_LIMIT, amounts("b", NANO, NANO, NANO), True),
        (Code.OVER_QUOTA, amounts("a", NANO, NANO // 2, NANO), False),
        (Code.OVER_QUOTA, amounts("a", NANO, NANO, NANO), True),
        (Code.OVER_QUOTA, amounts("a", NANO, NANO // 2, NANO // 2), True),
    ],
)
def test_amounts_are_those_of_the_queue(code: Code, cause: QueueCause, is_found: bool) -> None:
    assert bool(untrue(code, cause=cause)) == is_found


@pytest.mark.parametrize(
    ("code", "team", "name", "is_found"),
    [
        (Code.QUEUE_NOT_FOUND, "nobodys", "nobodys", False),
        (Code.QUEUE_NOT_FOUND, "a", "a", True),
        (Code.QUEUE_NOT_FOUND, "b", "nobodys", True),
        (Code.QUEUE_NOT_LEAF, "dept", "dept", False),
        (Code.QUEUE_NOT_LEAF, "a", "a", True),
        (Code.QUEUE_PARENT_NOT_FOUND, "b", "b", False),
        (Code.QUEUE_CYCLE, "a", "a", True),
        (Code.QUEUE_CLOSED, "a", "a", True),
        (Code.NO_NODE_FITS, "a", "a", False),
    ],
)
def test_a_queue_that_can_not_be_used_is_one(code: Code, team: str, name: str, is_found: bool) -> None:
    assert bool(untrue(code, team, name=name, cause=QueueCause(at="gone"))) == is_found


@pytest.mark.parametrize(("held", "is_found"), [(9, True), (10, False), (15, False), (20, False), (21, True)])
def test_pods_that_vanished_may_be_counted(held: int, is_found: bool) -> None:
    text = told(Verdict(code=Code.OVER_LIMIT, detail="top", queue=amounts("top", 20 * NANO, held * NANO, 15 * NANO)))
    tree = QueueTree({"top": queue("top", limit=20)["spec"]})
    said = queues.untrue(text.message, "top", tree, lambda *_: (Fraction(10), Fraction(20)))
    assert bool(list(said)) == is_found
