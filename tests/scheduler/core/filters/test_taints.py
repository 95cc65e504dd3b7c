"""Taints and tolerations, as Kubernetes means them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.scheduler.core.filters.judging import DEDICATED, reason


@pytest.mark.parametrize(
    ("toleration", "taint", "tolerated"),
    [
        (None, DEDICATED, False),
        (None, ("dedicated", "ml", "NoExecute"), False),
        (None, ("dedicated", "ml", "PreferNoSchedule"), True),
        ({"key": "dedicated", "operator": "Equal", "value": "ml", "effect": "NoSchedule"}, DEDICATED, True),
        ({"key": "dedicated", "value": "ml"}, DEDICATED, True),
        ({"key": "dedicated", "value": "web"}, DEDICATED, False),
        ({"key": "dedicated", "operator": "Exists"}, DEDICATED, True),
        ({"key": "other", "operator": "Exists"}, DEDICATED, False),
        ({"key": "dedicated", "operator": "Exists", "effect": "NoExecute"}, DEDICATED, False),
        ({"operator": "Exists"}, DEDICATED, True),
        ({"operator": "Equal", "value": "ml"}, DEDICATED, False),
        ({"key": "dedicated", "operator": "Near", "value": "ml"}, DEDICATED, False),
    ],
)
def test_a_taint_keeps_out_whoever_does_not_tolerate_it(
    toleration: dict[str, Any] | None, taint: tuple[str, str, str], tolerated: bool
) -> None:
    spec = {"tolerations": [toleration]} if toleration else {}
    assert reason(spec, taints=[taint]) == ("" if tolerated else "taint")
