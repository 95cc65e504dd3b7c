"""Stories of pods that wait until something changes."""

from __future__ import annotations

from typing import Final

from tests.e2e.bare import node
from tests.e2e.placing.story import ZONE, Change, Story, apart, matching, near, nodes, pod, pods, port, spread, term

_TAINT: Final = [{"key": "x", "effect": "NoSchedule"}]
_A: Final = {"app": "a"}
_IS_A: Final = matching("app", "In", "a")
_TWO: Final = nodes("n m", zone="z1 z2")
_AFFINITY: Final = "node(s) didn't match Pod's node affinity/selector"
_NEAR: Final = "node(s) didn't match pod affinity rules"

CHANGES: Final = (
    Story(
        "a node is added",
        nodes("a"),
        pod(asks={"cpu": "6"}),
        says="1 Insufficient cpu",
        then=Change("node", "make", body=node("b", allocatable={"cpu": "8"})),
        goes="b",
    ),
    Story(
        "a taint is taken away",
        [node("a", taints=_TAINT)],
        pod(),
        says="1 node(s) had untolerated taint(s)",
        then=Change("node", "patch", "a", {"spec": {"taints": None}}),
        goes="a",
    ),
    Story(
        "a cordon is lifted",
        [node("a", unschedulable=True)],
        pod(),
        says="1 node(s) were unschedulable",
        then=Change("node", "patch", "a", {"spec": {"unschedulable": None}}),
        goes="a",
    ),
    Story(
        "a node gets a label",
        nodes("a"),
        pod(nodeSelector={"disk": "ssd"}),
        says=f"1 {_AFFINITY}",
        then=Change("node", "patch", "a", {"metadata": {"labels": {"disk": "ssd"}}}),
        goes="a",
    ),
    Story(
        "a pod that used the node ends",
        nodes("a"),
        pod(asks={"cpu": "3"}),
        running=pods("a", asks={"cpu": "2"}),
        says="1 Insufficient cpu",
        then=Change("pod", "end", "running-0"),
        goes="a",
    ),
    Story(
        "a pod that used the port ends",
        nodes("a"),
        pod(ports=[port(80)]),
        running=pods("a", ports=[port(80)]),
        says="1 node(s) didn't have free ports for the requested pod ports",
        then=Change("pod", "end", "running-0"),
        goes="a",
    ),
    Story(
        "a pod appears that was asked for",
        _TWO,
        pod(affinity=near(term(_IS_A))),
        says=f"2 {_NEAR}",
        then=Change("pod", "make", body=pod("asked-for", on="m", labels=_A)),
        goes="m",
    ),
    Story(
        "a running pod gets the label that was asked for",
        _TWO,
        pod(affinity=near(term(_IS_A))),
        running=pods("m"),
        says=f"2 {_NEAR}",
        then=Change("pod", "patch", "running-0", {"metadata": {"labels": _A}}),
        goes="m",
    ),
    Story(
        "a pod that was avoided ends",
        nodes("n", zone="z1"),
        pod(affinity=apart(term(_IS_A))),
        running=pods("n", labels=_A),
        says="1 node(s) didn't match pod anti-affinity rules",
        then=Change("pod", "end", "running-0"),
        goes="n",
    ),
    Story(
        "a pod ends that kept others off",
        nodes("n", zone="z1"),
        pod(labels=_A),
        running=pods("n", affinity=apart(term(_IS_A))),
        says="1 node(s) didn't satisfy existing pods anti-affinity rules",
        then=Change("pod", "end", "running-0"),
        goes="n",
    ),
    Story(
        "a pod is added where the spread was too thin",
        [*nodes("n", zone="z1"), node("m", labels={ZONE: "z2"}, taints=_TAINT)],
        pod(labels=_A, topologySpreadConstraints=[spread(ZONE, 1)]),
        running=pods("n", labels=_A),
        says="1 node(s) didn't match pod topology spread constraints",
        then=Change("pod", "make", body=pod("other-zone", on="m", labels=_A)),
        goes="n",
    ),
)
