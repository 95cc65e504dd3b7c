from __future__ import annotations

import pytest

from gpu.bind_request import PlannedDevice
from scheduler.core.convert import pod_groups
from scheduler.core.convert.pod_groups import pod_group_record
from scheduler.core.model.plan import Placement
from scheduler.core.model.records import PlannedMember
from tests.scheduler.core.objects import NANO, pod_group
from wire import names


@pytest.mark.parametrize(
    ("text", "planned"),
    [
        ('{"id":"x","members":{"u2":{"node":"n"},"u1":{"node":"n"}}}', ("u1", "u2")),
        ("not json", ()),
        ("[]", ()),
        ('{"id":"x","members":7}', ()),
        ('{"id":"x","members":{"u":{"node":7}}}', ()),
        ('{"id":"x","members":{"u":{"node":"n","devices":[{"group":"g","nano":-1}]}}}', ()),
        ('{"id":"x","members":{"u":{"node":"n","devices":[{"group":"g","nano":1000000001}]}}}', ()),
        ("", ()),
    ],
)
def test_a_plan_names_its_members(text: str, planned: tuple[str, ...]) -> None:
    assert tuple(pod_group_record(pod_group("g", 1, annotations={names.PLAN: text})).planned) == planned


def test_a_plan_is_read_as_it_was_written() -> None:
    devices = (PlannedDevice("g1", 5), PlannedDevice("g2", NANO, mem_mib=7))
    placement = Placement(pod_uid="u", namespace="ns", name="p", rv="1", node="n", devices=devices)
    text = pod_groups.render(pod_groups.make("x", [placement]))
    assert pod_groups.members(text) == {"u": PlannedMember("n", devices)}


def test_a_plan_that_is_nested_deep_names_nobody() -> None:
    assert pod_groups.members('{"id": "x", "members": {}, "y": ' + "[" * 50_000 + "]" * 50_000 + "}") == {}
