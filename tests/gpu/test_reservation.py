from __future__ import annotations

import hashlib
from typing import Any

import msgspec
import pytest

from gpu import reservation
from gpu.book import EMPTY, Book, Entry
from wire import names
from wire.core import Container, Pod


def pod(annotations: dict[str, str] | None = None, **status: Any) -> Pod:
    meta = {
        "name": "gpu-reservation-x",
        "namespace": names.RESERVATION_NAMESPACE,
        "uid": "R",
        "resourceVersion": "5",
        "labels": {"app": "kai-resource-reservation", "runai-gpu-group": "g"},
        "annotations": annotations or {},
    }
    return msgspec.convert({"metadata": meta, "spec": {"nodeName": "n"}, "status": status}, Pod)


LEARNED = {names.RESERVE_FOR_GPU_INDEX: "GPU-1", names.TENANTS: "{}"}
RUNNING = [{"name": "c", "state": {"running": {}}}]
WAITING = [{"name": "c", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]
PULLING = [{"name": "c", "state": {"waiting": {"reason": "ImagePullBackOff"}}}]
CRASHED = [{"name": "c", "restartCount": 1, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]
ENDED = [{"name": "c", "state": {"terminated": {"exitCode": 128, "reason": "StartError"}}}]
DEVICE_REPORTS = {**LEARNED, names.DEVICE_REPORTER: names.REPORTER_KUBELET}


def test_a_reservation_is_told_by_label_and_namespace() -> None:
    here = pod()
    elsewhere = msgspec.structs.replace(here, metadata=msgspec.structs.replace(here.metadata, namespace="team"))
    assert reservation.is_reservation(here)
    assert not reservation.is_reservation(elsewhere)
    assert not reservation.is_reservation(here, app="mine")


def test_what_it_says_is_read() -> None:
    held = reservation.read(pod({**LEARNED, names.DEVICE_INDEX: "3", names.DEVICE_MEMORY: "81920"}, phase="Running"))
    assert (held.group, held.node, held.uuid, held.index, held.mem_mib) == ("g", "n", "GPU-1", 3, 81920)
    assert held.book == EMPTY
    assert held.is_joinable
    assert held.is_learned


@pytest.mark.parametrize(
    ("annotations", "status", "is_learned"),
    [
        (LEARNED, {"phase": "Running", "containerStatuses": RUNNING}, True),
        (LEARNED, {"phase": "Running", "containerStatuses": WAITING}, False),
        (LEARNED, {"phase": "Pending"}, False),
        (LEARNED, {"phase": "Failed"}, False),
        ({names.TENANTS: "{}"}, {"phase": "Running"}, False),
        ({**LEARNED, names.RESERVE_FOR_GPU_INDEX: "GPU-1,GPU-2"}, {"phase": "Running"}, False),
        ({**LEARNED, names.RESERVE_FOR_GPU_INDEX: "all devices"}, {"phase": "Running"}, False),
        ({**LEARNED, names.RESERVE_FOR_GPU_INDEX: "G" * 81}, {"phase": "Running"}, False),
    ],
)
def test_a_device_is_known_only_from_a_running_process(
    annotations: dict[str, str], status: dict[str, Any], is_learned: bool
) -> None:
    assert reservation.read(pod(annotations, **status)).is_learned is is_learned


@pytest.mark.parametrize(
    ("annotations", "status", "is_told"),
    [
        (DEVICE_REPORTS, {"phase": "Pending"}, True),
        (DEVICE_REPORTS, {"phase": "Pending", "containerStatuses": PULLING}, True),
        (DEVICE_REPORTS, {"phase": "Running", "containerStatuses": RUNNING}, True),
        # It ran and failed, or could not be started: its process says what it holds, or nobody does.
        (DEVICE_REPORTS, {"phase": "Running", "containerStatuses": CRASHED}, False),
        (DEVICE_REPORTS, {"phase": "Running", "containerStatuses": ENDED}, False),
        (DEVICE_REPORTS, {"phase": "Failed"}, False),
        (DEVICE_REPORTS, {"phase": "Failed", "containerStatuses": PULLING}, False),
        (DEVICE_REPORTS, {"phase": "Succeeded", "containerStatuses": PULLING}, False),
        ({**DEVICE_REPORTS, names.RESERVE_FOR_GPU_INDEX: ""}, {"phase": "Pending"}, False),
        ({**DEVICE_REPORTS, names.DEVICE_REPORTER: "somebody"}, {"phase": "Pending"}, False),
        (LEARNED, {"phase": "Pending", "containerStatuses": PULLING}, False),
        (LEARNED, {"phase": "Running", "containerStatuses": RUNNING}, True),
    ],
)
def test_kubelets_word_counts_until_a_process_has_run(
    annotations: dict[str, str], status: dict[str, Any], is_told: bool
) -> None:
    held = reservation.read(pod(annotations, **status))
    assert held.is_told is is_told
    assert not msgspec.structs.replace(held, deleting=True).is_told


@pytest.mark.parametrize(
    ("annotations", "is_joinable", "is_adoptable"),
    [({names.TENANTS: "{}"}, True, False), ({names.TENANTS: "no book"}, False, False), ({}, False, True)],
)
def test_without_a_book_nobody_joins_and_only_a_missing_one_may_be_written(
    annotations: dict[str, str], is_joinable: bool, is_adoptable: bool
) -> None:
    held = reservation.read(pod(annotations, phase="Running"))
    assert (held.is_joinable, held.is_adoptable) == (is_joinable, is_adoptable)


@pytest.mark.parametrize(("text", "index"), [("0", 0), ("255", 255), ("256", -1), ("999999999", -1)])
def test_an_index_that_no_device_can_have_is_as_if_it_were_not_told(text: str, index: int) -> None:
    """Tables have a column for each index up to the highest: a billion of them would be built."""
    assert reservation.read(pod({names.DEVICE_INDEX: text})).index == index


@pytest.mark.parametrize("text", ["", "-1", "1.5", "\N{SUPERSCRIPT TWO}", "9" * 10, "x"])
def test_counts_that_can_not_be_read_are_unknown(text: str) -> None:
    held = reservation.read(pod({names.DEVICE_INDEX: text, names.DEVICE_MEMORY: text}))
    assert (held.index, held.mem_mib) == (-1, 0)


@pytest.mark.parametrize(
    ("name", "healths", "is_ill"),
    [
        ("nvidia.com/gpu", ["Healthy"], False),
        ("nvidia.com/gpu", ["Unknown"], False),
        ("nvidia.com/gpu", ["Unhealthy"], True),
        ("nvidia.com/mig-1g.10gb", ["Unhealthy"], True),
        ("example.com/nic", ["Unhealthy"], False),
        ("nvidia.com/gpu", [], False),
    ],
)
def test_its_device_is_ill_when_the_device_plugin_says_so_by_way_of_kubelet(
    name: str, healths: list[str], is_ill: bool
) -> None:
    told = [{"name": name, "resources": [{"resourceID": "GPU-1", "health": health} for health in healths]}]
    container = {"name": "main", "state": {"running": {}}, "allocatedResourcesStatus": told}
    assert reservation.read(pod(phase="Running", containerStatuses=[container])).is_ill is is_ill


@pytest.mark.parametrize(
    ("state", "told", "allocated"),
    [
        ("running", ["GPU-1"], "GPU-1"),
        ("running", [], ""),
        # Who is refused after a reboot has the statuses of before for a while, then none.
        ("terminated", ["GPU-1"], None),
        (None, [], None),
    ],
)
def test_what_kubelet_says_it_gave_is_known_while_a_container_runs(
    state: str | None, told: list[str], allocated: str | None
) -> None:
    health = [{"name": "nvidia.com/gpu", "resources": [{"resourceID": uuid, "health": "Healthy"} for uuid in told]}]
    containers = [{"name": "main", "state": {state: {}}, "allocatedResourcesStatus": health}] if state else []
    assert reservation.read(pod(phase="Running", containerStatuses=containers)).allocated == allocated


@pytest.mark.parametrize(
    ("limits", "resource"),
    [
        ({"nvidia.com/gpu": "1"}, "nvidia.com/gpu"),
        ({"cpu": "1", "nvidia.com/mig-1g.10gb": "1"}, "nvidia.com/mig-1g.10gb"),
        ({"nvidia.com/mig-odd": "1"}, "nvidia.com/gpu"),
        ({}, "nvidia.com/gpu"),
    ],
)
def test_its_device_is_of_the_kind_that_it_asks_for(limits: dict[str, str], resource: str) -> None:
    held = pod()
    container = msgspec.convert({"name": "main", "resources": {"limits": limits}}, Container)
    spec = msgspec.structs.replace(held.spec, containers=[container])
    assert reservation.read(msgspec.structs.replace(held, spec=spec)).resource == resource


def test_a_group_of_slices_is_never_one_of_cards() -> None:
    resources = ("nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb")
    made = {reservation.group_id("node", "pod", 0, resource) for resource in resources}
    assert len(made) == len(resources)
    assert reservation.group_id("node", "pod", 0) in made


def test_karpenter_is_kept_away_by_tenants_only() -> None:
    entry = Entry(1, "a", "1", 0, "ns/p")
    assert reservation.annotations_of(Book({"u": entry}))[names.DO_NOT_DISRUPT] == "true"
    assert reservation.annotations_of(Book())[names.DO_NOT_DISRUPT] == "false"


def test_its_name_is_kais() -> None:
    assert reservation.name_for("n", "g") == "gpu-reservation-" + hashlib.sha256(b"n/g").hexdigest()[:16]


def test_the_same_decision_gives_the_same_group_and_others_do_not() -> None:
    ids = [reservation.group_id(*one) for one in [("n", "p", 0), ("n", "p", 0), ("n", "p", 1), ("m", "p", 0)]]
    assert ids[0] == ids[1]
    assert len(set(ids)) == 3


@pytest.mark.parametrize(
    ("states", "alive"),
    [([], True), (["running"], True), (["terminated"], False), (["waiting"], False), (["terminated", "running"], True)],
)
def test_a_reservation_lives_while_one_of_its_containers_runs(states: list[str], alive: bool) -> None:
    """No statuses at all is what a stand-in for kubelet leaves."""
    containers = [{"name": f"c{number}", "state": {state: {}}} for number, state in enumerate(states)]
    assert reservation.read(pod(phase="Running", containerStatuses=containers)).alive is alive
