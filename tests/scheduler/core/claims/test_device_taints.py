"""Which tolerations let a request have a tainted device."""

from __future__ import annotations

import pytest

from scheduler.core.claims.device_taints import keep_off
from scheduler.core.model.device_requests import DeviceToleration
from scheduler.core.model.devices import DeviceTaint

_ILL = DeviceTaint("ill", "xid", "NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "is_tolerated"),
    [
        (DeviceToleration("ill", "", "xid"), True),
        (DeviceToleration("ill", "Equal", "xid"), True),
        (DeviceToleration("ill", "Equal", "other"), False),
        (DeviceToleration("ill", "Exists"), True),
        (DeviceToleration("other", "Exists"), False),
        (DeviceToleration("", "Exists"), True),
        (DeviceToleration("", "Exists", "", "NoExecute"), False),
        (DeviceToleration("ill", "Exists", "", "NoSchedule"), True),
        (DeviceToleration("ill", "Unheard", "xid"), False),
    ],
)
def test_a_toleration_takes_key_value_and_effect(toleration: DeviceToleration, *, is_tolerated: bool) -> None:
    assert keep_off([_ILL], [toleration]) is not is_tolerated


def test_each_taint_needs_a_toleration() -> None:
    other = DeviceTaint("other", "", "NoExecute")
    one, both = DeviceToleration("ill", "Exists"), DeviceToleration("other", "Exists")
    assert keep_off([_ILL, other], [one])
    assert not keep_off([_ILL, other], [one, both])
    assert not keep_off([DeviceTaint("ill", "", "None"), DeviceTaint("ill", "", "Unheard")], [])
