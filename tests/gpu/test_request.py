"""The normal form: what is asked of each device."""

from __future__ import annotations

from typing import Any

import pytest

from gpu import manifests
from gpu.request import (
    Ask,
    ContainerKind,
    ContainerRef,
    ContainerRequest,
    FractionAsk,
    GpuRequest,
    MemoryAsk,
    SharedAsk,
    WholeAsk,
)

INIT, REGULAR = ContainerKind.INIT, ContainerKind.REGULAR


def asking(index: int, *asks: Ask, kind: ContainerKind = REGULAR, is_sidecar: bool = False) -> ContainerRequest:
    return ContainerRequest(ContainerRef(kind, index), asks, is_sidecar)


def part(nano: int, seat: str = "") -> FractionAsk:
    return FractionAsk(nano, seat=seat)


def mib(amount: int, seat: str = "", limit: int = 0) -> MemoryAsk:
    return MemoryAsk(amount, limit_mib=limit, seat=seat)


@pytest.mark.parametrize(
    ("containers", "shared"),
    [
        pytest.param((asking(0, WholeAsk()),), (), id="whole devices are the plugin's"),
        pytest.param((asking(0, part(3), part(3)),), (part(3), part(3)), id="without a seat each is a device"),
        pytest.param((asking(0, part(3)), asking(1, mib(7))), (part(3), mib(7)), id="in the order of containers"),
        pytest.param(
            (asking(0, part(3, "a")), asking(1, part(4, "a"))), (part(7, "a"),), id="regular containers run together"
        ),
        pytest.param(
            (asking(0, mib(5, "a")), asking(0, mib(9, "a"), kind=INIT)), (mib(9, "a"),), id="init containers run before"
        ),
        pytest.param(
            (asking(0, mib(5, "a")), asking(0, mib(2, "a"), kind=INIT, is_sidecar=True)),
            (mib(7, "a"),),
            id="sidecars go on",
        ),
        pytest.param(
            (asking(0, mib(5, "a", 8)), asking(1, mib(2, "a"))), (mib(7, "a", 10),), id="no limit is the request"
        ),
        pytest.param(
            (asking(0, mib(5, "a"), mib(6, "a"), kind=INIT),), (mib(11, "a"),), id="one container has all at once"
        ),
        pytest.param(
            (asking(1, mib(5, "a"), kind=INIT), asking(0, mib(2, "a"), kind=INIT, is_sidecar=True)),
            (mib(7, "a"),),
            id="init containers start in the pod's order, however they are listed",
        ),
        pytest.param(
            (asking(0, FractionAsk(5, "a", limit_nano=8)), asking(1, part(2, "a"))),
            (FractionAsk(7, "a", limit_nano=10),),
            id="no limit is the fraction",
        ),
        pytest.param(
            (asking(0, part(1, "a"), part(2, "b")), asking(1, part(3, "b"), part(4))),
            (part(1, "a"), part(5, "b"), part(4)),
            id="several devices, one of them common",
        ),
    ],
)
def test_what_is_asked_of_each_device(containers: tuple[ContainerRequest, ...], shared: tuple[SharedAsk, ...]) -> None:
    assert GpuRequest(containers).shared == shared


def test_a_container_finds_its_devices_in_the_order_of_its_asks() -> None:
    first = asking(0, part(1, "a"), part(2, "b"))
    second = asking(1, part(3, "b"), part(4), part(5, "a"))
    request = GpuRequest((first, second, asking(2, WholeAsk())))
    assert request.devices()[first.container] == (0, 1)
    assert request.devices()[second.container] == (1, 2, 0)
    assert ContainerRef(REGULAR, 2) not in request.devices()


@pytest.mark.parametrize(
    "ask", [FractionAsk(3, seat="a", compute_percent=30), MemoryAsk(3, seat="a", compute_percent=30)]
)
def test_compute_on_one_seat_is_added_up_as_the_rest_is(ask: FractionAsk | MemoryAsk) -> None:
    (together,) = GpuRequest((asking(0, ask), asking(1, ask))).shared
    assert together.compute_percent == 60


def test_a_fraction_and_memory_on_one_seat_can_not_be_added_up() -> None:
    with pytest.raises(ValueError, match="seat a"):
        _ = GpuRequest((asking(0, part(1, "a")), asking(1, mib(1, "a")))).shared


@pytest.mark.parametrize(
    ("containers", "whole"),
    [
        ((), 0),
        ((asking(0, WholeAsk()), asking(1, WholeAsk(), WholeAsk())), 3),
        ((asking(0, part(3)), asking(1, WholeAsk())), 1),
        # An init container that ends gives its devices back.
        ((asking(0, WholeAsk()), asking(0, WholeAsk(), WholeAsk(), kind=INIT)), 2),
        ((asking(0, WholeAsk(), WholeAsk()), asking(0, WholeAsk(), kind=INIT)), 2),
        ((asking(0, WholeAsk()), asking(0, WholeAsk(), WholeAsk(), kind=INIT, is_sidecar=True)), 3),
    ],
)
def test_whole_devices_are_counted_as_kubelet_needs_them_at_one_time(
    containers: tuple[ContainerRequest, ...], whole: int
) -> None:
    assert GpuRequest(containers).whole == whole


SPEC: dict[str, Any] = {"containers": [{"name": "main", "image": "work"}]}


@pytest.mark.parametrize(
    ("obj", "paths"),
    [
        ({"kind": "Pod", "spec": SPEC}, [""]),
        ({"kind": "Service", "spec": {"ports": []}}, []),
        ({"kind": "Deployment", "spec": {"template": {"spec": SPEC}}}, ["spec.template"]),
        (
            {"kind": "CronJob", "spec": {"jobTemplate": {"spec": {"template": {"spec": SPEC}}}}},
            ["spec.jobTemplate.spec.template"],
        ),
        (
            {"kind": "Job", "spec": {"tasks": [{"template": {"spec": SPEC}}, {"template": {"spec": dict(SPEC)}}]}},
            ["spec.tasks[0].template", "spec.tasks[1].template"],
        ),
    ],
)
def test_templates_are_known_by_their_form(obj: dict[str, Any], paths: list[str]) -> None:
    assert [path for path, _ in manifests.templates(obj)] == paths


@pytest.mark.parametrize(("levels", "is_found"), [(63, True), (64, False)])
def test_templates_are_looked_for_as_deep_as_objects_are(levels: int, is_found: bool) -> None:
    value: dict[str, Any] = {"spec": SPEC}
    for _ in range(levels):
        value = {"of": value}
    assert bool(list(manifests.templates(value))) is is_found


def test_what_aliases_repeat_is_looked_at_once() -> None:
    value: dict[str, Any] = {"template": {"spec": SPEC}}
    for _ in range(40):
        value = {"left": value, "right": value}
    assert len(list(manifests.templates(value))) == 1


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        ({"spec": SPEC}, ""),
        ({"metadata": None, "spec": None}, ""),
        (
            {"metadata": {"annotations": {"gpu-fraction": 0.5}}, "spec": SPEC},
            "metadata.annotations[gpu-fraction] is 0.5 and has to be text: put it in quotes",
        ),
        (
            {"metadata": {"labels": {"new": True}}, "spec": SPEC},
            "metadata.labels[new] is True and has to be text: put it in quotes",
        ),
        ({"spec": {"containers": [{"image": 5}]}}, "Expected `str`, got `int` - at `$.spec.containers[0].image`"),
    ],
)
def test_a_pod_that_the_api_server_would_not_read_says_why(raw: dict[str, Any], why: str) -> None:
    pod, found = manifests.read_pod(raw)
    assert found == why
    assert (pod is None) == bool(why)
