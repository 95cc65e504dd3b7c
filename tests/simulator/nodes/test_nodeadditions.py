"""Labels and resources that all simulated nodes have."""

from __future__ import annotations

import pytest

from simulator.nodes import node_object, shape
from simulator.nodes.shape import MalformedAddition, added

TWO = shape.parse(["1x1x80GiB", "1x0"])


def test_all_nodes_have_the_labels() -> None:
    nodes = added(TWO, labels=["example.com/rack=r1", "node-role.kubernetes.io/master="], resources=[])
    for each in nodes:
        labels = node_object.labels(each)
        assert (labels["example.com/rack"], labels["node-role.kubernetes.io/master"]) == ("r1", "")


@pytest.mark.parametrize(
    ("text", "name", "amount"),
    [
        ("npu.example/cards=8", "npu.example/cards", "8"),
        ("cpu=1500m", "cpu", "1500m"),
        ("cpu=192", "cpu", "192000m"),
        ("memory=2Ti", "memory", "2097152Mi"),
        ("ephemeral-storage=4Ti", "ephemeral-storage", "4194304Mi"),
        ("pods=250", "pods", "250"),
    ],
)
def test_all_nodes_have_the_amount(text: str, name: str, amount: str) -> None:
    for each in added(TWO, labels=[], resources=[text]):
        status = node_object.status(each, now="2026-01-01T00:00:00Z")
        assert status["allocatable"][name] == status["capacity"][name] == amount


def test_without_additions_nodes_are_as_they_were() -> None:
    assert added(TWO, labels=[], resources=[]) == TWO


@pytest.mark.parametrize(
    ("labels", "resources", "message"),
    [
        (["rack"], [], "--node-label 'rack': not a label; allowed: KEY=VALUE, as in example.com/rack=r1"),
        (["a b=c"], [], "--node-label 'a b=c': not a label"),
        (["a=" + "v" * 64], [], "not a label"),
        ([], ["cpu"], "--node-resource 'cpu': not a resource with its amount; allowed: NAME=QUANTITY"),
        ([], ["cpu=many"], "--node-resource 'cpu=many': "),
        ([], ["example.com/npu=-1"], "--node-resource 'example.com/npu=-1': "),
        ([], ["example.com/npu=1500m"], "--node-resource 'example.com/npu=1500m': "),
        ([], ["cpu=9999999999999"], "not between 0 and 1099511627776"),
        ([], ["nvidia.com/gpu=8"], "GPUs are given by --nodes"),
        ([], ["nvidia.com/mig-1g.10gb=8"], "GPUs are given by --nodes"),
        (["a=b"] * 65, [], "--node-label: given 65 times; 64 times at most"),
    ],
)
def test_what_is_no_label_or_amount_is_refused_with_what_is_allowed(
    labels: list[str], resources: list[str], message: str
) -> None:
    with pytest.raises(MalformedAddition) as refused:
        added(TWO, labels=labels, resources=resources)
    assert message in str(refused.value)
