"""Reading BindRequests and pods as values, and books from what bound pods carry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from binder.core import attempt as attempts
from binder.core.attempt import Attempt
from binder.core.pods import view
from binder.core.rebuilding import BOUND_BY_KAI, rebuild
from binder.core.reservation_pod import ReservationTemplate, manifest
from gpu import handover
from gpu.book import EMPTY, Book, DeviceFull
from gpu.grant import DeviceGrant, Grant
from gpu.handover import Handover, PlannedDevice
from gpu.order import Foreign
from gpu.request import ContainerKind, ContainerRef, ContainerRequest, FractionAsk, GpuRequest, MemoryAsk
from gpu.translation import Translation, Wishes
from tests.binder.core.made import HALF, attempt, bound, pod, request
from wire import names
from wire.core import Pod
from wire.crds.bindrequest import BindRequest

HANDED = handover.render(Handover("10", (PlannedDevice("g", HALF),), "plan", 2))


def bind_request(meta: dict[str, Any] | None = None, spec: dict[str, Any] | None = None) -> BindRequest:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p"}
    plain = {"name": "p", "namespace": "team", "uid": "attempt-p", "ownerReferences": [owner]}
    annotations = {"annotations": {names.HANDOVER: HANDED}}
    said = {"podName": "p", "selectedNode": "node-1", "selectedGPUGroups": ["g"]}
    body = {"metadata": {**plain, **annotations, **(meta or {})}, "spec": {**said, **(spec or {})}}
    return msgspec.convert(body, BindRequest)


def test_a_request_of_ours_is_an_attempt() -> None:
    read = attempts.read(bind_request())
    assert read == attempt(plan="plan", members=2)
    assert isinstance(read, Attempt)
    assert read.unit == "team/plan"
    assert attempt().unit == "attempt-p"


def test_what_is_no_order_of_ours_is_no_attempt() -> None:
    assert isinstance(attempts.read(bind_request(spec={"selectedNode": ""})), Foreign)


@pytest.mark.parametrize(
    "annotations",
    [{"gpu-fraction": "NaN"}, {"gpu-fraction": "\x00"}, {"gpu-memory": "-1"}, {"gpu-fraction": "9" * 1000}],
)
def test_a_request_that_can_not_be_read_is_none_and_never_raises(annotations: dict[str, str]) -> None:
    spec = {"containers": [{"name": "a"}]}
    read = view(msgspec.convert({"metadata": {"annotations": annotations}, "spec": spec}, Pod))
    assert read.request is None
    assert not attempt().asks_same(read)


@pytest.mark.parametrize(
    ("decided", "asks", "same"), [(60, 60, True), (60, 10, False), (10, 60, False), (0, 60, False)]
)
def test_a_pod_that_asks_for_other_compute_than_was_decided_on_asks_for_something_else(
    decided: int, asks: int, same: bool
) -> None:
    ref = ContainerRef(ContainerKind.REGULAR, 0)
    asked = GpuRequest((ContainerRequest(ref, (FractionAsk(HALF, compute_percent=asks),)),))
    made = attempt(devices=(PlannedDevice("g", HALF, compute_percent=decided),))
    assert made.asks_same(pod(request=asked)) is same


def test_a_rebuilt_book_has_the_grants_of_the_bound_pods() -> None:
    book = rebuild("g", [bound(attempt("p")), bound(attempt("q"))])
    assert isinstance(book, Book)
    assert {entry.pod: (entry.nano, entry.attempt) for entry in book.entries.values()} == {
        "team/p": (HALF, "attempt-p"),
        "team/q": (HALF, "attempt-q"),
    }


def test_a_rebuilt_book_never_holds_more_than_a_device() -> None:
    assert isinstance(rebuild("g", [bound(attempt(name)) for name in "pqr"]), DeviceFull)


def test_a_rebuilt_book_has_the_modes_of_the_bound_pods_even_where_they_differ() -> None:
    """They are there: leaving one out would give its share away."""
    pods = [
        bound(attempt(name), recorded=Translation(dialect="hami", request=request(), wishes=Wishes(mode=mode)))
        for name, mode in (("p", "mps"), ("q", "hami-core"))
    ]
    book = rebuild("g", pods)
    assert isinstance(book, Book)
    assert {entry.pod: entry.mode for entry in book.entries.values()} == {"team/p": "mps", "team/q": "hami-core"}


def test_a_rebuilt_book_has_the_compute_of_the_bound_pods_even_where_it_is_more_than_there_is() -> None:
    grants = {name: Grant(f"attempt-{name}", (DeviceGrant("g", "r", "GPU-1", 1, compute_percent=60),)) for name in "pq"}
    book = rebuild("g", [bound(attempt(name), grant=grant) for name, grant in grants.items()])
    assert isinstance(book, Book)
    assert [entry.compute_percent for entry in book.entries.values()] == [60, 60]


MEMORY = GpuRequest((ContainerRequest(ContainerRef(ContainerKind.REGULAR, 0), (MemoryAsk(100),)),))


@pytest.mark.parametrize(
    ("asked", "card_mib", "nano"),
    [
        (request(), 0, HALF),
        (request(2), 0, HALF),
        (request(), 400, HALF),
        (MEMORY, 400, HALF // 2),
        (MEMORY, 0, 10**9),
        (MEMORY, 99, 10**9),
        (None, 400, 10**9),
        (GpuRequest(), 400, 10**9),
    ],
)
def test_a_pod_that_kai_bound_is_charged_what_it_asks_or_whole(
    asked: GpuRequest | None, card_mib: int, nano: int
) -> None:
    book = rebuild("g", [pod(node="node-1", groups=("g",), request=asked)], card_mib=card_mib)
    assert isinstance(book, Book)
    (entry,) = book.entries.values()
    assert (entry.nano, entry.attempt) == (nano, BOUND_BY_KAI)


def test_a_reservation_pod_is_what_pod_security_calls_restricted() -> None:
    spec = manifest(ReservationTemplate(), node="n", group="g", book=EMPTY)["spec"]
    assert spec["containers"][0]["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "runAsUser": 10000,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert not {"hostNetwork", "hostPID", "hostIPC", "volumes"} & spec.keys()


def test_nobody_is_preempted_for_a_reservation_pod_and_it_is_no_system_pod() -> None:
    made = yaml.safe_load((Path(__file__).parents[3] / "reservation" / "priorityclass.yaml").read_text())
    assert made["preemptionPolicy"] == "Never"
    assert 0 < made["value"] <= 1_000_000_000
    assert made["globalDefault"] is False


def test_an_administrators_settings_shape_the_reservation_pod() -> None:
    template = ReservationTemplate(
        namespace="ns", service_account="sa", app="mine", image="i", runtime_class="nvidia", priority_class="high",
        resources={"cpu": "1m", names.GPU_RESOURCE: "7"},
    )  # fmt: skip
    made = manifest(template, node="n", group="g", book=EMPTY)
    assert made["metadata"]["namespace"] == "ns"
    assert made["metadata"]["labels"] == {"app": "mine", "runai-gpu-group": "g"}
    spec = made["spec"]
    assert (spec["runtimeClassName"], spec["priorityClassName"], spec["serviceAccountName"]) == ("nvidia", "high", "sa")
    assert spec["tolerations"] == [{"operator": "Exists"}]
    assert spec["containers"][0]["resources"]["limits"] == {"cpu": "1m", "nvidia.com/gpu": "1"}
    plain = manifest(ReservationTemplate(), node="n", group="g", book=EMPTY)["spec"]
    assert "runtimeClassName" not in plain
    assert "priorityClassName" not in plain


def test_a_pod_without_a_record_asks_one_thing_only() -> None:
    plain = pod(request=request())
    assert plain.asks(0) == request()
    assert plain.asks(1) is None
    assert plain.taken(1) is None
