"""DeviceTaintRules as they are written."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler.core.convert.devices import taint_rule_record
from scheduler.core.model.devices import DeviceTaint
from wire.resource import DeviceTaintRule

_TAINT = {"key": "example.com/ill", "value": "xid", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("spec", "selected"),
    [
        ({"deviceSelector": {"driver": "d", "pool": "p", "device": "a"}}, ("d", "p", "a")),
        ({"deviceSelector": {"pool": "p"}}, (None, "p", None)),
        ({"deviceSelector": {}}, (None, None, None)),
        # As kube-scheduler 1.36.
        ({}, (None, None, None)),
    ],
)
def test_a_rule_selects_by_what_is_written(spec: dict[str, Any], selected: tuple[str | None, ...]) -> None:
    written = {"metadata": {"name": "r"}, "spec": {**spec, "taint": _TAINT}}
    record = taint_rule_record(msgspec.convert(written, DeviceTaintRule))
    assert (record.driver, record.pool, record.device) == selected
    assert (record.key, record.taint) == ("r", DeviceTaint("example.com/ill", "xid", "NoExecute"))
