"""Each decision of the scheduler and the binder is one line with its event and the pod."""

from __future__ import annotations

import logging
from collections import Counter

import pytest

from kube.client.resources import PODS
from kube.telemetry.logevents import EVENT, FIELDS, LogEvent
from simulator.apiserver.faults import Fault
from tests.scheduler import stage
from tests.scheduler.stage import TEAM, create, find, is_call, pod, settle, share
from wire import names

Told = list[tuple[str, LogEvent, dict[str, object]]]


def told(caplog: pytest.LogCaptureFixture) -> Told:
    """Logger, event and fields of all lines that have an event."""
    ours = [record for record in caplog.records if record.name.partition(".")[0] in {"scheduler", "binder"}]
    return [
        (record.name, LogEvent(getattr(record, EVENT)), dict(getattr(record, FIELDS)))
        for record in ours
        if hasattr(record, EVENT)
    ]


def of(lines: Told, name: str) -> list[tuple[str, LogEvent]]:
    return [(logger, event) for logger, event, fields in lines if fields.get("pod") == f"{TEAM}/{name}"]


@pytest.fixture(autouse=True)
def _info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


async def test_a_pod_is_told_of_from_its_decision_to_its_binding(caplog: pytest.LogCaptureFixture) -> None:
    async with stage.stage("1x2x80GiB") as world:
        await create(world, share("first"))
        await settle()
        await create(world, share("second"), pod("whole", gpus=1))
        await settle()
        lines = told(caplog)
        assert of(lines, "first") == [
            ("scheduler.cycle", LogEvent.ATTEMPT_MADE),
            ("binder.bind.actions", LogEvent.POD_BOUND),
        ]
        assert of(lines, "second") == [("scheduler.commit.direct", LogEvent.POD_BOUND)]
        assert of(lines, "whole") == [("scheduler.commit.direct", LogEvent.POD_BOUND)]
        (bound,) = [fields for logger, _, fields in lines if logger == "binder.bind.actions"]
        group = find(world, "first")["metadata"]["labels"][names.GPU_GROUP_LABEL]
        node = find(world, "first")["spec"]["nodeName"]
        assert bound == {"pod": f"{TEAM}/first", "node": node, "groups": [group], "gpus_nano": 500_000_000}
        made = [fields for _, event, fields in lines if event is LogEvent.RESERVATION_MADE]
        assert [fields["group"] for fields in made] == [group]


async def test_a_pod_that_waits_is_told_of_once_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    async with stage.stage("1x1x80GiB") as world:
        await create(world, pod("large", gpus=2))
        await settle()
        await settle(60)
        assert of(told(caplog), "large") == [("scheduler.conditions.pod_scheduled", LogEvent.POD_WAITS)]
        (line,) = [record for record in caplog.records if getattr(record, EVENT, "") == LogEvent.POD_WAITS.value]
        condition = next(c for c in find(world, "large")["status"]["conditions"] if c["type"] == "PodScheduled")
        assert line.getMessage() == condition["message"]
        assert getattr(line, FIELDS)["reason"] == condition["reason"]


async def test_a_refused_binding_is_told_of_with_the_words_of_the_server(caplog: pytest.LogCaptureFixture) -> None:
    async with stage.stage("1x1x80GiB") as world:
        world.server.faults.on_request.append(
            lambda call: Fault(refuse_with=403) if is_call("scheduler", "create", "pods", "binding")(call) else None
        )
        await create(world, pod("a", gpus=1))
        await settle(0.5)
        world.server.faults.clear()
        assert of(told(caplog), "a")[0] == ("scheduler.commit.direct", LogEvent.ATTEMPT_FAILED)
        (line,) = [record for record in caplog.records if getattr(record, EVENT, "") == "attempt.failed"][:1]
        assert line.getMessage().startswith("not bound: Refused: ")
        await settle(60)


async def test_cycles_are_told_of_at_debug_only(caplog: pytest.LogCaptureFixture) -> None:
    async with stage.stage("1x1x80GiB") as world:
        await create(world, pod("a", gpus=1))
        await settle()
        assert not [event for _, event, _ in told(caplog) if event is LogEvent.CYCLE_DECIDED]
        caplog.set_level(logging.DEBUG, logger="scheduler.cycle")
        await create(world, pod("b", gpus=1))
        await settle()
        cycles = [fields for _, event, fields in told(caplog) if event is LogEvent.CYCLE_DECIDED]
        assert all(isinstance(fields["took_ms"], float) for fields in cycles)
        assert Counter(key for fields in cycles for key in fields)["explain"] >= 1


async def test_an_idle_reservation_that_goes_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    async with stage.stage("1x1x80GiB") as world:
        await create(world, share("brief"))
        await settle()
        await world.api.delete(PODS, "brief", namespace=TEAM)
        await settle(120)
        removed = [fields for _, event, fields in told(caplog) if event is LogEvent.RESERVATION_REMOVED]
        assert len(removed) == 1
