"""Filters that look at the node: its labels, taints, pool, features and product."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler.core.convert.constraints import constraints
from scheduler.core.filters.registry import Filters
from scheduler.core.filters.taints import Cordon, Taints
from scheduler.core.model.pod_class import Constraints, Requirement, Term
from scheduler.core.model.settings import NodePool, Settings
from tests.scheduler.core.filters.beside import ZONE, made, places, reasons, waiting
from tests.scheduler.core.filters.judging import DEDICATED, affinity, expression, reason, reason_of
from tests.scheduler.core.filters.test_beside_pods import spread
from tests.scheduler.core.objects import cluster, node, pod
from wire import names
from wire.core import Node, NodeStatus, Pod

# Required node affinity, as Kubernetes means it.


@pytest.mark.parametrize(
    ("term", "fits"),
    [
        (expression("zone", "In", "a", "b"), True),
        (expression("zone", "In", "c"), False),
        (expression("rack", "In", "a"), False),
        (expression("zone", "NotIn", "c"), True),
        (expression("zone", "NotIn", "a"), False),
        (expression("rack", "NotIn", "a"), True),
        (expression("zone", "Exists"), True),
        (expression("rack", "Exists"), False),
        (expression("rack", "DoesNotExist"), True),
        (expression("zone", "DoesNotExist"), False),
        (expression("size", "Gt", "7"), True),
        (expression("size", "Gt", "8"), False),
        (expression("size", "Lt", "9"), True),
        (expression("size", "Lt", "8"), False),
        (expression("zone", "Gt", "1"), False),
        (expression("size", "Gt", "x"), False),
        (expression("size", "Gt"), False),
        (expression("size", "Gt", "007"), True),
        (expression("size", "Gt", "0_7"), False),
        (expression("size", "Gt", " 7"), False),
        (expression("size", "Gt", "\u0667"), False),
        (expression("size", "Gt", "+7"), False),
        (expression("size", "Gt", "-7"), False),
        (expression("size", "Lt", "9223372036854775807"), True),
        (expression("size", "Lt", "9223372036854775808"), False),
        (expression("group", "Gt", "7"), False),
        (expression("zone", "NotIn", "a value"), False),
        (expression("zone", "In", "a", "a value"), False),
        (expression("zone", "Resembles", "a"), False),
        ({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}, True),
        ({"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}]}, False),
        (
            {**expression("zone", "Exists"), "matchFields": [{"key": "metadata.name", "operator": "In", "values": []}]},
            False,
        ),
    ],
)
def test_required_node_affinity_means_what_kubernetes_means(term: dict[str, Any], fits: bool) -> None:
    labels = {"zone": "a", "size": "8", "group": "1_0"}
    assert reason(affinity(term), labels=labels) == ("" if fits else "affinity")
    assert reason(affinity(expression("never", "Exists"), term), labels=labels) == ("" if fits else "affinity")


def test_preferred_affinity_keeps_nobody_out() -> None:
    preferred = [{"weight": 1, "preference": expression("zone", "In", "z")}]
    spec = {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}}
    assert reason(spec) == ""


# Node affinity that an administrator adds to all pods.

_POOL = Term((Requirement("pool", "In", ("a",)),), ())
_NAMED = Term((), (Requirement("metadata.name", "In", ("p",)),))


@pytest.mark.parametrize(
    ("terms", "used"),
    [(None, {"p", "q"}), ((_POOL,), {"q"}), ((_POOL, _NAMED), {"p", "q"}), ((Term((), ()),), set()), ((), set())],
)
def test_every_pod_has_it(terms: tuple[Term, ...] | None, used: set[str]) -> None:
    nodes = [node("p", cpu="1"), node("q", cpu="1", labels={"pool": "a"})]
    found = cluster(*nodes, waiting({}, "w"), waiting({}, "v"), settings=Settings(enforced_node_affinity=terms))
    assert {*places(found.decide(0)).values()} == used
    assert found.validate() == []


def test_it_is_told_before_what_the_pod_asks_itself() -> None:
    asked: dict[str, Any] = {"nodeSelector": {"pool": "b"}}
    found = cluster(node("p"), waiting(asked), settings=Settings(enforced_node_affinity=(_POOL,)))
    assert reasons(found) == {"enforced-affinity": 1}
    found.upsert_node(node("p", labels={"pool": "a"}))
    assert reasons(found) == {"selector": 1}


# Nodes of other node pools.

KEY = names.NODE_POOL_LABEL
NODES = (node("p"), node("q", labels={KEY: "a"}), node("r", labels={KEY: "b"}))


@pytest.mark.parametrize(
    ("pool", "at"), [(None, "p"), (NodePool(), "p"), (NodePool(value="a"), "q"), (NodePool(value="b"), "r")]
)
def test_a_pod_is_placed_on_a_node_of_its_pool(pool: NodePool | None, at: str) -> None:
    labels = {} if pool is None else pool.labels
    made = cluster(*NODES, pod(gpus=8, labels=labels), settings=Settings(pool=pool))
    assert places(made.decide(0)) == {"p": at}


def test_it_is_told_before_all_else_that_is_against_a_node() -> None:
    there = node("q", labels={KEY: "a"}, ready=False, cordoned=True)
    made = cluster(there, node("p"), pod("w", gpus=9), settings=Settings(pool=NodePool()))
    assert reasons(made) == {"node-pool": 1, "insufficient": 1}


def test_a_domain_that_only_another_pool_has_does_not_hold_up_a_spread() -> None:
    nodes = [node("p", labels={ZONE: "x"}), node("q", labels={ZONE: "y", KEY: "a"})]
    spread_pods = [pod(f"w{i}", cpu="1", labels={"app": "a"}, spec=spread(ZONE)) for i in range(3)]
    made = cluster(*nodes, *spread_pods, settings=Settings(pool=NodePool()))
    assert places(made.decide(0)) == dict.fromkeys(("w0", "w1", "w2"), "p")
    # Without pools they alternate, as both domains can take them.
    assert {*places(cluster(*nodes, *spread_pods).decide(0)).values()} == {"p", "q"}


# Taints and tolerations, as Kubernetes means them.


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


# Features of kubelets that pods need.

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


# Products of GPUs that a pod takes, and does not take.


@pytest.mark.parametrize(
    ("wanted", "unwanted", "product", "is_out"),
    [
        ((), (), "", False),
        (("a100",), (), "NVIDIA-A100-SXM4-80GB", False),
        (("A100 SXM4",), (), "NVIDIA-A100-SXM4-80GB", False),
        (("h100", "a100"), (), "NVIDIA-A100-SXM4-80GB", False),
        (("h100",), (), "NVIDIA-A100-SXM4-80GB", True),
        (("a100",), (), "", True),
        ((), ("a100",), "NVIDIA-A100-SXM4-80GB", True),
        ((), ("a100",), "NVIDIA-H100", False),
        ((), ("a100",), "", True),
        (("nvidia",), ("t4",), "NVIDIA-T4", True),
    ],
)
def test_a_node_is_out_whose_gpus_are_of_another_product(
    wanted: tuple[str, ...], unwanted: tuple[str, ...], product: str, is_out: bool
) -> None:
    asked = Constraints(products=wanted, not_products=unwanted)
    labels = {names.NODE_GPU_PRODUCT: product} if product else {}
    assert reason_of(asked, node(labels=labels)) == ("cards" if is_out else "")


# The first filter that lets no pod on a node says why.


@pytest.mark.parametrize(
    ("spec", "of_node", "judgement"),
    [
        ({}, {}, ""),
        ({}, {"ready": False}, "not-ready"),
        ({}, {"cordoned": True}, "cordoned"),
        ({"tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]}, {"cordoned": True}, ""),
        ({"nodeSelector": {"zone": "a"}}, {"labels": {"zone": "a"}}, ""),
        ({"nodeSelector": {"zone": "a"}}, {"labels": {"zone": "b"}}, "selector"),
        ({"nodeSelector": {"zone": "a"}}, {}, "selector"),
        ({"nodeSelector": {"zone": "a"}}, {"cordoned": True, "ready": False}, "not-ready"),
        ({"nodeSelector": {"zone": "a"}}, {"cordoned": True, "taints": [DEDICATED]}, "cordoned"),
        ({"nodeSelector": {"zone": "a"}}, {"taints": [DEDICATED]}, "taint"),
        ({**affinity({}), "nodeSelector": {"zone": "a"}}, {}, "selector"),
        (affinity(), {}, "affinity"),
        (affinity({}), {}, "affinity"),
    ],
)
def test_a_node_is_judged_by_the_first_reason(spec: dict[str, Any], of_node: dict[str, Any], judgement: str) -> None:
    assert reason(spec, **of_node) == judgement


def test_a_pod_without_constraints_shares_its_constraints_with_all_others() -> None:
    assert constraints(msgspec.convert({}, Pod)) == constraints(pod(spec={"nodeSelector": {}}))


def test_two_filters_of_one_kind_are_refused() -> None:
    with pytest.raises(ValueError, match="cordoned"):
        Filters([Cordon(), Taints(), Cordon()])


def test_limits_that_a_pod_wants_enforced_keep_it_off_nodes_that_do_not_enforce_them() -> None:
    asked = Constraints(enforced=("memory",))
    assert reason_of(asked, node()) == "enforcement"
