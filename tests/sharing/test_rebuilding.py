"""Reading BindRequests and pods as values, and books from what bound pods carry."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from gpu import bind_request as handover
from gpu.bind_request import Foreign, Handover, PlannedDevice
from gpu.book import Book, DeviceFull, Entry
from gpu.container_devices import ANY_DEVICE, Pin
from gpu.grant import DeviceGrant, Grant
from gpu.limits import Cap, MemoryCaps
from gpu.request import ContainerKind, ContainerRef, ContainerRequest, FractionAsk, GpuRequest, MemoryAsk
from gpu.translation import Cards, Translation, Wishes
from sharing import attempt as attempts
from sharing.attempt import Attempt
from sharing.pods import PodView, view
from sharing.rebuilding import BOUND_BY_KAI, is_of_newer_version, may_stand_in_a_book, rebuild, resource_of
from tests.sharing.made import HALF, attempt, bound, pod, request
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


@pytest.mark.parametrize(("node_pool", "labels"), [("", {}), ("a", {names.NODE_POOL_LABEL: "a"})])
def test_a_bound_pod_has_the_label_of_its_node_pool(node_pool: str, labels: dict[str, str]) -> None:
    assert attempt(node_pool=node_pool).also_written.labels == labels


@pytest.mark.parametrize(
    ("caps", "written"), [((), [(0, 0), (0, 0)]), ((Cap(100, 0), Cap(0, HALF)), [(100, 0), (0, HALF)])]
)
def test_each_entry_of_an_attempt_has_the_cap_of_its_own_device(
    caps: tuple[Cap, ...], written: list[tuple[int, int]]
) -> None:
    made = attempt(groups=("g", "h"))
    entries = [made.tenant(group, "10", caps=caps).entry for group in ("g", "h")]
    assert [made.number_of(group) for group in ("g", "h")] == [0, 1]
    assert [(entry.cap_mib, entry.cap_nano) for entry in entries] == written


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


@pytest.mark.parametrize(
    ("which", "alternatives", "caps"),
    [
        (MemoryCaps.NONE, (), [(0, 0), (0, 0)]),
        (MemoryCaps.WISHED, (), [(100, 0), (0, 0)]),
        (MemoryCaps.ALL, (), [(100, 0), (0, HALF)]),
        # Nobody can say which of its requests was taken.
        (MemoryCaps.WISHED, (request(),), [(0, 0), (0, 0)]),
    ],
)
def test_a_rebuilt_book_has_the_memory_caps_of_the_bound_pods(
    which: MemoryCaps, alternatives: tuple[GpuRequest, ...], caps: list[tuple[int, int]]
) -> None:
    wishes = Translation(dialect="hami", request=MEMORY, alternatives=alternatives, wishes=Wishes(memory_cap=True))
    wished = bound(attempt("p"), request=MEMORY, recorded=wishes)
    book = rebuild("g", [wished, bound(attempt("q"), request=request())], caps=which)
    assert isinstance(book, Book)
    assert [(entry.cap_mib, entry.cap_nano) for entry in book.entries.values()] == caps


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
    assert (entry.nano, entry.attempt, entry.compute_percent) == (nano, BOUND_BY_KAI, 0)


SLICE = "nvidia.com/mig-1g.10gb"
ON_CARD = bound(attempt("p"))
BY_KAI = pod(node="node-1", groups=("g",))
#: On a card in group "h", and on a slice in group "g".
ON_SLICE = bound(
    grant=Grant("a", (DeviceGrant("h", "R-h", "GPU-h", 1), DeviceGrant("g", "R-g", "MIG-g", HALF, resource=SLICE)))
)


@pytest.mark.parametrize(
    ("bound_pods", "expected"),
    [
        ([], "other"),
        ([ON_CARD], names.GPU_RESOURCE),
        ([ON_SLICE], SLICE),
        ([ON_SLICE, BY_KAI], SLICE),
        ([BY_KAI], names.GPU_RESOURCE),
    ],
)
def test_a_lost_reservation_is_made_again_for_the_kind_of_device_that_its_tenants_have(
    bound_pods: list[PodView], expected: str
) -> None:
    assert resource_of("g", bound_pods, otherwise="other") == expected


def test_a_rebuilt_entry_says_as_much_as_the_grant_does() -> None:
    device = DeviceGrant("g", "R-g", "GPU-g", HALF // 2, compute_percent=30)
    other = DeviceGrant("h", "R-h", "GPU-h", HALF, compute_percent=70)
    book = rebuild("g", [bound(grant=Grant("a", (other, device)), grace_s=90), bound(attempt("q"))])
    assert book == Book(
        {
            "uid-p": Entry(HALF // 2, "a", "11", 0, "team/p", 90, "", 30),
            "uid-q": Entry(HALF, "attempt-q", "11", 0, "team/q", 30, "", 0),
        }
    )


ENTRY = {"nano": 1, "attempt": "a", "rv": "10", "since": 5, "pod": "team/p"}


@pytest.mark.parametrize(
    ("text", "is_newer"),
    [
        (json.dumps({"uid": {**ENTRY, "colour": "red"}}), True),
        (json.dumps({"uid": ENTRY, "other": {**ENTRY, "colour": "red"}}), True),
        # Ours, or a mistake of some hand: nobody newer wrote it.
        (json.dumps({"uid": ENTRY}), False),
        (json.dumps({"uid": {**ENTRY, "nano": "much"}}), False),
        (json.dumps({"uid": {"colour": "red"}}), False),
        ("[]", False),
        ("{", False),
        ("", False),
        ("[" * 100_000, False),
        ('{"uid": {"colour": ' + "[" * 100_000, False),
    ],
)
def test_a_book_that_says_all_that_ours_say_and_more_is_of_a_newer_version(text: str, is_newer: bool) -> None:
    assert is_of_newer_version(text) is is_newer


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        # What it asks can't be read: a Binding may have been decided on while it could.
        ({"request": None}, True),
        ({"request": GpuRequest()}, False),
        ({"node": "node-1"}, False),
        ({"ended": True}, False),
        ({"deleting": True}, False),
        ({"gated": True}, False),
        ({"scheduler": "another"}, False),
    ],
)
def test_a_pod_that_can_still_be_bound_with_a_share_may_stand_in_a_book(
    changes: dict[str, Any], expected: bool
) -> None:
    assert may_stand_in_a_book(pod(**{"scheduler": names.SCHEDULER_NAME, **changes})) is expected


def _read(meta: dict[str, Any] | None = None, spec: dict[str, Any] | None = None) -> PodView:
    body = {"metadata": {"annotations": {names.GPU_FRACTION: "0.5"}, **(meta or {})}}
    return view(msgspec.convert({**body, "spec": {"containers": [{"name": "main"}], **(spec or {})}}, Pod))


def test_a_pod_is_read_with_all_that_its_metadata_says() -> None:
    grant = Grant("a", (DeviceGrant("g", "R-g", "GPU-g", HALF),))
    annotations = {
        names.GPU_FRACTION: "0.5",
        names.FENCED: "c",
        names.FENCED_BEFORE: "b a",
        names.GRANT: msgspec.json.encode(grant).decode(),
        names.SHARED_GPU_CONFIGMAP: "maps",
    }
    read = _read({"annotations": annotations, "deletionTimestamp": "2026-01-01T00:00:00Z"})
    assert (read.fenced, read.fenced_before) == ("c", ("b", "a"))
    assert all(read.was_fenced_for(attempt) for attempt in "abc")
    assert not read.was_fenced_for("d")
    assert (read.grant, read.config_maps, read.deleting) == (grant, "maps", True)
    plain = _read()
    assert (plain.fenced, plain.fenced_before, plain.deleting) == ("", (), False)
    assert (plain.grant, plain.config_maps, plain.gated) == (None, "", False)


@pytest.mark.parametrize(
    ("of_spec", "of_deletion", "grace_s"),
    [(None, None, 30), (0, None, 0), (5, None, 5), (5, 0, 5), (5, 60, 60), (60, 5, 60), (0, 0, 0), (None, 0, 30)],
)
def test_a_pod_may_run_on_for_the_longest_grace_period_that_is_said_of_it(
    of_spec: int | None, of_deletion: int | None, grace_s: int
) -> None:
    """What is deleted by force is gone from the API server at once, and from its machine when that learns of it."""
    read = _read({"deletionGracePeriodSeconds": of_deletion}, {"terminationGracePeriodSeconds": of_spec})
    assert read.grace_s == grace_s


#: KAI's newer words: a request of memory.
NEWER = {f"{names.NVFRACTIONS_PREFIX}main{names.NVFRACTIONS_REQUEST}": "8Gi"}


@pytest.mark.parametrize(
    ("annotations", "node", "shares"),
    [
        ({names.GPU_FRACTION: "0.5"}, "", 1),
        ({}, "", 0),
        ({}, "node-1", 0),
        ({names.GPU_RECORD: "{"}, "", None),
        ({names.GPU_RECORD: "{"}, "node-1", None),
        # Bound by KAI, or on its way through our door, which leaves a record.
        (NEWER, "node-1", 1),
        (NEWER, "", 0),
        ({f"{names.NVFRACTIONS_PREFIX}main{names.NVFRACTIONS_REQUEST}": "much"}, "node-1", None),
    ],
)
def test_what_a_pod_asks_is_read_from_its_record_or_kais_words(
    annotations: dict[str, str], node: str, shares: int | None
) -> None:
    read = _read({"annotations": annotations}, {"nodeName": node})
    assert (None if read.request is None else len(read.request.shared)) == shares
    assert (read.recorded is not None) is (annotations is NEWER and bool(node))


@pytest.mark.parametrize(
    ("cards", "number", "expected"),
    [
        (Cards(), 0, False),
        (Cards(uuids=("GPU-1",)), 0, True),
        (Cards(not_uuids=("GPU-1",)), 0, True),
        (Cards(uuids=("GPU-1",)), 1, False),
    ],
)
def test_a_pod_names_devices_where_a_record_says_which(cards: Cards, number: int, expected: bool) -> None:
    recorded = Translation(dialect="hami", request=request(2), cards=cards)
    assert pod(recorded=recorded, request=recorded.request).names_devices(number) is expected


def test_a_pod_names_devices_where_only_one_of_its_asks_has_an_index() -> None:
    asks = (FractionAsk(HALF), FractionAsk(HALF, index=0))
    asked = GpuRequest((ContainerRequest(ContainerRef(ContainerKind.REGULAR, 0), asks),))
    assert pod(recorded=Translation(dialect="hami", request=asked), request=asked).names_devices(0)
    assert not pod().names_devices(0)


@pytest.mark.parametrize(
    ("number", "device", "expected"),
    [(0, 0, Pin(index=3)), (0, 1, Pin(index=-1)), (0, 2, ANY_DEVICE), (1, 0, ANY_DEVICE)],
)
def test_each_share_has_its_own_pin(number: int, device: int, expected: Pin) -> None:
    asks = (FractionAsk(HALF, index=3), FractionAsk(HALF))
    asked = GpuRequest((ContainerRequest(ContainerRef(ContainerKind.REGULAR, 0), asks),))
    assert pod(recorded=Translation(dialect="hami", request=asked), request=asked).pin(number, device) == expected


def test_a_pod_without_a_record_asks_one_thing_only() -> None:
    plain = pod(request=request())
    assert plain.asks(0) == request()
    assert plain.asks(1) is None
    assert plain.taken(1) is None
