"""When a run of chaos has come to rest."""

from __future__ import annotations

from typing import Any

import pytest

from verification.chaos.run import is_settled


def _says(message: str) -> dict[str, Any]:
    return {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "message": message}]}


_BOUND = {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param({"phase": "Running"}, True, id="it runs"),
        pytest.param({"phase": "Failed"}, True, id="it has ended"),
        pytest.param({"phase": "Pending"}, False, id="it says nothing yet"),
        pytest.param(_BOUND, False, id="it is bound and does not run yet"),
        pytest.param(_says("no nodes with enough resources were found: "), True, id="it says why it waits"),
        pytest.param(_says("The last attempt failed, trying again soon: GangLate: "), False, id="between two attempts"),
    ],
)
def test_a_pod_is_at_rest(status: dict[str, Any], expected: bool) -> None:
    assert is_settled({"metadata": {}, "status": status}) is expected


def test_a_pod_that_is_being_deleted_is_not_at_rest() -> None:
    assert not is_settled({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"phase": "Running"}})
