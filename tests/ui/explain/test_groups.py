"""What ``explain pod`` and ``explain podgroup`` print, for people and for programs."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from runtime.options.selection import GROUP, POD
from scheduler.conditions.suggestion_messages import suggestion_text
from scheduler.core.model.preemption import Action, FailedClaim, Nomination, Place, PreemptionFacts, Victim
from scheduler.core.model.settings import Settings
from scheduler.core.what_if.explanation import node_explained
from scheduler.core.what_if.group_changes import Members
from scheduler.core.what_if.known_ends import KnownEnd, Wait
from scheduler.core.what_if.node_changes import Ended
from scheduler.core.what_if.suggestions import Suggestion
from tests.scheduler.core.nodes.mounting import mounting
from tests.scheduler.core.objects import bind_request, claim, cluster, feed, node, pod, pod_group, queue, storage_class
from tests.scheduler.core.what_if.given import NO_ROOM
from ui.explain import explanation, tables
from ui.explain.tables import node_sheets, node_view
from ui.explain.views import GroupView, NominationView, PreemptionView, VictimView, suggested_to, without_others
from ui.queues.count import Known
from ui.tables import plain
from wire import names

WALL_S = 1_800_000_000
TEAM = {"kai.scheduler/queue": "team"}


def lines(made: Any, name: str = "p", *what_if: str, kind: str = POD) -> list[str]:
    """The lines that are printed."""
    known = Known(made.prepared(0))
    edits = explanation.edits(what_if)
    found = explanation.explained(known, explanation.subject(known, kind, "ns", name), edits, WALL_S)
    view = tables.group_view(found, edits)
    return [line for sheet in tables.group_sheets(view) for line in plain(sheet)]


def test_a_pod_that_fits_nowhere_has_its_verdict_its_nodes_and_what_helps() -> None:
    told = lines(cluster(node(gpus=3), node("n2", 1), pod("other", gpus=1, bound_to="n2"), pod("p", gpus=4)))
    assert told[0].startswith("Pod ns/p waits: no nodes with enough resources were found: 2 node(s) didn't have enough")
    assert told[1] == "1 pod waits in queue default-queue. The oldest pod was created at 2026-01-01T00:00:00Z."
    assert "2       node(s) didn't have enough resources: GPUs   moorage explain reason insufficient" in told
    assert 'request 3 GPUs per pod   --what-if "gpus=3"' in told


def test_a_gang_below_its_minimum_has_the_time_that_is_left_whether_members_wait_or_not() -> None:
    stamp = {names.STALE_SINCE: "2027-01-15T07:59:40Z"}
    running = [pod(f"w{number}", gpus=1, group="g", bound_to="n1") for number in range(2)]
    made = cluster(node(gpus=2), pod_group("g", 3, annotations=stamp), *running)
    assert lines(made, "g", kind=GROUP) == [
        "PodGroup ns/g does not wait. Pods of it that have a node: 2.",
        "It has been below its minimum since 2027-01-15 07:59:40Z: 2 have a node, required are 3. 40 s are left: "
        "its pods are evicted at 2027-01-15 08:00:40Z (by the default grace period, 60 s) unless it is "
        "complete by then.",
    ]
    waits = cluster(node(gpus=2), pod_group("g", 3, annotations=stamp), *running, pod("w2", gpus=1, group="g"))
    told = lines(waits, "g", kind=GROUP)
    assert told[0].startswith("PodGroup ns/g waits: ")
    assert "40 s are left" in told[1]
    assert not any("below its minimum since" in line for line in lines(waits, "g", "members=2", kind=GROUP))


def test_what_was_supposed_comes_first() -> None:
    told = lines(cluster(node(gpus=3), pod("p", gpus=4)), "p", "gpus=2")
    assert told[:2] == [
        "Suppose: request 2 GPUs per pod.",
        "Pod ns/p fits now, on node n1: the scheduler's next decision places it.",
    ]


def test_several_changes_are_supposed_together() -> None:
    made = cluster(node(gpus=3), queue("default-queue", gpu=(0, 1, 1)), pod("p", gpus=4))
    assert lines(made, "p", "gpus=2", "limit default-queue gpu=2")[1].startswith("Pod ns/p fits now")


@pytest.mark.parametrize(
    ("objects", "told"),
    [
        ((pod("p", bound_to="n1"),), "Pod ns/p does not wait. Pods of it that have a node: 1."),
        ((pod("p"), bind_request(pod("p"), "n1")), "Pod ns/p does not wait: pod p is on its way to node n1."),
        (
            (pod("p", gpus=8), pod("older", gpus=8, created="2025-01-01T00:00:00Z")),
            "Pod ns/p fits now, but other groups",
        ),
        ((pod("p", gated=True),), "Pod ns/p waits."),
    ],
)
def test_what_does_not_lack_anything_says_so(objects: tuple[Any, ...], told: str) -> None:
    assert lines(cluster(node(), *objects))[0].startswith(told)


def test_a_gang_says_how_many_it_needs() -> None:
    gang = [pod(name, gpus=2, group="g") for name in "pqr"]
    told = lines(cluster(node(gpus=4), pod_group("g", 3), *gang), "g", kind=GROUP)
    assert told[0].startswith("PodGroup ns/g waits: Resources were found for 2 pods while 3 are required for gang")
    assert told[1].startswith("3 pods wait in queue default-queue, of which 3 are required.")
    assert 'start with 2 pods (minMember: 2)   --what-if "members=2"' in told


def test_a_queue_that_is_passed_is_marked() -> None:
    told = lines(cluster(node(), queue("team", gpu=(1, 1, 2)), pod("p", gpus=4, labels=TEAM)))
    (row,) = (line.split() for line in told if line.startswith("team "))
    assert row == ["team", "gpu", "0", "4", "GPUs", "1", "2", "2", "passes", "its", "limit"]
    assert 'set the limit of queue team to 4 GPUs   --what-if "limit team gpu=4"' in told


def test_where_nothing_helps_that_is_said() -> None:
    told = lines(cluster(node(gpus=0), pod("p", gpus=1)))
    assert told[-1].startswith("No single change that was tried lets it start. Decisions tried: ")


def room(priority: int) -> Any:
    low = pod("low", gpus=1, bound_to="n1", labels=TEAM, priority=10)
    mine = pod("p", gpus=1, labels=TEAM, priority=priority)
    return cluster(queue("team", gpu=(0, 1, -1)), node(gpus=1), low, mine, settings=Settings())


def test_who_is_evicted_for_it_and_what_protects_the_others() -> None:
    assert lines(room(50))[0] == "Pod ns/p starts when 1 pod is evicted for it."
    told = lines(room(10))
    assert any(line.startswith("No pod is evicted for it: ") for line in told)
    assert "1      have the same priority or a higher one" in told


def test_a_claim_that_failed_keeps_its_pod_from_taking_from_others_and_until_when_is_told() -> None:
    made = room(50)
    feed(made, storage_class("late", "WaitForFirstConsumer", provisioner="p"))
    feed(made, claim("data", bound=False, storage_class="late"))
    feed(made, mounting("p", "data", labels=TEAM, priority=50))
    known = made.storage.claims.get(("ns", "data"))
    assert known is not None
    made.note_preemption_facts(PreemptionFacts(version=1, failed_claims={known.uid: FailedClaim(1, WALL_S)}))
    until = "2027-01-15 08:05:00Z"
    assert f"No pod is evicted for it: one of its claims could not be bound, until {until}." in lines(made)


def test_both_are_told_who_goes_for_whom_by_which_rule() -> None:
    made = cluster(node(gpus=1), pod("low", gpus=1, bound_to="n1"), pod("p", gpus=1))
    victims = (Victim(pod_uid="uid-low", namespace="ns", name="low", node="n1", owner="o"),)
    place = Place("uid-p", "n1")
    made.commits.nominations.put(
        Nomination(id="i", action=Action.PREEMPT, namespace="ns", places=(place,), victims=victims)
    )
    rule = "(preempt: its priority is lower, in the same queue), 0 of 1 are gone:"
    assert f"Evicted for it {rule}" in lines(made)
    assert f"Evicted for ns/p {rule}" in lines(made, "low")


def test_claims_that_were_not_read_are_named() -> None:
    made = cluster(node(), pod("p"))
    known = Known(made.prepared(0), mounting=frozenset({"uid-p"}))
    found = explanation.explained(known, explanation.subject(known, POD, "ns", "p"), (), WALL_S)
    assert list(explanation.not_looked_at(known, found.trying.subject, found)) == [
        "PersistentVolumeClaims of its pods, which may keep it waiting, too, or off some nodes"
    ]
    assert explanation.is_in_doubt(known, found.trying.subject, found)
    assert not explanation.is_in_doubt(Known(known.snapshot, has_doubtful_rules=True), found.trying.subject, found)


def test_a_start_that_is_in_doubt_is_no_promise() -> None:
    known = Known(cluster(node(), pod("p")).prepared(0))
    found = explanation.explained(known, explanation.subject(known, POD, "ns", "p"), (), WALL_S)
    unless = ", unless something that was not read keeps it waiting"
    sure, doubtful = tables.group_view(found), tables.group_view(found, is_in_doubt=True)
    assert doubtful.message == f"{sure.message[:-1]}{unless}."


@pytest.mark.parametrize(
    ("most", "unread"), [(0, [explanation.CUT_AT_ONCE]), (explanation.MOST_OPERATIONS_AT_ONCE, [])]
)
def test_a_search_that_was_cut_says_so(most: int, unread: list[str]) -> None:
    known = Known(cluster(node(gpus=1), pod("p", gpus=2), settings=NO_ROOM).prepared(0))
    found = explanation.explained(known, explanation.subject(known, POD, "ns", "p"), (), WALL_S, most=most)
    assert list(explanation.not_looked_at(known, found.trying.subject, found)) == unread


# What ``explain node`` prints.


def nodes_lines(*objects: Any) -> list[str]:
    found = node_explained(cluster(*objects).prepared(0), "n1", 0)
    assert found is not None
    return [line for sheet in node_sheets(node_view(found)) for line in plain(sheet)]


def test_a_node_says_what_keeps_pods_off() -> None:
    told = nodes_lines(node(gpus=1, taints=[("k", "v", "NoSchedule")]), pod("a"), pod("b"))
    assert told[:2] == ["Node n1 takes pods: 0 of 2 pods that wait would fit here alone.", "Taints: k=v:NoSchedule"]
    assert told[-1] == "2      node(s) had untolerated taint(s)   moorage explain reason taint"


def test_a_reason_with_the_same_words_is_one_line_of_a_node() -> None:
    selects = pod("p", spec={"nodeSelector": {"zone": "y"}})
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["y"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    affine = [pod(name, spec={"affinity": {"nodeAffinity": required}}) for name in "qr"]
    found = node_explained(cluster(node("n1"), selects, *affine).prepared(0), "n1", 0)
    assert found is not None
    assert [(each.message, each.pods) for each in node_view(found).reasons] == [
        ("node(s) didn't match Pod's node affinity/selector", 3)
    ]


def test_a_node_that_takes_none_says_so() -> None:
    assert nodes_lines(node(cordoned=True)) == ["Node n1 is cordoned. No pod waits."]
    assert nodes_lines(node(ready=False), pod("a"))[0].startswith("Node n1 is not ready: 0 of 1")


def test_pods_that_fit_alone_wait_for_something_else() -> None:
    assert nodes_lines(node(), pod("a"))[0].endswith("; their queue, their gang or other pods keep them waiting.")


# Who may not list all pods learns how many pods of others are concerned, and not which.

OURS = VictimView(namespace="ns", name="ours", node="n1")
THEIRS = VictimView(namespace="secret", name="theirs", node="n1")
VIEW = GroupView(
    kind="Pod",
    namespace="ns",
    name="p",
    queue="q",
    verdict="NoNodeFits",
    message="it waits",
    starts=False,
    preemption=PreemptionView(is_possible=True, message="Pods that may be evicted for it: 2", victims=(OURS, THEIRS)),
    evictions=(
        NominationView(
            rule="reclaim",
            message="Evicted for secret/theirs (reclaim), 0 of 2 are gone",
            is_for_this=False,
            for_group="secret/theirs",
            victims=(OURS, THEIRS),
        ),
    ),
)


def test_pods_of_others_are_counted_and_not_named() -> None:
    seen = without_others(VIEW)
    assert b"theirs" not in msgspec.json.encode(seen)
    assert seen.preemption is not None
    assert seen.preemption.victims == (OURS,)
    assert seen.preemption.message == "Pods that may be evicted for it: 2"
    assert seen.evictions[0].message == "Evicted for another group (reclaim), 0 of 2 are gone"
    assert seen.evictions[0].victims == (OURS,)


def test_changes_that_end_pods_of_others_are_left_out_and_ends_are_not_named() -> None:
    end = KnownEnd(namespace="secret", name="theirs", at_s=1_800_000_000, by="deadline")
    helps = [
        Suggestion((Wait(until_s=1_800_000_000, uids=("u",), ends=(end,)),)),
        Suggestion((Members(1),)),
        Suggestion((Ended("theirs", "secret"),)),
        Suggestion((Ended("ours"),)),
    ]
    said = [suggestion_text(each) for each in suggested_to("ns", helps)]
    assert said == [
        "wait until 2027-01-15 08:00:00Z, if nothing else changes",
        "start with 1 pod (minMember: 1)",
        "end ours",
    ]
