"""Pods that ask by a record: other dialects' words as the scheduler honours them (docs/design/dialects.md)."""

from __future__ import annotations

from typing import Any

import pytest

from gpu.request import (
    Ask,
    ContainerKind,
    ContainerRef,
    ContainerRequest,
    FractionAsk,
    GpuRequest,
    MemoryAsk,
)
from gpu.translation import Cards, Translation
from scheduler.core.model.plan import Alone, Attempt, Explain, Join, Placement
from scheduler.core.model.settings import Settings, Strategy
from scheduler.core.model.verdict import Code, Verdict
from tests.scheduler.core.objects import NANO, bound, cluster, node, pod, recorded, reservation
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
    made = cluster(*objects, settings=settings)
    plan = made.decide(0)
    assert made.validate() == []
    placed = {entry.placement.name: entry.placement for entry in plan.entries if isinstance(entry, Alone)}
    return placed, [entry.verdict for entry in plan.entries if isinstance(entry, Explain)]


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
            [
                node(gpus=2),
                reservation("a", book={"x": HALF}),
                reservation("b", book={"y": HALF}, uuid="GPU-2"),
            ],
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
