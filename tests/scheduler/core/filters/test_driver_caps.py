"""Pods whose containers read a cap for the driver go only to nodes with such caps, whether they insist or not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.scheduler.core.filters.judging import reason
from wire import names

PATH = "metadata.annotations['env.moorage.dev/c0.NVIDIA_GPU_MEMORY_LIMIT']"
READS = {
    "containers": [
        {"name": "m", "env": [{"name": names.ENV_MEMORY_LIMIT, "valueFrom": {"fieldRef": {"fieldPath": PATH}}}]}
    ]
}


@pytest.mark.parametrize(
    ("spec", "enforces", "expected"),
    [
        (READS, "memory-cap=driver", ""),
        (READS, "mps, memory-cap=driver", ""),
        (READS, "memory-cap", "driver-caps"),
        (READS, "memory-cap=drivers", "driver-caps"),
        (READS, "", "driver-caps"),
        ({}, "", ""),
    ],
)
def test_a_node_has_to_say_that_its_driver_caps(spec: dict[str, Any], enforces: str, expected: str) -> None:
    assert reason(spec, annotations={names.NODE_ENFORCES: enforces}) == expected
