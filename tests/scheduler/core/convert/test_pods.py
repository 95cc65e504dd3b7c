from __future__ import annotations

import msgspec
import pytest

from scheduler.core.convert.pods import pod_record, seen_pod
from scheduler.core.model.pod_class import Demand
from scheduler.core.model.settings import Settings
from tests.scheduler.core.convert.reading import read
from tests.scheduler.core.objects import changed, ended, pod, reservation
from wire import names
from wire.core import Pod, PodStatus


@pytest.mark.parametrize(
    ("obj", "matters"),
    [
        (pod(), True),
        (pod(scheduler="default-scheduler"), False),
        (pod(scheduler="default-scheduler", bound_to="n1"), True),
        (pod(bound_to="n1", phase="Running", deleting=True), True),
        (ended(pod(bound_to="n1")), False),
        (ended(pod(bound_to="n1"), "Failed"), False),
        (ended(pod()), False),
    ],
)
def test_a_pod_matters_if_it_holds_something_or_waits_for_us(obj: Pod, matters: bool) -> None:
    assert (pod_record(obj, Settings()) is not None) == matters


def test_an_evicted_pod_holds_its_place_until_its_containers_have_ended() -> None:
    status = {"phase": "Failed", "containerStatuses": [{"name": "main", "state": {"running": {}}}]}
    evicted = msgspec.structs.replace(pod(bound_to="n1"), status=msgspec.convert(status, type(pod().status)))
    assert pod_record(evicted, Settings()) is not None


def test_a_bound_pod_with_an_unreadable_request_still_takes_its_slot() -> None:
    assert read(pod(cpu="much", bound_to="n1")).node == "n1"


GPUS = {"cpu": "2", "memory": "1Gi", names.GPU_RESOURCE: 2, "example.com/nic": 1}
ALL_OF_IT = Demand(cpu_milli=2000, mem_mib=1024, gpus=2, extended=(("example.com/nic", 1),))


@pytest.mark.parametrize(
    ("unreadable", "counted"),
    [
        ({}, ALL_OF_IT),
        ({"memory": "100E"}, msgspec.structs.replace(ALL_OF_IT, mem_mib=0)),
        ({"cpu": "much"}, msgspec.structs.replace(ALL_OF_IT, cpu_milli=0)),
        ({"example.com/nic": "100E"}, msgspec.structs.replace(ALL_OF_IT, extended=())),
        ({names.GPU_RESOURCE: "many"}, msgspec.structs.replace(ALL_OF_IT, gpus=0)),
    ],
)
def test_of_a_bound_pod_all_amounts_count_that_can_be_read(unreadable: dict[str, str], counted: Demand) -> None:
    """Its GPUs counted as free where its memory could not be read, and were given to others as well."""
    spec = {"containers": [{"name": "main", "resources": {"limits": {**GPUS, **unreadable}}}]}
    assert read(pod("p", bound_to="n1", spec=spec)).cls.demand == counted


def test_of_an_unreadable_amount_in_one_container_the_others_count() -> None:
    limits = [{"memory": "100E", names.GPU_RESOURCE: 1}, {"memory": "1Gi", names.GPU_RESOURCE: 1}]
    spec = {"containers": [{"name": f"c{n}", "resources": {"limits": each}} for n, each in enumerate(limits)]}
    assert read(pod("p", bound_to="n1", spec=spec)).cls.demand == Demand(mem_mib=1024, gpus=2)


def test_a_reservation_pod_is_one_only_in_its_own_namespace() -> None:
    real = reservation("g")
    assert read(real).is_reservation
    assert not read(changed(real, namespace="tenant")).is_reservation


def test_what_nobody_has_written_counts_as_none() -> None:
    waiting = pod("p")
    spec = msgspec.structs.replace(waiting.spec, priority=None)
    assert read(msgspec.structs.replace(waiting, spec=spec)).priority == 0
    assert read(waiting).cls.demand == Demand()


@pytest.mark.parametrize(
    ("written", "started_s"),
    [("2026-01-01T00:00:10Z", 1_767_225_610), (None, 0), ("today", 0), ("1960-01-01T00:00:00Z", 0)],
)
def test_a_bound_pod_says_since_when_its_node_runs_it(written: str | None, started_s: int) -> None:
    seen = pod("p", bound_to="n1")
    seen = msgspec.structs.replace(seen, status=msgspec.structs.replace(seen.status, start_time=written))
    assert read(seen).started_s == started_s


@pytest.mark.parametrize(
    ("ends", "ended_s"),
    [
        ([], 0),
        (["1970-01-01T00:00:07Z"], 7),
        (["1970-01-01T00:00:07Z", "1970-01-01T00:00:09Z", None], 9),
        (["1969-12-31T00:00:00Z", "never"], 0),
    ],
)
def test_a_member_has_succeeded_when_the_last_of_its_containers_ended(ends: list[str | None], ended_s: int) -> None:
    states = [{"name": f"c{number}", "state": {"terminated": {"finishedAt": end}}} for number, end in enumerate(ends)]
    told = {"phase": "Succeeded", "containerStatuses": [*states, {"name": "unknown"}]}
    done = msgspec.structs.replace(pod(group="g", bound_to="n1"), status=msgspec.convert(told, PodStatus))
    found = seen_pod(done, Settings()).succeeded
    assert found is not None
    assert found.ended_s == ended_s
