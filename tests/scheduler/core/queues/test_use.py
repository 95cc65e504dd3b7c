from __future__ import annotations

import msgspec
import pytest

from gpu.bind_request import PlannedDevice
from gpu.book import Entry
from gpu.request import FractionAsk
from scheduler.core.cluster import Cluster
from scheduler.core.convert.nodes import node_record
from scheduler.core.convert.pods import pod_record
from scheduler.core.model.quota import Resources
from scheduler.core.model.records import NodeRecord, PodGroupRecord, PodRecord
from scheduler.core.model.settings import Settings
from scheduler.core.queues import use
from scheduler.core.queues.queues import VanishedRows
from scheduler.core.queues.tree import QueueSums, Row, Stage
from sharing.entries import LEARNS_S, LONGEST_SILENCE_S, VANISHED_MARGIN_S, Evidence, Judgement, judge
from tests.scheduler.core.model.test_records import HALF, TENTH, said
from tests.scheduler.core.objects import NANO, bound, cluster, ended, feed, node, pod, queue, recorded, reservation
from tests.sharing.made import bound as made_bound
from wire import names
from wire.core import Pod


def read(obj: Pod) -> PodRecord:
    record = pod_record(obj, Settings())
    assert record is not None
    return record


def card(mem_mib: int) -> NodeRecord:
    return node_record(node(mem_mib=mem_mib))


@pytest.mark.parametrize(
    ("obj", "card_mib", "expected"),
    [
        (pod(cpu="1500m", memory="500M"), 0, Resources(1500, 500_000_000, 0)),
        (pod(gpus=2), 0, Resources(gpu_nano=2 * NANO)),
        (pod(fraction="0.25"), 0, Resources(gpu_nano=NANO // 4)),
        (pod(fraction="0.25", devices=3), 0, Resources(gpu_nano=3 * NANO // 4)),
        (pod(mem=10_000), 40_000, Resources(gpu_nano=NANO // 4)),
        (pod(mem=10_000), 0, Resources(gpu_nano=NANO)),
        (pod(extended={"nvidia.com/mig-3g.20gb": "2"}), 0, Resources(gpu_nano=6 * NANO)),
        (pod(extended={"nvidia.com/mig-1c.2g.10gb": "1"}), 0, Resources(gpu_nano=2 * NANO)),
        (recorded(said((FractionAsk(NANO // 2, profile="3g.40gb"),))), 0, Resources(gpu_nano=3 * NANO // 2)),
        (pod(extended={"rdma/hca": "4"}), 0, Resources()),
    ],
    ids=[
        "cpu and memory",
        "whole",
        "part",
        "parts",
        "memory",
        "unknown card",
        "slices",
        "compute slices",
        "part of a slice",
        "other",
    ],
)
def test_a_pod_counts_for_what_it_asks(obj: Pod, card_mib: int, expected: Resources) -> None:
    assert use.asked(read(obj).cls, card_mib) == expected


def test_a_pod_that_runs_counts_for_what_it_was_given() -> None:
    runs = bound(pod(fraction="0.25", cpu="1"), "n1", ("g", 300_000_000))
    assert use.held(read(runs), card(0)) == Resources(1000, 0, 300_000_000)


def test_a_pod_without_a_grant_counts_for_what_it_asks_of_its_nodes_card() -> None:
    runs = bound(pod(mem=10_000), "n1", ("g", 0), with_grant=False)
    assert use.held(read(runs), card(40_000)) == Resources(gpu_nano=NANO // 4)
    assert use.held(read(runs), None) == Resources(gpu_nano=NANO)


@pytest.mark.parametrize(("groups", "nano"), [("g", HALF), ("gh", HALF + TENTH), ("ghi", HALF + 2 * TENTH)])
def test_asks_that_differ_stand_for_the_groups_of_a_pod_without_a_grant_in_their_order(groups: str, nano: int) -> None:
    asks = recorded(said((FractionAsk(HALF), FractionAsk(TENTH))))
    runs = bound(asks, "n1", *((group, 1) for group in groups), with_grant=False)
    assert use.held(read(runs), card(0)) == Resources(gpu_nano=nano)


def test_a_part_of_a_slice_counts_as_a_part_of_its_compute_slices() -> None:
    devices = [PlannedDevice("g", NANO // 2, resource="nvidia.com/mig-3g.20gb"), PlannedDevice("h", NANO // 4)]
    assert use.planned(read(pod(cpu="1")).cls.demand, devices) == Resources(1000, 0, 1_750_000_000)


def test_the_least_is_what_the_largest_card_would_cost() -> None:
    assert use.least(read(pod(mem=10_000)).cls, 80_000) == Resources(gpu_nano=NANO // 8)


@pytest.mark.parametrize(
    ("priority", "said", "of_group", "expected"),
    [
        (99, None, None, False),
        (100, None, None, True),
        (0, False, None, True),
        (200, True, None, False),
        (0, None, PodGroupRecord(namespace="", name="", uid="", rv="", minimum=1, is_preemptible=False), True),
        (200, False, PodGroupRecord(namespace="", name="", uid="", rv="", minimum=1, is_preemptible=True), False),
        (200, True, PodGroupRecord(namespace="", name="", uid="", rv="", minimum=1), True),
    ],
)
def test_who_cannot_be_preempted(
    priority: int, said: bool | None, of_group: PodGroupRecord | None, expected: bool
) -> None:
    labels = {} if said is None else {"kai.scheduler/preemptibility": "preemptible" if said else "non-preemptible"}
    assert use.is_fixed(read(pod(priority=priority, labels=labels)), of_group) is expected


def test_a_node_adds_what_it_has_while_it_is_ready() -> None:
    made = node(gpus=8, cpu="64", memory="1Gi", extended={"nvidia.com/mig-2g.10gb": "3"})
    assert use.allocatable(node_record(made)) == Resources(64_000, 2**30, 14 * NANO)
    assert use.allocatable(node_record(node(ready=False))) == Resources()


S = 1_000_000_000
#: How long a pod with this grace period counts after it has vanished.
GRACE_S = 600
WAIT_S = LEARNS_S + GRACE_S + VANISHED_MARGIN_S

ROW = Row("a", Resources(gpu_nano=NANO), Stage.HELD)


def runs(name: str = "p", *, grace_s: int = GRACE_S, gpus: int = 1, team: str = "a") -> Pod:
    asks = pod(name, gpus=gpus, labels={names.QUEUE_LABEL: team}, spec={"terminationGracePeriodSeconds": grace_s})
    return bound(asks, "n1")


def held(sums: QueueSums, queue: str = "a") -> int:
    return sums.sums[queue].held.gpu_nano // NANO if queue in sums.sums else 0


class Rows:
    """Sums of pods that vanish from n1, whose node is ready, not ready, or gone."""

    def __init__(self, *, most: int = 1000) -> None:
        self.sums = QueueSums()
        self.rows = VanishedRows(self.sums.put, most=most)
        self.is_ready: bool | None = True

    def vanish(self, name: str, *, grace_s: int = GRACE_S, row: Row | None = ROW) -> None:
        record = read(bound(pod(name, spec={"terminationGracePeriodSeconds": grace_s}), "n1"))
        self.rows.see(record, row)

    def at(self, now_s: int) -> int:
        """How many GPUs are counted at a time."""
        made = cluster(*([] if self.is_ready is None else [node("n1", ready=self.is_ready)]))
        self.rows.expire(now_s * S, made.node)
        return held(self.sums)


def test_a_pod_counts_for_its_grace_period_after_its_kubelet_has_learned_of_it() -> None:
    it = Rows()
    it.vanish("p")
    assert [it.at(now_s) for now_s in (0, WAIT_S - 1, WAIT_S)] == [1, 1, 0]
    assert (len(it.rows), it.rows.next_ns, it.sums.sums) == (0, None, {})


def test_each_has_its_own_grace_period() -> None:
    it = Rows()
    it.vanish("p")
    it.vanish("q", grace_s=2 * GRACE_S)
    assert it.at(0) == 2
    assert it.rows.next_ns == WAIT_S * S
    assert it.at(WAIT_S) == 1
    assert it.rows.next_ns == (WAIT_S + GRACE_S) * S


def test_the_wait_begins_again_when_its_node_has_not_been_ready() -> None:
    it = Rows()
    it.vanish("p")
    assert it.at(0) == 1
    it.is_ready = False
    assert it.at(100) == 1
    assert it.rows.next_ns == (LONGEST_SILENCE_S + WAIT_S) * S
    it.is_ready = True
    assert [it.at(now_s) for now_s in (WAIT_S, 2 * WAIT_S - 1, 2 * WAIT_S)] == [1, 1, 0]


def test_a_node_that_is_silent_for_long_frees_its_pods() -> None:
    it = Rows()
    it.is_ready = False
    it.vanish("p")
    until_s = LONGEST_SILENCE_S + WAIT_S
    assert [it.at(now_s) for now_s in (5, 4 + until_s, 5 + until_s)] == [1, 1, 0]


@pytest.mark.parametrize("back_s", [None, 60, LONGEST_SILENCE_S, LONGEST_SILENCE_S + 60])
def test_a_pod_counts_for_as_long_as_its_share_is_kept(back_s: int | None) -> None:
    """Its node is away from the start, for a while or for good."""
    it, day_s = Rows(), 86_400
    it.is_ready = False
    it.vanish("p", grace_s=day_s)
    entry = Entry(NANO, "attempt", "1", day_s, "team/p")
    counted, kept = list[int](), list[bool]()
    times = [0, 61, *range(3_661, 7_200, 400), *range(day_s + 1, day_s + 7_200, 30)]
    for now_s in times:
        it.is_ready = back_s is not None and now_s >= back_s
        counted.append(it.at(now_s))
        heard_for_s = 0.0 if back_s is None else max(0.0, now_s - back_s)
        seen = Evidence(
            group="g",
            pod=None,
            last=made_bound(grace_s=day_s),
            gone_for_s=now_s,
            heard_for_s=heard_for_s,
            has_request=False,
            seen_for_s=0.0,
        )
        kept.append(judge(entry, seen) is Judgement.WAIT)
    assert [bool(each) for each in counted] == kept
    assert 1 < sum(counted) < len(times)


def test_a_node_that_is_gone_frees_its_pods() -> None:
    it = Rows()
    it.vanish("p")
    it.is_ready = None
    assert it.at(1) == 0


@pytest.mark.parametrize("row", [None, Row("a", Resources(), Stage.HELD)], ids=["counts nowhere", "asks for nothing"])
def test_a_pod_that_counted_for_nothing_is_not_kept(row: Row | None) -> None:
    it = Rows()
    it.vanish("p", row=row)
    assert len(it.rows) == 0


def test_one_namespace_fills_its_share_and_counts_as_much() -> None:
    it = Rows(most=3)
    for number in range(10):
        it.vanish(f"p{number}", grace_s=GRACE_S * (number < 9))
    assert (len(it.rows), it.at(0)) == (4, 10)
    assert it.at(WAIT_S - 1) == 10
    assert it.at(WAIT_S) == 0


def test_a_pod_that_is_deleted_by_force_counts_against_the_limit_until_it_has_ended() -> None:
    """The limit is one GPU: without this a tenant takes another one with each pod that it deletes."""
    made = cluster(node("n1", 8), queue("a", gpu=(0, 1, 1)), runs("r"))
    feed(made, pod("p", gpus=1, labels={names.QUEUE_LABEL: "a"}))
    made.remove_pod("uid-r")
    plan = made.decide(S)
    assert not [entry for entry in plan.entries if hasattr(entry, "placement")]
    assert made.validate() == []
    assert plan.wake_at_ns == (1 + WAIT_S) * S
    plan = made.decide((1 + WAIT_S) * S)
    assert [entry.placement.name for entry in plan.entries if hasattr(entry, "placement")] == ["p"]
    assert made.validate() == []


def test_a_pod_whose_end_was_seen_counts_no_more() -> None:
    made = cluster(node("n1", 8), queue("a", gpu=(0, 1, 1)), runs("r"))
    feed(made, ended(runs("r")))
    made.remove_pod("uid-r")
    made.count_queues()
    assert held(made.queues.sums) == 0


# --- what the node can hold --------------------------------------------------------------------------------------
ENDLESS_S = 1_000_000_000


def _vanish(made: Cluster, *objs: Pod) -> None:
    for obj in objs:
        feed(made, obj)
        made.remove_pod(obj.metadata.uid)


def _held(made: Cluster, *queues: str) -> list[int]:
    assert made.validate() == []
    return [held(made.queues.sums, name) for name in queues or ("a",)]


def test_pods_of_one_node_count_as_no_more_than_it_has() -> None:
    """A tenant who creates and deletes one pod again and again fills no limit beyond what may really run."""
    made = cluster(node("n1", 1), queue("dept", gpu=(4, 1, 4)), queue("a", "dept"), queue("b", "dept", gpu=(4, 1, -1)))
    _vanish(made, *(runs(f"m{number}", grace_s=ENDLESS_S) for number in range(4)))
    assert _held(made) == [1]
    feed(made, pod("honest", gpus=1, labels={names.QUEUE_LABEL: "b"}))
    assert [entry.placement.name for entry in made.decide(S).entries if hasattr(entry, "placement")] == ["honest"]


def test_beside_a_live_pod_less_counts_and_without_it_all_again() -> None:
    made = cluster(node("n1", 4), queue("a"), queue("b"))
    _vanish(made, *(runs(f"m{number}", grace_s=ENDLESS_S) for number in range(3)))
    assert _held(made, "a", "b") == [3, 0]
    live = bound(pod("live", gpus=2, labels={names.QUEUE_LABEL: "b"}), "n1")
    feed(made, live)
    assert _held(made, "a", "b") == [2, 2]
    feed(made, ended(live))
    assert _held(made, "a", "b") == [3, 0]


def test_those_that_vanished_last_count_first_and_the_others_when_they_end() -> None:
    made = cluster(node("n1", 1), queue("a"), queue("b"))
    _vanish(made, runs("first", grace_s=ENDLESS_S), runs("last", team="b"))
    assert _held(made, "a", "b") == [0, 1]
    made.expire_vanished(0)
    made.expire_vanished(WAIT_S * S)
    assert _held(made, "a", "b") == [1, 0]


def test_a_node_that_is_not_ready_holds_what_it_held() -> None:
    made = cluster(node("n1", 2, ready=False), queue("a"))
    _vanish(made, *(runs(f"m{number}") for number in range(3)))
    assert _held(made) == [2]


def test_a_kept_share_counts_beside_the_reservation_that_keeps_it() -> None:
    made = cluster(node("n1", 1), queue("a"))
    labels, spec = {names.QUEUE_LABEL: "a"}, {"terminationGracePeriodSeconds": ENDLESS_S}
    shares = [
        bound(pod(name, fraction="0.5", labels=labels, spec=spec), "n1", ("g", NANO // 2), reservation="r")
        for name in ("p", "q")
    ]
    feed(made, reservation("g", "n1", book={"uid-p": NANO // 2, "uid-q": NANO // 2}), *shares)
    for each in shares:
        made.remove_pod(each.metadata.uid)
    assert _held(made) == [1]


def test_gpus_by_claims_count_where_the_node_has_none_of_its_own() -> None:
    """Nobody else gets such a device as long: so it is there once."""
    made = cluster(node("n1", 0), queue("a"))
    written = msgspec.to_builtins(runs())
    mapping = {"containerName": "main", "resourceName": names.GPU_RESOURCE, "requestName": "gpu"}
    written["status"]["extendedResourceClaimStatus"] = {"resourceClaimName": "c", "requestMappings": [mapping]}
    _vanish(made, msgspec.convert(written, Pod))
    assert _held(made) == [1]
