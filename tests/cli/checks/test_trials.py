from __future__ import annotations

from typing import Any

import pytest

from cli.checks.reader import Answer, CantLook, Finding, Level, Reader
from cli.checks.trials import _TRIALS, _of_guard, _of_refusal, check_trials
from tests.cli.checks.told import Told
from wire import names

ALL = {"name": names.ENV_VISIBLE_DEVICES, "value": "all"}
VOID = {"name": names.ENV_VISIBLE_DEVICES, "value": "void"}


def _let_in(*env: dict[str, str]) -> Answer:
    body: dict[str, Any] = {"spec": {"containers": [{"env": list(env)}]}}
    return Answer(201, body)


def _refused(message: str, status: int = 403) -> Answer:
    return Answer(status, {"message": message})


OURS = 'admission webhook "pods.admission.moorage.dev" denied the request: container main has'
UNREACHED = 'failed calling webhook "pods.admission.moorage.dev": no endpoints'


@pytest.mark.parametrize(
    ("answer", "is_off_here", "level"),
    [
        (_let_in(VOID), False, Level.OK),
        (_let_in(), False, Level.OK),
        (_let_in(ALL), False, Level.FAILED),
        (_let_in(VOID, ALL), False, Level.FAILED),
        (_let_in(ALL), True, Level.WARNING),
        (_refused(OURS), False, Level.OK),
        (_refused(UNREACHED, 500), False, Level.FAILED),
        (_refused('admission webhook "images.example.com" denied the request: none'), False, Level.WARNING),
        (_refused("exceeded quota: pods=0"), False, Level.WARNING),
        (
            _refused("ValidatingAdmissionPolicy 'moorage-queues' with binding 'moorage-queues' denied"),
            False,
            Level.WARNING,
        ),
    ],
)
def test_a_pod_that_chooses_its_devices_shows_whether_the_guard_is_on(
    answer: Answer, is_off_here: bool, level: Level
) -> None:
    finding: Finding = _of_guard(answer, is_off_here=is_off_here)
    assert finding.level is level
    assert f"{names.ENV_VISIBLE_DEVICES}=all" in finding.said


@pytest.mark.parametrize(
    ("message", "level"),
    [
        (
            'pods is forbidden: User "u" cannot create resource "pods" in API group "" in the namespace "n"',
            Level.WARNING,
        ),
        ("ValidatingAdmissionPolicy 'moorage-reservations' with binding 'moorage-reservations' denied", Level.OK),
        ("ValidatingAdmissionPolicy 'moorage-hand-over' with binding 'moorage-hand-over' denied", Level.FAILED),
    ],
    ids=["who asks lacks the right", "refused by the policy", "refused by another one of ours"],
)
def test_what_must_be_refused_is_refused_by_the_policy_or_was_not_tried(message: str, level: Level) -> None:
    (trial,) = (each for each in _TRIALS if each.by == "moorage-reservations")
    assert _of_refusal(trial, _refused(message)).level is level


async def test_who_may_try_nothing_is_told_so_and_not_that_all_is_well() -> None:
    message = 'pods is forbidden: User "eve" cannot create resource "pods" in API group "" in the namespace "default"'
    with pytest.raises(CantLook, match="eve"):
        await check_trials(Reader(Told({"/api/v1/namespaces/default/pods": (403, {"message": message})})))
