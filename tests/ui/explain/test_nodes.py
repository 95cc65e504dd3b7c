"""What ``explain node`` prints."""

from __future__ import annotations

from typing import Any

from scheduler.core.what_if.explanation import node_explained
from tests.scheduler.core.objects import cluster, node, pod
from ui.explain.tables import node_sheets, node_view
from ui.tables import plain


def lines(*objects: Any) -> list[str]:
    found = node_explained(cluster(*objects).prepared(0), "n1", 0)
    assert found is not None
    return [line for sheet in node_sheets(node_view(found)) for line in plain(sheet)]


def test_a_node_says_what_keeps_pods_off() -> None:
    told = lines(node(gpus=1, taints=[("k", "v", "NoSchedule")]), pod("a"), pod("b"))
    assert told[:2] == ["Node n1 takes pods: 0 of 2 pods that wait would fit here alone.", "Taints: k=v:NoSchedule"]
    assert told[-1] == "2      node(s) had untolerated taint(s)   docs/pending.md#taint"


def test_a_node_that_takes_none_says_so() -> None:
    assert lines(node(cordoned=True)) == ["Node n1 is cordoned. No pod waits."]
    assert lines(node(ready=False), pod("a"))[0].startswith("Node n1 is not ready: 0 of 1")


def test_pods_that_fit_alone_wait_for_something_else() -> None:
    assert lines(node(), pod("a"))[0].endswith("; their queue, their gang or other pods keep them waiting.")
