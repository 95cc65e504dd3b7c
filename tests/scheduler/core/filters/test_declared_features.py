"""Features of kubelets that pods need."""

from __future__ import annotations

from typing import Any

import pytest

from tests.scheduler.core.filters.beside import made, places, reasons, waiting
from tests.scheduler.core.objects import node
from wire.core import Node, NodeStatus

_RESTART_ALL = "RestartAllContainersOnContainerExits"
_HOST_USERS = "UserNamespacesHostNetworkSupport"
_RULE = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [1]}}
_RESTARTING = {"name": "c", "restartPolicy": "Never", "restartPolicyRules": [_RULE]}
_HOST = {"hostNetwork": True, "hostUsers": False}


def _node(*features: str) -> Node:
    plain = node("n")
    status = plain.status
    return Node(
        metadata=plain.metadata,
        spec=plain.spec,
        status=NodeStatus(
            allocatable=status.allocatable, conditions=status.conditions, declared_features=[*features, "Another"]
        ),
    )


@pytest.mark.parametrize(
    ("spec", "needed"),
    [
        ({"containers": [{"name": "c"}]}, ()),
        ({"containers": [_RESTARTING]}, (_RESTART_ALL,)),
        ({"initContainers": [_RESTARTING]}, (_RESTART_ALL,)),
        ({"containers": [{"name": "c", "restartPolicyRules": [{"action": "Restart"}]}]}, ()),
        (_HOST, (_HOST_USERS,)),
        ({**_HOST, "hostUsers": True}, ()),
        ({"hostNetwork": True}, ()),
        ({"hostUsers": False}, ()),
        ({"containers": [_RESTARTING], **_HOST}, (_RESTART_ALL, _HOST_USERS)),
    ],
)
def test_a_pod_needs_what_its_spec_uses(spec: dict[str, Any], needed: tuple[str, ...]) -> None:
    assert places(made(waiting(spec), nodes=(_node(*needed),)).decide(0)) == {"w": "n"}
    for missing in needed:
        found = made(waiting(spec), nodes=(_node(*(each for each in needed if each != missing)),))
        assert reasons(found) == {"features": 1}


def test_a_pod_that_waits_is_placed_when_its_node_declares_the_feature() -> None:
    found = made(waiting(_HOST), nodes=(_node(),))
    assert not places(found.decide(0))
    found.upsert_node(_node(_HOST_USERS))
    assert places(found.decide(1)) == {"w": "n"}
