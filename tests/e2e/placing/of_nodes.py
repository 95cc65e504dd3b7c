"""Stories of taints, labels, amounts and ports."""

from __future__ import annotations

from typing import Any, Final

from tests.e2e.bare import Object, node
from tests.e2e.placing.story import Story, expression, matching, nodes, on_nodes, pod, pods, port
from wire import names

_TAINTED: Final = "node(s) had untolerated taint(s)"
_AFFINITY: Final = "node(s) didn't match Pod's node affinity/selector"
_PORTS: Final = "node(s) didn't have free ports for the requested pod ports"


def _taint(key: str, effect: str = "NoSchedule") -> Object:
    return {"key": key, "value": "yes", "effect": effect}


def _tainted(name: str, *keys: str, effect: str = "NoSchedule") -> Object:
    return node(name, taints=[_taint(key, effect) for key in keys])


def _tolerating(*keys: str, **parts: Any) -> Object:
    each = [{"key": key, "operator": "Equal", "value": "yes", "effect": "NoSchedule"} for key in keys]
    return pod(tolerations=each, **parts)


TAINTS: Final = (
    Story("a pod goes to a node whose taint it tolerates", [_tainted("a", "x")], _tolerating("x"), goes="a"),
    Story("a pod waits that tolerates no taint", [_tainted("a", "x")], pod(), says=f"1 {_TAINTED}"),
    Story(
        "a pod waits that tolerates one of two taints",
        [_tainted("a", "x", "y")],
        _tolerating("x"),
        says=f"1 {_TAINTED}",
    ),
    Story(
        "a pod that tolerates both taints of a node goes there",
        [_tainted("a", "x", "y")],
        _tolerating("x", "y"),
        goes="a",
    ),
    Story(
        "one of three tolerations is enough for one taint", [_tainted("a", "x")], _tolerating("w", "x", "y"), goes="a"
    ),
    Story("a toleration of a taint that no node has does no harm", nodes("a"), _tolerating("x"), goes="a"),
    Story(
        "a pod goes to the one node whose taint it tolerates",
        [_tainted("a", "x"), _tainted("b", "y")],
        _tolerating("y"),
        goes="b",
    ),
    Story(
        "a taint that evicts keeps new pods off", [_tainted("a", "x", effect="NoExecute")], pod(), says=f"1 {_TAINTED}"
    ),
    Story(
        "a taint that is only a preference keeps nobody off",
        [_tainted("a", "x", effect="PreferNoSchedule")],
        pod(),
        goes="a",
    ),
    Story(
        "a toleration without a key is for all taints",
        [_tainted("a", "x", "y", effect="NoExecute")],
        pod(tolerations=[{"operator": "Exists"}]),
        goes="a",
    ),
    Story("a cordoned node takes nobody", [node("a", unschedulable=True)], pod(), says="1 node(s) were unschedulable"),
    Story(
        "a cordoned node takes a pod that tolerates cordons",
        [node("a", unschedulable=True)],
        pod(tolerations=[{"key": names.UNSCHEDULABLE_TAINT, "operator": "Exists"}]),
        goes="a",
    ),
)
LABELS: Final = (
    Story(
        "a pod waits whose selector no node has",
        nodes("a b", disk="hdd"),
        pod(nodeSelector={"disk": "ssd"}),
        says=f"2 {_AFFINITY}",
    ),
    Story(
        "a pod goes where its selector is met",
        nodes("a b", disk="hdd ssd"),
        pod(nodeSelector={"disk": "ssd"}),
        goes="b",
    ),
    Story(
        "a pod waits whose node affinity no node meets",
        nodes("a b", disk="hdd"),
        pod(affinity=on_nodes(matching("disk", "In", "ssd", "nvme"))),
        says=f"2 {_AFFINITY}",
    ),
    Story(
        "node affinity takes one of several values",
        nodes("a b", disk="hdd nvme"),
        pod(affinity=on_nodes(matching("disk", "In", "ssd", "nvme"))),
        goes="b",
    ),
    Story(
        "node affinity leaves out a value, and takes a node without the label",
        nodes("a b", disk="ssd -"),
        pod(affinity=on_nodes(matching("disk", "NotIn", "ssd"))),
        goes="b",
    ),
    Story(
        "node affinity asks for a label",
        nodes("a b", disk="- x"),
        pod(affinity=on_nodes(matching("disk", "Exists"))),
        goes="b",
    ),
    Story(
        "node affinity asks for the absence of a label",
        nodes("a b", disk="x"),
        pod(affinity=on_nodes(matching("disk", "DoesNotExist"))),
        says=f"2 {_AFFINITY}",
    ),
    Story(
        "a label is greater than a number",
        nodes("a b c", gen="2 3 x"),
        pod(affinity=on_nodes(matching("gen", "Gt", "2"))),
        goes="b",
    ),
    Story(
        "a label is less than a number",
        nodes("a b c", gen="2 3 x"),
        pod(affinity=on_nodes(matching("gen", "Lt", "3"))),
        goes="a",
    ),
    Story(
        "one of two terms is enough",
        nodes("a b", disk="hdd ssd"),
        pod(affinity=on_nodes(matching("disk", "In", "tape"), matching("disk", "In", "ssd"))),
        goes="b",
    ),
    Story(
        "all expressions of a term have to hold",
        nodes("a b", disk="ssd hdd", gen="1 2"),
        pod(affinity=on_nodes({"matchExpressions": [expression("disk", "In", "ssd"), expression("gen", "In", "2")]})),
        says=f"2 {_AFFINITY}",
    ),
    Story(
        "a node is asked for by its name and a label",
        nodes("a b", disk="ssd"),
        pod(
            affinity=on_nodes(
                {"matchFields": [expression("metadata.name", "In", "b")], **matching("disk", "In", "ssd")}
            )
        ),
        goes="b",
    ),
    Story(
        "selector and affinity have to hold both",
        nodes("a b c", disk="ssd ssd hdd", gen="1 2 2"),
        pod(nodeSelector={"disk": "ssd"}, affinity=on_nodes(matching("gen", "In", "2"))),
        goes="b",
    ),
)
AMOUNTS: Final = (
    Story(
        "a pod waits that asks for more memory than a node has",
        nodes("a"),
        pod(asks={"memory": "9Gi"}),
        says="1 Insufficient memory",
    ),
    Story(
        "a pod that asks for all of a node goes there", nodes("a"), pod(asks={"cpu": "4", "memory": "8Gi"}), goes="a"
    ),
    Story(
        "what runs counts",
        nodes("a b"),
        pod(asks={"cpu": "3"}),
        running=pods("a b", asks={"cpu": "2"}),
        says="2 Insufficient cpu",
    ),
    Story(
        "what runs leaves one node",
        nodes("a b"),
        pod(asks={"cpu": "3"}),
        running=pods("a", asks={"cpu": "2"}),
        goes="b",
    ),
    Story(
        "a node takes as many pods as it says",
        [node("a", allocatable={"pods": "2"})],
        pod(),
        running=pods("a a"),
        says="1 Too many pods",
    ),
    Story(
        "a device of a plug-in is asked for",
        [node("a"), node("b", allocatable={"example.com/fpga": "2"})],
        pod(asks={"example.com/fpga": "2"}),
        goes="b",
    ),
    Story(
        "a pod waits for devices that are in use",
        [node("a", allocatable={"example.com/fpga": "2"})],
        pod(asks={"example.com/fpga": "2"}),
        running=pods("a", asks={"example.com/fpga": "1"}),
        says="1 Insufficient example.com/fpga",
    ),
    Story(
        "storage of a node is counted",
        [node("a", allocatable={"ephemeral-storage": "10Gi"})],
        pod(asks={"ephemeral-storage": "8Gi"}),
        running=pods("a", asks={"ephemeral-storage": "4Gi"}),
        says="1 Insufficient ephemeral-storage",
    ),
    Story(
        "an init container asks for more than the others",
        nodes("a"),
        pod(asks={"cpu": "1"}, initContainers=[{"name": "i", "image": "i", "resources": {"requests": {"cpu": "5"}}}]),
        says="1 Insufficient cpu",
    ),
    Story(
        "a sidecar counts beside the containers",
        nodes("a"),
        pod(
            asks={"cpu": "3"},
            initContainers=[
                {"name": "i", "image": "i", "restartPolicy": "Always", "resources": {"requests": {"cpu": "2"}}}
            ],
        ),
        says="1 Insufficient cpu",
    ),
    Story(
        "what a pod asks as a whole counts rather than its containers",
        nodes("a"),
        pod(asks={"cpu": "1"}, resources={"requests": {"cpu": "5"}}),
        says="1 Insufficient cpu",
    ),
)
PORTS: Final = (
    Story(
        "a port is had once", nodes("a"), pod(ports=[port(80)]), running=pods("a", ports=[port(80)]), says=f"1 {_PORTS}"
    ),
    Story(
        "a port in use leaves the other node",
        nodes("a b"),
        pod(ports=[port(80)]),
        running=pods("a", ports=[port(80)]),
        goes="b",
    ),
    Story("another port is free", nodes("a"), pod(ports=[port(81)]), running=pods("a", ports=[port(80)]), goes="a"),
    Story(
        "the port of another protocol is free",
        nodes("a"),
        pod(ports=[port(80, "UDP")]),
        running=pods("a", ports=[port(80)]),
        goes="a",
    ),
    Story(
        "the port of another address is free",
        nodes("a"),
        pod(ports=[port(80, address="127.0.0.1")]),
        running=pods("a", ports=[port(80, address="10.0.0.1")]),
        goes="a",
    ),
    Story(
        "a port on all addresses meets one on any",
        nodes("a"),
        pod(ports=[port(80, address="0.0.0.0")]),  # noqa: S104 - an address among others
        running=pods("a", ports=[port(80, address="10.0.0.1")]),
        says=f"1 {_PORTS}",
    ),
)
