from __future__ import annotations

from typing import Any

import pytest

from cli.checks.finding import Finding, Level
from cli.checks.reader import Answer
from cli.checks.trials import _of_guard
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
