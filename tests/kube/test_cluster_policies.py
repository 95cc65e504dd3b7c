"""What the ClusterPolicy says is followed, and nothing of it stops a component."""

from __future__ import annotations

import logging
from collections import deque
from typing import Any

import anyio
import pytest

from gpu.container_devices import Cdi
from kube.client import errors
from kube.client.transport import Response
from kube.cluster_policies import CdiNames
from tests.kube.scripted import Answer, ScriptedTransport, api_over, hang, ok, refusal

VIRTUAL_TIME = True

PATH = "/apis/nvidia.com/v1/clusterpolicies"
AGAIN_S = 180


def policies(*said: dict[str, Any]) -> Response:
    items = [
        {"metadata": {"name": f"policy-{n}", "labels": {"app.kubernetes.io/version": "v26.3.0"}}, "spec": {"cdi": cdi}}
        for n, cdi in enumerate(said)
    ]
    return ok({"metadata": {"resourceVersion": "7"}, "items": items})


ON = policies({"enabled": True})
OFF = policies({"enabled": False})
NO_KIND = refusal(404, "NotFound")
NO_RIGHT = refusal(403, "Forbidden")
NO_SENSE = policies({"enabled": "perhaps"})
DOWN = errors.Unreachable("cut")


def scripted(*answers: Answer, chosen: Cdi = Cdi.AUTO) -> tuple[CdiNames, ScriptedTransport]:
    transport = ScriptedTransport(deque(answers))
    return CdiNames(api_over(transport), chosen), transport


async def followed(cdi: CdiNames, *, for_s: float = 1.0) -> list[bool]:
    """Follow for a while: what was known at the start, and at the end."""
    async with anyio.create_task_group() as tasks:
        await tasks.start(cdi.run)
        first = cdi.is_on
        await anyio.sleep(for_s)
        tasks.cancel_scope.cancel()
    return [first, cdi.is_on]


@pytest.mark.parametrize(("chosen", "expected"), [(Cdi.ON, True), (Cdi.OFF, False)])
async def test_nobody_is_asked_where_the_administrator_has_said_it(chosen: Cdi, expected: bool) -> None:
    cdi, transport = scripted(chosen=chosen)
    async with anyio.create_task_group() as tasks:
        await tasks.start(cdi.run)
        await cdi.catch_up()
    assert (cdi.is_on, transport.requests) == (expected, [])


@pytest.mark.parametrize(
    ("answer", "expected", "said"),
    [
        (ON, True, "CDI names: the ClusterPolicy policy-0"),
        (OFF, False, "UUIDs: the ClusterPolicy policy-0"),
        (
            policies({"enabled": True}, {"enabled": False}),
            True,
            "CDI names: the ClusterPolicy policy-0, the first of 2",
        ),
        (policies({}, {"enabled": True}), False, "UUIDs: the ClusterPolicy policy-0, the first of 2"),
        (policies(), False, "UUIDs: there is no ClusterPolicy"),
        (NO_KIND, False, "UUIDs: there is no ClusterPolicy"),
        (NO_RIGHT, False, "so UUIDs stays"),
        (NO_SENSE, False, "so UUIDs stays"),
    ],
    ids=["on", "off", "first-on", "first-off", "none", "no-kind", "no-right", "no-sense"],
)
async def test_the_first_answer_decides_and_is_told_once(
    answer: Response, expected: bool, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kube.cluster_policies")
    cdi, transport = scripted(answer, answer, answer)
    assert await followed(cdi, for_s=AGAIN_S * 2.5) == [expected, expected]
    assert [request.path for request in transport.requests] == [PATH] * 3
    (told,) = caplog.messages
    assert said in told


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([OFF, ON], [False, True]),
        ([ON, OFF], [True, False]),
        ([ON, NO_KIND], [True, False]),
        ([ON, NO_RIGHT], [True, True]),
        ([ON, NO_SENSE], [True, True]),
        ([NO_RIGHT, ON], [False, True]),
    ],
)
async def test_a_change_is_seen_and_an_answer_that_says_nothing_changes_nothing(
    answers: list[Response], expected: list[bool]
) -> None:
    cdi, _ = scripted(*answers)
    assert await followed(cdi, for_s=AGAIN_S + 1) == expected


async def test_a_server_that_answers_late_is_waited_for() -> None:
    cdi, _ = scripted(*[DOWN] * 5, ON)
    assert await followed(cdi) == [True, True]


async def test_between_two_looks_at_a_server_that_is_down_there_is_a_pause() -> None:
    cdi, transport = scripted(*[DOWN] * 5, ON)
    await followed(cdi)
    last_try, next_look = transport.times[4:6]
    assert next_look - last_try >= 1.0


async def test_a_server_that_does_not_answer_stops_nothing() -> None:
    cdi, _ = scripted(*[hang] * 20)
    before = anyio.current_time()
    assert await followed(cdi) == [False, False]
    assert anyio.current_time() - before < 40


async def test_a_leader_looks_again_but_does_not_wait_for_long() -> None:
    cdi, _ = scripted(OFF, ON, hang)
    await followed(cdi)
    await cdi.catch_up()
    assert cdi.is_on
    before = anyio.current_time()
    await cdi.catch_up()
    assert cdi.is_on
    assert anyio.current_time() - before < 5
