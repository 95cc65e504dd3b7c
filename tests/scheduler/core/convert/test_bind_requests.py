from __future__ import annotations

from gpu.bind_request import PlannedDevice
from scheduler.core.convert.pods import bind_request_record
from scheduler.core.model.records import BindRequestRecord
from tests.scheduler.core.objects import NANO, bind_request, pod


def test_a_hand_over_names_its_pod_its_node_and_its_devices() -> None:
    of = pod("a")
    assert bind_request_record(bind_request(of, "n1", ("g", NANO // 2), rv="7")) == BindRequestRecord(
        namespace=of.metadata.namespace,
        name="a",
        uid="br-a",
        pod_uid=of.metadata.uid,
        node="n1",
        rv="7",
        devices=(PlannedDevice("g", NANO // 2),),
    )


def test_a_request_of_another_scheduler_is_none() -> None:
    assert bind_request_record(bind_request(pod("a"), "n1", handover=False)) is None
