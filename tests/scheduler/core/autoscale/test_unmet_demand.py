"""Who wants a device: who fits nowhere for want of one, and nobody who waits for anything else."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scheduler.core.autoscale.scaling_pods import Want, pack, wants
from scheduler.core.cluster import Cluster
from scheduler.core.model.plan import Explain, Gang
from scheduler.core.model.pod_class import Demand
from tests.scheduler.core.filters.beside import HOST, affinity, anti_affinity, term
from tests.scheduler.core.objects import NANO, bound, cluster, commit, node, pod, pod_group, queue, reservation
from wire import names

TENTH = NANO // 10
SECOND = 1_000_000_000


def found(made: Cluster, *, now_ns: int = 0) -> list[Want]:
    """What is wanted after decisions until nothing more is placed."""
    while True:
        plan = made.decide(now_ns)
        if all(isinstance(entry, Explain) for entry in plan.entries):
            explained = [entry for entry in plan.entries if isinstance(entry, Explain)]
            return wants(made, explained, now_ns=now_ns, memory_to_fraction_ratio_nano=TENTH)
        commit(made, plan)
        for entry in plan.entries:
            if isinstance(entry, Gang):
                for placement in entry.placements:
                    made.commits.assume(placement)


def named(*objects: Any) -> list[str]:
    return [want.name for want in found(cluster(*objects))]


def test_a_share_that_no_device_has_room_for_wants_one_whole_device_and_all_else_that_it_takes() -> None:
    waiting = pod("p", fraction="0.7", cpu="2", memory="3Gi")
    [want] = found(cluster(node(gpus=0), waiting))
    assert (want.uid, want.namespace, want.name) == ("uid-p", "ns", "p")
    assert want.nanos == (700_000_000,)
    assert want.demand == Demand(cpu_milli=2000, mem_mib=3072, gpus=1)


def test_a_share_of_several_devices_wants_as_many_on_one_node() -> None:
    [want] = found(cluster(node(gpus=1), pod("p", fraction="0.3", devices=2)))
    assert want.nanos == (300_000_000, 300_000_000)
    assert want.demand.gpus == 2


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(pod("p", gpus=2), id="whole GPUs: autoscalers see those themselves"),
        pytest.param(pod("p", cpu="1000"), id="no GPU"),
        pytest.param(pod("p", fraction="0.5", gated=True), id="gated"),
        pytest.param(pod("p", fraction="0.5", admitted=False), id="not admitted"),
        pytest.param(pod("p", fraction="0.5", group="missing"), id="no such PodGroup"),
        pytest.param(pod("p", fraction="0.5", scheduler="other"), id="another scheduler's"),
        pytest.param(pod("p", fraction="0.5", deleting=True), id="on its way out"),
        pytest.param(pod("p", fraction="2.5"), id="can't be read"),
    ],
)
def test_nobody_else_wants_a_device(other: Any) -> None:
    assert named(node(gpus=0), other) == []


def test_a_share_that_fits_wants_nothing() -> None:
    assert named(node(gpus=1), pod("p", fraction="0.5"), pod("q", fraction="0.5")) == []


def test_a_share_for_which_its_node_is_out_for_a_while_wants_no_other() -> None:
    made = cluster(node(gpus=1), pod("p", fraction="0.5"))
    made.commits.failed("uid-p", "n1", "ReservationFailed: why", now_ns=0)
    assert found(made, now_ns=0) == []  # it backs off
    assert found(made, now_ns=2 * SECOND) == []  # its node is out for it
    made.upsert_pod(pod("taker", gpus=1, bound_to="n1"))
    assert [want.name for want in found(made, now_ns=2 * SECOND)] == ["p"]


def test_a_share_for_which_its_node_is_out_wants_nothing_either_when_others_before_it_fit_nowhere() -> None:
    small = pod("small", fraction="0.2", created="2026-01-02T00:00:00Z")
    made = cluster(node(gpus=1), bound(pod("tenant"), "n1", ("g", 7 * TENTH)), pod("big", fraction="0.5"), small)
    made.upsert_pod(reservation("g", "n1", book={"uid-tenant": 7 * TENTH}))
    made.commits.failed("uid-small", "n1", "ReservationFailed: why", now_ns=0)
    assert [want.name for want in found(made, now_ns=2 * SECOND)] == ["big"]


def test_a_share_that_waits_for_a_node_on_probation_wants_no_other() -> None:
    made = cluster(node(gpus=2), pod("first", fraction="0.7"))
    commit(made, made.decide(0))
    flight = made.commits.flight("uid-first")
    assert flight is not None
    group = flight.placement.devices[0].group
    made.upsert_pod(reservation(group, "n1", book={"uid-first": 7 * TENTH}, uuid="", uid="asked"))
    made.commits.probation.fail("n1")
    made.upsert_pod(pod("second", fraction="0.7"))
    plan = made.decide(0)
    assert [type(entry) for entry in plan.entries] == [Explain]
    assert found(made) == []


@pytest.mark.parametrize(
    ("there", "asked"),
    [
        (node(gpus=1, mem_mib=1000), {"mem": 2000}),
        (node(gpus=1), {"mem": 2000}),
        (node(gpus=2, labels={names.NODE_MIG_STRATEGY: "single"}), {"fraction": "0.5"}),
        (node(gpus=1, pods=1), {"fraction": "0.5"}),
    ],
    ids=["card too small", "card unknown", "MIG", "one slot only"],
)
def test_where_a_whole_gpu_is_free_a_scaling_pod_would_bring_no_node_so_none_is_wanted(there: Any, asked: Any) -> None:
    assert named(there, pod("p", **asked)) == []


@pytest.mark.parametrize(
    ("cards", "mem_mib", "nano"),
    [
        ([], 2000, TENTH),
        ([0], 2000, TENTH),
        ([8000], 2000, 250_000_000),
        ([3000], 2000, 666_666_666),
        ([1000, 8000, 4000], 2000, 500_000_000),
        ([1000], 2000, NANO),
    ],
)
def test_memory_is_charged_on_the_smallest_card_that_holds_it(cards: list[int], mem_mib: int, nano: int) -> None:
    nodes = [
        node(f"n{number}", 1, mem_mib=card, labels={"pool": "gpu"}, cordoned=True) for number, card in enumerate(cards)
    ]
    other = node("elsewhere", 1, mem_mib=500_000, cordoned=True)
    waiting = pod("p", mem=mem_mib, spec={"nodeSelector": {"pool": "gpu"}})
    [want] = found(cluster(*nodes, other, waiting))
    assert want.nanos == (nano,)


def test_a_gang_wants_what_its_minimum_lacks_and_what_it_would_take_is_not_there_for_others() -> None:
    gang = [pod(f"m{number}", fraction="0.6", group="gang") for number in range(5)]
    later = pod("later", fraction="0.3", created="2026-01-02T00:00:00Z")
    made = cluster(node(gpus=2), pod_group("gang", 4), *gang)
    # Two devices are there for it: what an autoscaler sees free it must not count on for the others.
    assert [(want.name, want.nanos) for want in found(made)] == [
        *(("m0", (NANO,)), ("m1", (NANO,))),
        *(("m2", (600_000_000,)), ("m3", (600_000_000,))),
    ]
    made.upsert_pod(later)
    made.upsert_pod(pod("taker", gpus=1, bound_to="n1"))
    # One device is left, and what the gang leaves of it is the later one's, who is placed at once, and opens it.
    assert [(want.name, want.nanos[0]) for want in found(made)] == [(f"m{number}", 600_000_000) for number in (1, 2, 3)]


def test_a_gang_whose_members_are_not_all_there_wants_nothing() -> None:
    assert named(node(gpus=0), pod_group("gang", 3), *(pod(f"m{n}", fraction="0.6", group="gang") for n in "ab")) == []


def test_of_a_gangs_members_those_that_fit_come_first_so_that_it_wants_as_few_devices_as_it_can() -> None:
    bigs = [pod(f"big{n}", fraction="0.9", group="gang") for n in range(2)]
    small = pod("small", fraction="0.4", group="gang", created="2026-01-02T00:00:00Z")
    made = cluster(node(gpus=1), bound(pod("tenant"), "n1", ("g", 2 * TENTH)), pod_group("gang", 2), *bigs, small)
    made.upsert_pod(reservation("g", "n1", book={"uid-tenant": 2 * TENTH}))
    assert [(want.name, want.nanos) for want in found(made)] == [("big0", (900_000_000,))]


def test_a_gang_that_can_choose_its_subgroups_wants_nothing_that_its_queue_does_not_take() -> None:
    parts = [{"name": part, "minMember": 1} for part in "abc"]
    members = [pod(part, fraction="0.6", group="gang", subgroup=part) for part in "abc"]
    gang = pod_group("gang", subGroups=parts, minSubGroup=2)
    assert named(node(gpus=0), gang, *members) == ["a", "b"]
    assert named(node(gpus=0), queue("default-queue", gpu=(0, 1, 1)), gang, *members) == []


def test_gangs_that_ask_the_same_want_their_devices_each() -> None:
    members = [pod(f"{gang}{n}", fraction="0.6", group=gang) for gang in "ab" for n in range(2)]
    assert named(node(gpus=0), pod_group("a", 2), pod_group("b", 2), *members) == ["a0", "a1", "b0", "b1"]


def test_a_gang_wants_what_the_minimums_of_its_subgroups_lack() -> None:
    parts = [{"name": "a", "minMember": 1}, {"name": "b", "minMember": 1}]
    members = [pod(f"{part}{n}", fraction="0.6", group="gang", subgroup=part) for part in "ab" for n in range(2)]
    assert named(node(gpus=0), pod_group("gang", subGroups=parts), *members) == ["a0", "b0"]


def test_shares_beyond_the_limit_of_their_queue_want_no_node() -> None:
    waiting = [pod(f"p{number}", fraction="0.6") for number in range(4)]
    assert named(node(gpus=0), queue("default-queue", gpu=(0, 1, 1.5)), *waiting) == ["p0", "p1"]


def test_a_member_that_backs_off_keeps_its_gang_from_wanting() -> None:
    made = cluster(node(gpus=0), pod_group("gang", 2), *(pod(f"m{n}", fraction="0.6", group="gang") for n in "ab"))
    assert [want.name for want in found(made)] == ["ma", "mb"]
    made.commits.failed("uid-ma", "", "why", now_ns=0)
    assert found(made) == []


def test_wanting_leaves_the_cluster_as_it_is() -> None:
    made = cluster(node(gpus=1), *(pod(f"p{number}", fraction="0.6") for number in range(3)))
    found(made)
    generation = made.generation
    found(made)
    assert made.generation == generation
    assert made.validate() == []


_ASKS = st.one_of(
    st.builds(lambda tenths, devices: {"fraction": f"0.{tenths}", "devices": devices}, *(st.integers(1, 9),) * 2),
    st.builds(lambda mem: {"mem": mem}, st.integers(1, 8000)),
    st.builds(lambda gpus: {"gpus": gpus}, st.integers(1, 2)),
)
_GROUPS = st.lists(st.tuples(st.sampled_from(["", "", "a", "b"]), st.sampled_from(["x", "y"]), _ASKS), max_size=12)


@given(st.lists(st.integers(0, 4), max_size=3), _GROUPS)
@example([1], [("", "x", {"mem": 1}), ("a", "x", {"mem": 1}), ("a", "x", {"gpus": 1})])
def test_nodes_as_they_are_asked_for_leave_nobody_wanting_and_rounds_of_them_help_somebody(
    there: list[int], asked: list[tuple[str, str, dict[str, Any]]]
) -> None:
    """An autoscaler that brings exactly a node for each scaling pod, and one for each pod of whole GPUs.

    A round may help nobody while the cards of a pool are unknown: what memory takes of them is a guess until then.
    """
    made = cluster(*(node(f"n{i}", gpus, mem_mib=8000, labels={"pool": "x"}) for i, gpus in enumerate(there)))
    for name in "ab":
        size = sum(group == name for group, _, _ in asked)
        made.upsert_pod_group(pod_group(name, size))
    pods = [
        pod(f"p{i}", group=group, spec={"nodeSelector": {"pool": pool}}, **asks)
        for i, (group, pool, asks) in enumerate(asked)
    ]
    for each in pods:
        made.upsert_pod(each)
    brought = in_vain = 0
    wanted = found(made)
    # Pods that ask for whole GPUs get their nodes without scaling pods, also where nothing else is missing.
    while wanted or any(not p.cls.request.is_shared for p in made.waiting()):
        waiting = len(made.waiting())
        blocks = pack(wanted, (), lambda _: True)
        whole = [p for p in made.waiting() if not p.cls.request.is_shared]
        for selector, gpus in (
            *((block.opener.constraints.selector, block.opener.demand.gpus) for block in blocks.values()),
            *((p.cls.constraints.selector, p.cls.demand.gpus) for p in whole),
        ):
            brought += 1
            made.upsert_node(node(f"new-{brought}", gpus, mem_mib=8000, labels=dict(selector)))
        wanted = found(made)
        in_vain += len(made.waiting()) == waiting
        assert in_vain <= len({"x", "y"})
    assert [pod.name for pod in made.waiting() if pod.cls.request.is_shared] == []
    assert made.validate() == []


def test_a_search_is_bounded_and_leaves_every_namespace_its_share() -> None:
    crowd = [pod(f"c{i:03}", cpu=f"{100 + i}", fraction="0.5", priority=9, namespace="crowd") for i in range(200)]
    made = cluster(node(), *crowd, pod("other", cpu="100", fraction="0.5", namespace="elsewhere"))
    while (plan := made.decide(7)).wake_at_ns == 7:
        pass
    explained = [entry for entry in plan.entries if isinstance(entry, Explain)]
    wanting = Counter(
        want.namespace for want in wants(made, explained, now_ns=7, memory_to_fraction_ratio_nano=NANO, most=3_000)
    )
    assert wanting == {"crowd": 12, "elsewhere": 1}
    everybody = wants(made, explained, now_ns=7, memory_to_fraction_ratio_nano=NANO)
    assert len(everybody) == 201


@pytest.mark.parametrize(
    ("there", "asked"),
    [
        pytest.param({}, anti_affinity(term(HOST)), id="its own anti-affinity"),
        pytest.param(anti_affinity(term(HOST, {"matchLabels": {"app": "w"}})), {}, id="anti-affinity of the other"),
        pytest.param({}, affinity(term(HOST, {"matchLabels": {"app": "missing"}})), id="affinity to nobody"),
    ],
)
def test_a_share_that_a_rule_keeps_off_free_devices_wants_another(there: dict[str, Any], asked: dict[str, Any]) -> None:
    running = pod("r", bound_to="n1", labels={"app": "a"}, spec=there)
    assert named(node(gpus=2), running, pod("p", fraction="0.5", labels={"app": "w"}, spec=asked)) == ["p"]
    assert named(node(gpus=2), running, pod("p", fraction="0.5", labels={"app": "other"})) == []
