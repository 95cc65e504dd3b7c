"""What is kept of a pod that may have shares is bounded, whatever a tenant writes into it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from sharing.pods import view
from tests.sizes import sizeof
from wire import names
from wire.core import Pod

MANY = {f"{'k' * 50}-{number}": "v" * 63 for number in range(9_000)}
ANNOTATIONS = {f"a{number}": "x" * 1000 for number in range(250)}


@pytest.mark.parametrize(
    "meta",
    [
        pytest.param({"labels": MANY}, id="labels"),
        pytest.param({"annotations": ANNOTATIONS}, id="annotations"),
        pytest.param({"annotations": {names.SHARED_GPU_CONFIGMAP: "x" * 250_000}}, id="prefix of ConfigMaps"),
        pytest.param({"annotations": {names.GPU_FRACTION: "0" * 250_000}}, id="share"),
        pytest.param({"annotations": {names.GPU_MEMORY: "1" * 250_000}}, id="memory"),
    ],
)
def test_whatever_a_tenant_writes_no_more_is_kept_than_a_few_kibibytes(meta: dict[str, Any]) -> None:
    made = {
        "metadata": {"name": "p", "namespace": "team", "uid": "u", **meta},
        "spec": {"schedulerName": names.SCHEDULER_NAME, "containers": [{"name": "main"}]},
    }
    assert sizeof(view(msgspec.json.decode(msgspec.json.encode(made), type=Pod))) < 8 << 10
