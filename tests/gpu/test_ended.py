"""When a pod holds nothing any more."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpu.grant import has_ended
from wire.core import Pod

RUNNING: dict[str, Any] = {"state": {"running": {}}}
WAITING: dict[str, Any] = {"state": {"waiting": {}}}
DONE = {"state": {"terminated": {"exitCode": 0}}}
COLLECTED = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}


@pytest.mark.parametrize(
    ("status", "is_deleting", "expected"),
    [
        ({"phase": "Succeeded"}, False, True),
        ({"phase": "Failed", "containerStatuses": [DONE, DONE]}, False, True),
        # Marked Failed while it still ends.
        ({"phase": "Failed", "containerStatuses": [RUNNING, DONE]}, False, False),
        ({"phase": "Failed", "initContainerStatuses": [RUNNING]}, False, False),
        ({"phase": "Running", "containerStatuses": [DONE, DONE]}, False, False),
        # Deleted while kubelet starts its containers again, which it reports a moment later.
        ({"phase": "Running", "containerStatuses": [DONE, DONE]}, True, False),
        ({"phase": "Running", "containerStatuses": [DONE, WAITING]}, True, False),
        # Not all containers are told of.
        ({"phase": "Running", "containerStatuses": [DONE]}, True, False),
        ({"phase": "Running"}, True, False),
        ({"phase": "Pending"}, True, False),
        # Marked by pod garbage collection, which has not asked the kubelet.
        ({"phase": "Failed", "conditions": [COLLECTED]}, True, False),
        ({"phase": "Failed", "containerStatuses": [WAITING], "conditions": [COLLECTED]}, True, False),
        ({"phase": "Failed", "conditions": [{**COLLECTED, "reason": "EvictionByEvictionAPI"}]}, True, True),
    ],
)
def test_a_pod_has_ended_when_none_of_its_containers_runs_any_more(
    status: dict[str, Any], is_deleting: bool, expected: bool
) -> None:
    meta = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if is_deleting else {}
    spec = {"containers": [{"name": "a"}, {"name": "b"}]}
    assert has_ended(msgspec.convert({"metadata": meta, "spec": spec, "status": status}, Pod).status) is expected
