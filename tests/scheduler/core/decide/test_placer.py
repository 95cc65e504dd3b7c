"""Where pods go: node and devices, how the placement is carried out, and ids of new groups."""

from __future__ import annotations

from typing import Any

import pytest

from gpu.request import FractionAsk
from gpu.reservation import group_id
from gpu.translation import Cards
from scheduler.core.assumed.attempts import State
from scheduler.core.model.plan import Alone, Attempt, Bind, Explain, Join, Placement
from scheduler.core.model.settings import Settings, Strategy
from scheduler.core.model.verdict import Code
from tests.scheduler.core.decide.test_making import attempts_of
from tests.scheduler.core.decided import decided
from tests.scheduler.core.model.test_records import said
from tests.scheduler.core.objects import (
    NANO,
    bind_request,
    bound,
    changed,
    cluster,
    commit,
    feed,
    node,
    pod,
    recorded,
    reservation,
)
from tests.values import of_kind
from wire import names

HALF = NANO // 2
SPREAD = Settings(gpu_strategy=Strategy.SPREAD, cpu_strategy=Strategy.SPREAD)


def _placed(*objects: Any, settings: Settings | None = None) -> dict[str, Placement]:
    return decided(*objects, settings=settings)[0]


def _nodes(*objects: Any, settings: Settings | None = None) -> dict[str, str]:
    return {name: placement.node for name, placement in _placed(*objects, settings=settings).items()}


def _busy(name: str, gpus: int, on: str, **asked: Any) -> Any:
    return pod(name, gpus=gpus, bound_to=on, **asked)


@pytest.mark.parametrize(
    ("strategy", "objects", "asked", "expected"),
    [
        # whole GPUs
        ("binpack", [node("n1"), node("n2"), _busy("x", 4, "n2")], {"gpus": 2}, "n2"),
        ("binpack", [node("n1"), node("n2"), _busy("x", 7, "n2")], {"gpus": 2}, "n1"),
        ("binpack", [node("n2"), node("n1")], {"gpus": 1}, "n1"),
        ("binpack", [node("n1", 4), node("n2", 2)], {"gpus": 2}, "n2"),
        ("spread", [node("n1"), node("n2"), _busy("x", 4, "n1")], {"gpus": 2}, "n2"),
        ("spread", [node("n1", 4), node("n2", 8), _busy("x", 1, "n1"), _busy("y", 1, "n2")], {"gpus": 1}, "n2"),
        # shares: a device in use before a fresh one, the tightest first
        ("binpack", [node("n1"), node("n2"), reservation("g", "n2")], {"fraction": "0.5"}, "n2"),
        (
            "binpack",
            [node("n1"), node("n2"), reservation("g", "n1", book={"a": 300}), reservation("h", "n2", book={"b": 400})],
            {"fraction": "0.5"},
            "n2",
        ),
        (
            "binpack",
            [node("n1"), node("n2"), reservation("g", "n1", book={"a": HALF}), reservation("h", "n2", book={"b": 1})],
            {"fraction": "0.6"},
            "n2",
        ),
        (
            "binpack",
            [
                node("n1"),
                node("n2"),
                *(reservation(g, "n1", book={g: nano}, uuid=g) for g, nano in (("a", 1), ("b", HALF), ("c", HALF - 1))),
                *(reservation(g, "n2", book={g: nano}, uuid=g) for g, nano in (("d", HALF - 9), ("e", HALF - 9))),
            ],
            {"fraction": "0.5", "devices": 2},
            "n1",
        ),
        ("binpack", [node("n1"), node("n2"), _busy("x", 5, "n2")], {"fraction": "0.5"}, "n2"),
        ("spread", [node("n1"), node("n2"), reservation("g", "n2", book={"a": HALF})], {"fraction": "0.5"}, "n1"),
        # CPU only: nodes without GPUs first
        ("binpack", [node("n1"), node("n2", 0)], {"cpu": "1"}, "n2"),
        ("binpack", [node("n1", 1), node("n2", 0)], {"cpu": "1"}, "n2"),
        ("binpack", [node("n1"), node("n2", 0, cpu="1")], {"cpu": "2"}, "n1"),
        ("binpack", [node("n1", 0, cpu="8"), node("n2", 0, cpu="4")], {"cpu": "2"}, "n2"),
        ("spread", [node("n1", 0, cpu="4"), node("n2", 0, cpu="8"), _busy("x", 0, "n2", cpu="1")], {"cpu": "2"}, "n1"),
        ("spread", [node("n1"), node("n2", 0, cpu="4")], {"cpu": "2"}, "n2"),
    ],
)
def test_the_next_pod_goes_where_the_strategy_says(
    strategy: str, objects: list[Any], asked: dict[str, Any], expected: str
) -> None:
    settings = SPREAD if strategy == "spread" else Settings()
    assert _nodes(*objects, pod("p", **asked), settings=settings) == {"p": expected}


def test_a_pod_with_mig_slices_does_not_shun_nodes_with_gpus() -> None:
    slices = {"nvidia.com/mig-1g.5gb": "1"}
    asked = {"containers": [{"name": "c", "resources": {"limits": slices}}]}
    objects = [node("n1", 8, extended=slices), node("n2", 8, extended={**slices, "cpu": "4"}, cpu="4")]
    assert _nodes(*objects, pod(spec=asked)) == {"p": "n2"}


@pytest.mark.parametrize("strategy", list(Strategy))
def test_sixteen_halves_fill_eight_devices(strategy: Strategy) -> None:
    settings = Settings(gpu_strategy=strategy)
    placed = _placed(node(), *(pod(f"p{i}", fraction="0.5") for i in range(17)), settings=settings)
    groups = [placement.devices[0].group for placement in placed.values()]
    assert len(placed) == 16
    assert sorted(groups.count(group) for group in set(groups)) == [2] * 8


@pytest.mark.parametrize(
    ("fractions", "fit"),
    [
        (["0.1", "0.2", "0.7"], 3),
        (["0.333"] * 3, 3),
        (["0.333"] * 4, 3),
        (["0.001"] * 1001, 1000),
        (["0.6", "0.5"], 1),
        (["0.999999999", "0.000000001"], 2),
        (["0.3333333333", "0.3333333333", "0.3333333333"], 2),
    ],
)
def test_one_card_holds_exactly_what_adds_up_to_it(fractions: list[str], fit: int) -> None:
    pods = [pod(f"p{i:04}", fraction=fraction) for i, fraction in enumerate(fractions)]
    made = cluster(node(gpus=1, pods=2000), *pods)
    placed = 0
    while (plan := made.decide(0)).wake_at_ns == 0 or not placed:
        placed += sum(isinstance(entry, Alone) for entry in plan.entries)
        commit(made, plan)
    assert placed + sum(isinstance(entry, Alone) for entry in plan.entries) == fit


def test_twenty_three_pods_of_2000_mib_fit_on_a_card_of_46068() -> None:
    pods = [pod(f"p{i:02}", mem=2000) for i in range(24)]
    assert len(_placed(node(gpus=1, mem_mib=46068), *pods)) == 23


@pytest.mark.parametrize(
    ("mems", "card_mib", "fit"),
    [
        pytest.param([8192] * 4, 24576, 3, id="three thirds"),
        pytest.param([5120, 10240, 1], 15360, 2, id="a third and two"),
        pytest.param([8192, 8192, 8193], 24576, 2, id="a MiB more"),
        pytest.param([1000] * 50, 46068, 46, id="many, and a rest"),
        pytest.param([1001] * 46, 46046, 46, id="many that add up"),
        pytest.param([174763, 174763, 174762], 512 * 1024, 3, id="the largest card that is rounded down on"),
        pytest.param([262144, 262145], 512 * 1024 + 1, 1, id="a larger card"),
    ],
)
@pytest.mark.parametrize("reported", [True, False], ids=["a device that is there", "one that is opened"])
def test_memory_that_adds_up_to_a_card_fits_it_and_not_a_mib_more(
    mems: list[int], card_mib: int, fit: int, reported: bool
) -> None:
    pods = [pod(f"p{i:02}", mem=mem) for i, mem in enumerate(mems)]
    there = [reservation("g", mem_mib=card_mib)] if reported else []
    placed = _placed(node(gpus=1, mem_mib=card_mib), *there, *pods)
    assert len(placed) == fit
    assert sum(device.mem_mib for each in placed.values() for device in each.devices) <= card_mib


@pytest.mark.parametrize(
    ("book", "mems", "fit"),
    [
        ({"a": 333_333_334}, [8192, 8192], 2),
        ({"a": 333_333_334, "b": 333_333_334}, [8192, 8191], 1),
        ({"a": 333_333_334, "b": 333_333_334, "c": 333_333_332}, [1], 0),
    ],
    ids=["beside one", "beside two", "a full device"],
)
def test_what_an_older_version_charged_rounded_up_stands_as_it_is(
    book: dict[str, int], mems: list[int], fit: int
) -> None:
    held = reservation("g", mem_mib=24576, book=book)
    older = [bound(pod(uid, uid=uid, mem=8192), "n1", ("g", nano)) for uid, nano in book.items()]
    pods = [pod(f"p{i}", mem=mem) for i, mem in enumerate(mems)]
    assert len(_placed(node(gpus=1, mem_mib=24576), held, *older, *pods)) == fit


@pytest.mark.parametrize(
    ("fraction", "mems", "fit"),
    [
        ("0.333333333", [8192, 8192], 2),
        ("0.333333334", [8192, 8192], 2),
        ("0.333333335", [8192, 8192], 1),
        ("0.5", [6144, 6144], 2),
    ],
)
def test_fractions_and_memory_share_a_card(fraction: str, mems: list[int], fit: int) -> None:
    """A third of 24576 and a nano is 8192 MiB still, and two nanos leave room for 8191."""
    held = reservation("g", mem_mib=24576, book={"a": int(fraction[2:].ljust(9, "0"))})
    there = bound(pod("a", uid="a", fraction=fraction), "n1", ("g", int(fraction[2:].ljust(9, "0"))))
    pods = [pod(f"p{i}", mem=mem) for i, mem in enumerate(mems)]
    assert len(_placed(node(gpus=1, mem_mib=24576), held, there, *pods)) == fit


@pytest.mark.parametrize(
    ("node_fields", "mem", "nano"),
    [
        ({"mem_mib": 40000}, 40000, NANO),
        ({"mem_mib": 40000}, 40001, None),
        ({"mem_mib": 40000}, 10000, NANO // 4),
        ({"mem_mib": 30000}, 10000, 333_333_333),
        ({}, 1, None),
        # Cards differ: charged as on the smallest; what only a larger one holds takes a device whole.
        ({"annotations": {names.NODE_CARDS: "20000,40000"}}, 10000, HALF),
        ({"annotations": {names.NODE_CARDS: "20000,40000"}}, 30000, NANO),
        ({"annotations": {names.NODE_CARDS: "20000,40000"}}, 40001, None),
        ({"mem_mib": 40000}, 2**63, None),
    ],
)
def test_a_memory_ask_costs_its_part_of_the_card(node_fields: dict[str, Any], mem: int, nano: int | None) -> None:
    placed = _placed(node(**node_fields), pod(mem=mem))
    assert [(d.nano, d.mem_mib) for p in placed.values() for d in p.devices] == ([] if nano is None else [(nano, mem)])


def test_a_memory_ask_on_a_device_whose_memory_is_known_costs_its_part_of_that() -> None:
    placed = _placed(
        node(annotations={names.NODE_CARDS: "20000,40000"}), reservation("g", mem_mib=40000), pod(mem=10000)
    )
    assert placed["p"].devices[0].group == "g"
    assert placed["p"].devices[0].nano == NANO // 4


def test_a_device_too_small_for_the_ask_is_passed_over() -> None:
    placed = _placed(
        node(annotations={names.NODE_CARDS: "20000,40000"}), reservation("g", mem_mib=20000), pod(mem=30000)
    )
    assert placed["p"].devices[0].group != "g"
    assert placed["p"].devices[0].nano == NANO


def test_several_devices_are_distinct_and_the_tightest() -> None:
    objects = [
        node(),
        reservation("a", book={"x": 100}),
        reservation("b", book={"y": HALF}, uuid="GPU-2"),
        reservation("c", book={"z": 900_000_000}, uuid="GPU-3"),
    ]
    devices = _placed(*objects, pod(fraction="0.5", devices=3))["p"].devices
    assert [device.group for device in devices[:2]] == ["b", "a"]
    assert devices[2].group == group_id("uid-n1", "uid-p", 0)
    assert [device.nano for device in devices] == [HALF] * 3


def test_more_devices_than_a_node_has_fit_nowhere() -> None:
    assert _placed(node(gpus=2), pod(fraction="0.5", devices=3)) == {}


def test_ties_between_devices_go_to_the_smaller_group_id() -> None:
    objects = [node(), reservation("b", uuid="GPU-2"), reservation("a")]
    assert _placed(*objects, pod(fraction="0.5"))["p"].devices[0].group == "a"


def test_a_new_group_is_named_after_node_pod_and_attempt() -> None:
    waiting = pod(fraction="0.5", devices=2)
    made = cluster(node(), waiting)
    first = of_kind(Attempt, made.decide(0).entries[0])
    assert [d.group for d in first.placement.devices] == [group_id("uid-n1", "uid-p", n) for n in (0, 1)]
    made.commits.assume(first.placement, State.AT_BINDER)
    made.commits.release("uid-p", attempt=0)
    second = of_kind(Attempt, made.decide(0).entries[0])
    assert [d.group for d in second.placement.devices] == [group_id("uid-n1", "uid-p", n) for n in (64, 65)]


def test_a_group_that_is_there_already_is_not_named_again() -> None:
    taken = group_id("uid-n1", "uid-p", 0)
    objects = [node(), reservation(taken, deleting=True), pod(fraction="0.5")]
    assert _placed(*objects)["p"].devices[0].group == group_id("uid-n1", "uid-p", 1)


def test_a_new_group_needs_a_slot_for_its_reservation() -> None:
    assert _placed(node(pods=1), pod(fraction="0.5")) == {}
    assert len(_placed(node(pods=2), pod(fraction="0.5"))) == 1
    assert len(_placed(node(pods=2), reservation("g"), pod(fraction="0.5"))) == 1


def test_a_new_group_needs_the_requests_of_its_reservation() -> None:
    settings = Settings(reservation_cpu_milli=500)
    small, large = node("n1", cpu="1"), node("n2", cpu="2")
    assert _nodes(small, pod(fraction="0.5", cpu="750m"), settings=settings) == {}
    assert _nodes(small, large, pod(fraction="0.5", cpu="750m"), settings=settings) == {"p": "n2"}


VERIFIED = bound(pod("v", fraction="0.1"), "n1", ("g", NANO // 10), reservation="r-g", uuid="GPU-1")


def _kind(*objects: Any) -> type:
    entries = cluster(node(), *objects).decide(0).entries
    return next(type(e) for e in entries if isinstance(e, Alone) and e.placement.name == "p")


@pytest.mark.parametrize(
    ("objects", "kind"),
    [
        ([reservation("g"), VERIFIED, pod(fraction="0.5")], Join),
        ([VERIFIED, reservation("g"), pod(fraction="0.5")], Join),
        ([reservation("g"), pod(fraction="0.5")], Attempt),
        ([reservation("g", uuid=""), VERIFIED, pod(fraction="0.5")], Attempt),
        ([reservation("g", phase="Pending"), VERIFIED, pod(fraction="0.5")], Attempt),
        ([reservation("g", uuid="GPU-2"), VERIFIED, pod(fraction="0.5")], Attempt),
        ([reservation("g", uid="other"), VERIFIED, pod(fraction="0.5")], Attempt),
        ([reservation("g"), VERIFIED, pod(fraction="0.5", devices=2)], Attempt),
        ([pod(gpus=1)], Bind),
        ([pod(cpu="1")], Bind),
    ],
)
def test_a_share_joins_directly_only_what_the_binder_has_verified(objects: list[Any], kind: type) -> None:
    assert _kind(*objects) is kind


def test_a_verified_device_is_remembered_when_its_pod_is_gone() -> None:
    made = cluster(node(), reservation("g", book={}), VERIFIED, pod(fraction="0.5"))
    made.remove_pod("uid-v")
    assert [type(entry) for entry in made.decide(0).entries] == [Join]
    made.remove_pod("r-g")
    feed(made, reservation("h", uid="r-h"))
    assert [type(entry) for entry in made.decide(0).entries] == [Attempt]


def test_a_device_that_comes_back_to_its_reservation_after_another_one_is_left_to_the_binder() -> None:
    made = cluster(node(), reservation("g", book={}), VERIFIED, pod(fraction="0.5"))
    feed(made, reservation("g", book={}, uuid="GPU-2"))
    feed(made, reservation("g", book={}))
    feed(made, changed(VERIFIED, labels={**(VERIFIED.metadata.labels or {}), "app": "seen-again"}))
    assert [type(entry) for entry in made.decide(0).entries] == [Attempt]


@pytest.mark.parametrize(
    ("told", "kind"),
    [
        # It has learned its device, which is no change.
        (("", "GPU-1"), Join),
        # What it held in between, nobody knows.
        (("GPU-1", "", "GPU-1"), Attempt),
    ],
)
def test_a_reservation_that_tells_no_device_yet_has_not_changed_it(told: tuple[str, ...], kind: type) -> None:
    made = cluster(node(), reservation("g", book={}, uuid=told[0]), VERIFIED, pod(fraction="0.5"))
    for uuid in told[1:]:
        feed(made, reservation("g", book={}, uuid=uuid))
    assert [type(entry) for entry in made.decide(0).entries] == [kind]


def test_a_pod_that_reads_config_maps_always_goes_by_the_binder() -> None:
    source = {"configMapKeyRef": {"name": "maps-0", "key": names.ENV_VISIBLE_DEVICES}}
    env = [{"name": names.ENV_VISIBLE_DEVICES, "valueFrom": source}]
    by_map = pod(
        fraction="0.5",
        admitted=False,
        annotations={names.SHARED_GPU_CONFIGMAP: "maps"},
        spec={"containers": [{"name": "main", "env": env}]},
    )
    assert _kind(reservation("g"), VERIFIED, by_map) is Attempt


def test_a_share_may_follow_another_that_is_still_on_its_way() -> None:
    first = pod("first", fraction="0.5")
    placed = _placed(node(gpus=1), first, bind_request(first, "n1", ("g", HALF)), pod(fraction="0.5"))
    assert placed["p"].devices[0].group == "g"


def test_a_pod_that_was_not_admitted_is_never_bound() -> None:
    plan = cluster(node(), pod(fraction="0.5", admitted=False)).decide(0)
    assert [type(entry) for entry in plan.entries] == [Explain]


def test_a_gated_pod_is_left_alone() -> None:
    assert cluster(node(), pod(gpus=1, gated=True)).decide(0).entries == ()


@pytest.mark.parametrize("asked", [{"gpus": 2**62}, {"cpu": "9e18"}, {"memory": "9e18"}, {"gpus": 9}])
def test_an_absurd_ask_fits_nowhere_and_disturbs_nobody(asked: dict[str, Any]) -> None:
    assert _nodes(node(), pod("absurd", **asked), pod(gpus=8)) == {"p": "n1"}


def test_the_placement_names_the_version_that_was_decided_on() -> None:
    waiting = pod(gpus=1)
    made = cluster(node(), waiting)
    made.decide(0)
    newer = changed(waiting)
    feed(made, newer)
    entry = of_kind(Bind, made.decide(0).entries[0])
    assert entry.placement.rv == newer.metadata.resource_version


REPLICAS = {names.NODE_GPU_COUNT: "2", "nvidia.com/gpu.replicas": "4"}


@pytest.mark.parametrize("asked", [{"fraction": "0.5"}, {"mem": 1000}])
def test_shares_never_go_to_nodes_that_offer_each_gpu_several_times(asked: dict[str, Any]) -> None:
    """Kubelet would give the card of a reservation to others as well, whole or to a second reservation."""
    made = cluster(node(mem_mib=80000, labels=REPLICAS), reservation("g"), pod(**asked))
    entry = of_kind(Explain, made.decide(0).entries[0])
    assert entry.verdict.code is Code.NO_NODE_FITS
    assert [(reason.kind, reason.nodes) for reason in entry.verdict.node_reasons] == [("multiplied", 1)]
    feed(made, node("n1", 2, mem_mib=80000, labels=REPLICAS))
    assert isinstance(made.decide(0).entries[0], Attempt | Join)


def test_whole_gpus_are_given_as_the_device_plugin_offers_them() -> None:
    assert isinstance(cluster(node(labels=REPLICAS), pod(gpus=1)).decide(0).entries[0], Bind)


def test_shares_never_go_to_nodes_with_slices() -> None:
    made = cluster(node(labels={names.NODE_MIG_STRATEGY: "single"}), reservation("g"), pod(fraction="0.5"))
    entry = of_kind(Explain, made.decide(0).entries[0])
    assert entry.verdict.code is Code.NO_NODE_FITS
    assert [reason.kind for reason in entry.verdict.node_reasons] == ["mig"]


def test_nodes_are_told_apart_by_the_memory_of_their_cards_the_largest_first() -> None:
    nodes = [node(f"n{mib}", 1, mem_mib=mib) for mib in (20_000, 80_000, 40_000)]
    placer = attempts_of(cluster(*nodes, node("none", 0))).placer
    names_of = [each.name for each in placer.statement.nodes]
    found = [[name for name, is_in in zip(names_of, mask, strict=True) if is_in] for mask in placer.by_card_size()]
    assert found == [["n80000"], ["n40000"], ["n20000"], ["none"]]


# An exclusion chooses between devices, and opens none that the pod would not open without it.

TINY, EXCLUSIONS_HALF, FULL = NANO // 1_000, NANO // 2, NANO - 10


def _excluding(*uuids: str, nano: int = TINY, count: int = 1, **more: Any) -> Any:
    return recorded(said(*[(FractionAsk(nano),)] * count, cards=Cards(not_uuids=uuids), **more))


def _used(uuid: str, on: str = "n1", nano: int = EXCLUSIONS_HALF) -> Any:
    return reservation(f"g-{uuid}", on, book={f"tenant-{uuid}": nano} if nano else {}, uuid=f"GPU-{uuid}")


def _outcome(*objects: Any, settings: Settings | None = None) -> str:
    """Groups that the one waiting pod gets, "new" for those it opens; or the kinds of its reasons."""
    made = cluster(*objects, settings=settings)
    (entry,) = made.decide(0).entries
    if isinstance(entry, Explain):
        return "waits: " + "+".join(reason.kind for reason in entry.verdict.node_reasons)
    assert isinstance(entry, Alone)
    known = {"g-a", "g-b", "g-c"}
    groups = (device.group for device in entry.placement.devices)
    return "+".join(sorted(group if group in known else "new" for group in groups))


TWO = [node("n1", gpus=2), node("n2", gpus=2)]


@pytest.mark.parametrize(
    ("objects", "outcome"),
    [
        # Nothing is in use: an exclusion says which device is opened.
        ([node(gpus=2), _excluding("GPU-a")], "new"),
        # All that are in use and have room are excluded, on this node or on another.
        ([node(gpus=2), _used("a"), _excluding("GPU-a")], "waits: exclusion"),
        ([*TWO, _used("a"), _excluding("GPU-a")], "waits: exclusion"),
        ([*TWO, _used("a"), _used("b", "n2"), _excluding("GPU-a", "GPU-b")], "waits: exclusion"),
        # One that is in use and not excluded serves it, wherever it is.
        ([node(gpus=3), _used("a"), _used("b"), _excluding("GPU-a")], "g-b"),
        ([*TWO, _used("a"), _used("b", "n2", nano=TINY), _excluding("GPU-a")], "g-b"),
        # One on a node where the pod may not be serves it as little.
        ([node("n1", gpus=2), node("n2", gpus=2, cordoned=True), _used("b", "n2"), _excluding("GPU-a")], "new"),
        # The excluded one could not serve it anyhow.
        ([node(gpus=2), _used("a", nano=FULL), _excluding("GPU-a")], "new"),
        # It could, with just what it has left.
        ([node(gpus=2), _used("a", nano=NANO - 1), _excluding("GPU-a", nano=1)], "waits: exclusion"),
        # One that nobody uses is no reason to wait: a search may have opened it.
        ([node(gpus=2), _used("a", nano=0), _excluding("GPU-a")], "new"),
        # Several devices: no more are opened than without the exclusion.
        ([node(gpus=3), _used("a"), _used("b"), _excluding("GPU-a", count=2)], "waits: exclusion"),
        ([node(gpus=3), _used("a"), _excluding("GPU-x", count=2)], "g-a+new"),
    ],
)
def test_an_exclusion_opens_no_device(objects: list[Any], outcome: str) -> None:
    assert _outcome(*objects) == outcome


@pytest.mark.parametrize("by_pod", [False, True])
def test_a_pod_that_spreads_and_excludes_shares_what_is_left(by_pod: bool) -> None:
    wanted = _excluding("GPU-a", strategy="spread") if by_pod else _excluding("GPU-a")
    settings = Settings() if by_pod else Settings(gpu_strategy=Strategy.SPREAD)
    assert _outcome(node(gpus=4), _used("a"), _used("b"), wanted, settings=settings) == "g-b"


def test_a_pod_that_waits_for_its_exclusion_starts_when_nothing_in_use_could_serve_it() -> None:
    made = cluster(node(gpus=2), _used("a"), _excluding("GPU-a"))
    assert [type(entry) for entry in made.decide(0).entries] == [Explain]
    made.upsert_pod(_used("a", nano=FULL))
    (entry,) = made.decide(0).entries
    assert isinstance(entry, Alone)


@pytest.mark.parametrize(("used", "outcome"), [(8, "n1"), (3, "n1"), (0, "n1")])
def test_a_pod_of_the_smallest_share_of_eight_devices_takes_those_in_use_first(used: int, outcome: str) -> None:
    held = [
        reservation(f"h{index}", "n1", book={f"t{index}": EXCLUSIONS_HALF}, uuid=f"GPU-{index}", uid=f"r{index}")
        for index in range(used)
    ]
    made = cluster(node("n1"), node("n2"), *held, pod(fraction="0.001", devices=8))
    (entry,) = made.decide(0).entries
    assert isinstance(entry, Alone)
    groups = {device.group for device in entry.placement.devices}
    assert entry.placement.node == outcome
    assert len(groups & {f"h{index}" for index in range(used)}) == used
    assert len(groups) == 8


def test_the_exclusion_of_a_product_is_no_exclusion_of_devices() -> None:
    """It says on which nodes the pod may be, and a node without devices in use serves it as well as any."""
    labels = {names.NODE_GPU_PRODUCT: "NVIDIA-T4"}
    other = node("n2", gpus=2, labels={names.NODE_GPU_PRODUCT: "NVIDIA-A100"})
    wanted = recorded(said((FractionAsk(TINY),), cards=Cards(not_products=("t4",))))
    assert _outcome(node("n1", gpus=2, labels=labels), other, _used("a"), wanted) == "new"
