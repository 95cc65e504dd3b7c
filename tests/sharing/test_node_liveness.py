"""Since when a machine has been heard of."""

from __future__ import annotations

import pytest

from sharing.node_liveness import Heard, Registration, heard, registration
from wire.core import Condition, Node, NodeStatus, ObjectMeta

HERE = Registration("uid-1", "10:00")


def node(*conditions: Condition) -> Node:
    return Node(metadata=ObjectMeta(name="node-1", uid="uid-1"), status=NodeStatus(conditions=[*conditions]))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (node(Condition(type="Ready", status="True", last_transition_time="10:00")), HERE),
        (node(Condition(type="Ready", status="True")), Registration("uid-1", "")),
        (node(Condition(type="Ready", status="False", last_transition_time="10:00")), None),
        (node(Condition(type="Ready", status="Unknown", last_transition_time="10:00")), None),
        (node(Condition(type="MemoryPressure", status="False")), Registration("uid-1", "")),
        (node(), Registration("uid-1", "")),
        (Node(metadata=ObjectMeta(name="node-1", uid="uid-1")), Registration("uid-1", "")),
    ],
)
def test_a_node_tells_whether_its_kubelet_is_heard_of(found: Node, expected: Registration | None) -> None:
    assert registration(found) == expected


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (None, HERE, Heard(HERE, 5.0)),
        (Heard(HERE, 1.0), HERE, Heard(HERE, 1.0)),
        (Heard(HERE, 1.0), None, None),
        (None, None, None),
        # Another object of this name, and a break that nobody saw.
        (Heard(HERE, 1.0), Registration("uid-2", "10:00"), Heard(Registration("uid-2", "10:00"), 5.0)),
        (Heard(HERE, 1.0), Registration("uid-1", "10:30"), Heard(Registration("uid-1", "10:30"), 5.0)),
    ],
)
def test_it_is_heard_of_since_it_registered_or_became_ready_last(
    before: Heard | None, now: Registration | None, expected: Heard | None
) -> None:
    assert heard(before, now, 5.0) == expected
