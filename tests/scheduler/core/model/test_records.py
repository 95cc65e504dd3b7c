"""Pods that ask by a record: other dialects' words as the scheduler honours them (docs/design/dialects.md)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpu.request import Ask, ContainerKind, ContainerRef, ContainerRequest, FractionAsk, GpuRequest, MemoryAsk
from gpu.translation import Cards, Translation
from scheduler.core.convert.nodes import node_record
from scheduler.core.convert.pods import pod_record
from scheduler.core.model.plan import Attempt, Join, Placement
from scheduler.core.model.records import PodRecord
from scheduler.core.model.seen_pods import Pods
from scheduler.core.model.settings import Settings, Strategy
from scheduler.core.model.verdict import Code, Verdict
from tests.scheduler.core.decided import decided
from tests.scheduler.core.objects import (
    NANO,
    bound,
    changed,
    cluster,
    feed,
    free_gpus,
    node,
    pod,
    recorded,
    reservation,
)
from tests.values import there
from wire import names

HALF, TENTH = NANO // 2, NANO // 10
PRODUCT = {"nvidia.com/gpu.product": "Tesla-T4"}


def request(*containers: tuple[Ask, ...]) -> GpuRequest:
    return GpuRequest(
        tuple(
            ContainerRequest(ContainerRef(ContainerKind.REGULAR, index, f"c{index}"), asks)
            for index, asks in enumerate(containers)
            if asks
        )
    )


def said(*containers: tuple[Ask, ...], **more: Any) -> Translation:
    return Translation(dialect="hami", request=request(*containers), **more)


def _decided(*objects: Any, settings: Settings | None = None) -> tuple[dict[str, Placement], list[Verdict]]:
    placed, explained = decided(*objects, settings=settings)
    return placed, [entry.verdict for entry in explained]


def test_containers_on_one_seat_share_one_device_that_is_charged_for_both() -> None:
    asks = ((FractionAsk(HALF, seat="a"),), (FractionAsk(TENTH, seat="a"),))
    placed, _ = _decided(node(), recorded(said(*asks)))
    assert [device.nano for device in placed["p"].devices] == [HALF + TENTH]


def test_containers_without_seats_get_a_device_each() -> None:
    placed, _ = _decided(node(), recorded(said((FractionAsk(HALF),), (FractionAsk(TENTH),))))
    assert [device.nano for device in placed["p"].devices] == [HALF, TENTH]
    assert len({device.group for device in placed["p"].devices}) == 2


def test_a_container_without_a_share_needs_no_env() -> None:
    placed, _ = _decided(node(), recorded(said((FractionAsk(HALF),))))
    assert set(placed) == {"p"}


@pytest.mark.parametrize(
    "obj",
    [
        pytest.param(pod(labels={"clearml-injector/fraction": "0.5"}), id="ClearML's label"),
        pytest.param(
            pod(spec={"containers": [{"name": "c", "resources": {"limits": {"aliyun.com/gpu-mem": "5"}}}]}),
            id="Aliyun's resource",
        ),
        pytest.param(pod(annotations={"nvidia.com/container.main.gpu-memory.request": "5Gi"}), id="NvFractions"),
        pytest.param(
            pod(annotations=dict(recorded(said((FractionAsk(HALF),))).metadata.annotations or {})), id="no env"
        ),
    ],
)
def test_what_came_past_the_door_waits_and_says_so(obj: Any) -> None:
    placed, (verdict,) = _decided(node(extended={"aliyun.com/gpu-mem": "90"}), obj)
    assert placed == {}
    assert verdict.code in {Code.NOT_ADMITTED, Code.INVALID_REQUEST}


@pytest.mark.parametrize("resource", ["example.com/metagpu", "nvidia.com/sharedgpu"])
def test_what_came_past_the_door_in_words_of_a_setting_waits_for_what_no_node_has(resource: str) -> None:
    obj = pod(spec={"containers": [{"name": "c", "resources": {"limits": {resource: "5"}}}]})
    placed, (verdict,) = _decided(node(), obj)
    assert not placed
    assert [(reason.kind, reason.resource) for reason in verdict.node_reasons] == [("insufficient", resource)]


def test_a_record_that_can_not_be_read_keeps_the_pod_waiting() -> None:
    placed, (verdict,) = _decided(node(), pod(fraction="0.5", annotations={names.GPU_RECORD: "{}"}))
    assert placed == {}
    assert verdict.code is Code.INVALID_REQUEST


# --- alternatives ------------------------------------------------------------------------------------------------

TOGETHER = request((FractionAsk(HALF, seat="a"),), (FractionAsk(HALF, seat="a"),))
APART = request((FractionAsk(HALF),), (FractionAsk(HALF),))


@pytest.mark.parametrize(
    ("objects", "alternative", "nanos"),
    [
        pytest.param([node()], 0, [NANO], id="the first fits"),
        pytest.param(
            [node(gpus=2), reservation("a", book={"x": HALF}), reservation("b", book={"y": HALF}, uuid="GPU-2")],
            1,
            [HALF, HALF],
            id="only the other one fits",
        ),
        pytest.param([node(gpus=1), reservation("a", book={"x": HALF})], None, [], id="neither fits"),
    ],
)
def test_the_first_alternative_that_fits_is_taken(
    objects: list[Any], alternative: int | None, nanos: list[int]
) -> None:
    translation = Translation(dialect="hami", request=TOGETHER, alternatives=(APART,))
    placed, verdicts = _decided(*objects, recorded(translation))
    assert [p.alternative for p in placed.values()] == ([] if alternative is None else [alternative])
    assert [d.nano for p in placed.values() for d in p.devices] == nanos
    assert bool(verdicts) == (alternative is None)


@pytest.mark.parametrize(
    "asks",
    [
        pytest.param((FractionAsk(HALF), FractionAsk(HALF, seat="a")), id="equal amounts on different seats"),
        pytest.param((FractionAsk(HALF), FractionAsk(TENTH)), id="a smaller one that fits where the larger one does"),
        pytest.param((MemoryAsk(5000), MemoryAsk(4000, seat="a")), id="memory"),
    ],
)
def test_devices_that_fit_each_share_alone_and_not_all_together_are_too_few(asks: tuple[Ask, ...]) -> None:
    """It was placed nowhere, and told that there are no nodes."""
    held = reservation("a", book={"x": TENTH}, mem_mib=15109)
    placed, (verdict,) = _decided(node(gpus=1, mem_mib=15109), held, recorded(said(asks)))
    assert placed == {}
    assert [(reason.kind, reason.nodes) for reason in verdict.node_reasons] == [("insufficient", 1)]


# --- strategy ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("clusters", "own", "expected"),
    [
        (Strategy.BINPACK, "", "n2"),
        (Strategy.BINPACK, "spread", "n1"),
        (Strategy.SPREAD, "", "n1"),
        (Strategy.SPREAD, "binpack", "n2"),
    ],
)
def test_a_pods_own_strategy_goes_before_the_clusters(clusters: Strategy, own: str, expected: str) -> None:
    objects = [node("n1"), node("n2"), reservation("g", "n2", book={"x": TENTH})]
    placed, _ = _decided(
        *objects, recorded(said((FractionAsk(HALF),), strategy=own)), settings=Settings(gpu_strategy=clusters)
    )
    assert placed["p"].node == expected


# --- cards -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "cards", "fits"),
    [
        (PRODUCT, Cards(products=("t4",)), True),
        (PRODUCT, Cards(products=("a100", "tesla t4")), True),
        (PRODUCT, Cards(products=("a100",)), False),
        (PRODUCT, Cards(not_products=("a100",)), True),
        (PRODUCT, Cards(not_products=("tesla",)), False),
        (PRODUCT, Cards(products=("t4",), not_products=("tesla",)), False),
        ({}, Cards(products=("t4",)), False),
        ({}, Cards(not_products=("t4",)), False),
        ({}, Cards(), True),
    ],
)
def test_only_cards_of_a_product_that_the_pod_takes_will_do(labels: dict[str, str], cards: Cards, fits: bool) -> None:
    placed, verdicts = _decided(node(labels=labels), recorded(said((FractionAsk(HALF),), cards=cards)))
    assert bool(placed) == fits
    assert [[reason.kind for reason in v.node_reasons] for v in verdicts] == ([] if fits else [["cards"]])


KNOWN = [
    node(),
    reservation("a", book={"x": TENTH}, uuid="GPU-1", index=0),
    reservation("b", book={"y": TENTH}, uuid="GPU-2", index=3),
]


@pytest.mark.parametrize(
    ("ask", "cards", "group"),
    [
        (FractionAsk(HALF), Cards(uuids=("GPU-2",)), "b"),
        (FractionAsk(HALF), Cards(not_uuids=("GPU-1",)), "b"),
        (FractionAsk(HALF), Cards(uuids=("GPU-3", "GPU-1")), "a"),
        (FractionAsk(HALF, index=3), Cards(), "b"),
        (FractionAsk(HALF, index=0), Cards(), "a"),
        (FractionAsk(HALF), Cards(uuids=("GPU-9",)), None),
        (FractionAsk(HALF, index=0), Cards(uuids=("GPU-2",)), None),
        (FractionAsk(NANO), Cards(uuids=("GPU-2",)), None),
        (MemoryAsk(100, index=3), Cards(), None),
    ],
)
def test_a_pod_that_names_devices_gets_those_or_waits(ask: Ask, cards: Cards, group: str | None) -> None:
    placed, verdicts = _decided(*KNOWN, recorded(said((ask,), cards=cards)))
    assert [device.group for p in placed.values() for device in p.devices] == ([group] if group else [])
    assert bool(verdicts) == (group is None)


def test_of_the_devices_that_a_pod_names_none_is_known() -> None:
    _, (verdict,) = _decided(*KNOWN, recorded(said((FractionAsk(HALF, index=8),))))
    assert [(reason.kind, reason.nodes) for reason in verdict.node_reasons] == [("pinned", 1)]


def test_a_further_share_of_a_known_device_needs_no_binder() -> None:
    witness = bound(pod("w", fraction="0.1"), "n1", ("a", TENTH), reservation="r-a", uuid="GPU-1")
    made = cluster(node(gpus=1), reservation("a", book={"uid-w": TENTH}), witness, recorded(said((FractionAsk(HALF),))))
    (entry,) = made.decide(0).entries
    assert isinstance(entry, Join)


def test_a_first_share_goes_by_the_binder() -> None:
    (entry,) = cluster(node(), recorded(said((FractionAsk(HALF),)))).decide(0).entries
    assert isinstance(entry, Attempt)


# Events that come late, twice or out of order tell nothing that is not so.


def test_an_event_older_than_what_is_known_changes_nothing() -> None:
    before = pod("a", gpus=3)
    made = cluster(node(), bound(before, "n1"), before)
    assert free_gpus(made) == 5


def test_an_event_that_shows_a_bound_pod_unbound_changes_nothing_whatever_its_version() -> None:
    made = cluster(node(), pod("a", gpus=3, bound_to="n1"), pod("a", gpus=3))
    assert free_gpus(made) == 5


def test_an_event_of_a_pod_that_is_gone_does_not_bring_it_back() -> None:
    late = pod("a", gpus=3, bound_to="n1")
    made = cluster(node(), late)
    made.remove_pod("uid-a")
    feed(made, late)
    assert free_gpus(made) == 8


def test_lists_replace_everything_that_is_not_on_them() -> None:
    made = cluster(node(), node("n2"), pod("a", gpus=1, bound_to="n1"), pod("b", gpus=1, bound_to="n1"))
    made.replace_nodes([node_record(node())])
    made.replace_bind_requests([])
    made.replace_pod_groups([])
    assert made.node("n2") is None
    assert made.pods_beside({"uid-b"}) == ["uid-a"]


def _read(number: int) -> PodRecord:
    return there(pod_record(pod(f"p{number}", cpu=f"{number}m"), Settings()))


def test_classes_of_pods_long_gone_are_dropped_only_when_the_number_of_classes_has_doubled() -> None:
    """Each time costs a walk through all pods."""
    pods = Pods()
    for number in range(1, 1_200):
        record = _read(number)
        pods.intern(record.cls)
        pods.put(record)
    strange = pods.intern(_read(5_000).cls)
    for number in range(6_000, 6_800):
        pods.intern(_read(number).cls)
    assert pods.intern(_read(5_000).cls) is strange
    for number in range(7_000, 7_200):
        pods.intern(_read(number).cls)
    assert pods.intern(_read(5_000).cls) is not strange
    known = pods.records["uid-p1"].cls
    assert pods.intern(_read(1).cls) is known


def test_when_a_node_took_a_pod_up_is_known_and_no_news() -> None:
    placed = pod("a", gpus=3, bound_to="n1")
    made = cluster(node(), placed)
    made.refresh()
    generation = made.generation
    status = msgspec.structs.replace(placed.status, start_time="2026-01-01T00:00:10Z")
    feed(made, changed(msgspec.structs.replace(placed, status=status)))
    record = there(made.pod("uid-a"))
    assert (record.started_s, made.generation) == (1_767_225_610, generation)


def test_pods_that_are_being_deleted_are_known_as_such_while_they_have_a_node() -> None:
    made = cluster(node(), pod("waits", deleting=True), pod("runs", bound_to="n1"), pod("goes", bound_to="n1"))
    pods = made.snapshot().pods
    assert [*pods.terminating] == []
    feed(made, changed(pod("goes", bound_to="n1", deleting=True)))
    assert [*pods.terminating] == ["uid-goes"]
    copied = pods.copy()
    made.remove_pod("uid-goes")
    assert ([*pods.terminating], [*copied.terminating]) == ([], ["uid-goes"])
