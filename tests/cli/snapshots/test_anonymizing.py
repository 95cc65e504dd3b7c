"""A snapshot with other names: none of the old ones is left, and what belongs together still does.

That the plan is the same is in tests/simulation/test_snapshots.py.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from cli.snapshots.anonymizing import anonymized
from cli.snapshots.leaving_out import kept
from cli.snapshots.saved import KIND, VERSION, Saved
from scheduler.core.model.room import Action, Intent, Place, Victim
from scheduler.core.queues.use_over_time import UseOverTime, counts_written
from scheduler.core.room.written import Record, read, written
from wire import names
from wire.core import Node, Pod
from wire.crds.podgroup import PodGroup
from wire.crds.queue import Queue

#: Each name of the cluster below has this in it.
NAME = re.compile(r"acme[a-z0-9-]*")


def cluster() -> Saved:
    record = '{"version":1,"dialect":"kai","asks":[{"container":"c0","name":"acme-main","nano":500000000}]}'
    book = '{"u2":{"nano":1,"attempt":"a","rv":"1","since":1,"pod":"acme-team/acme-gone"}}'
    plan = '{"id":"1","members":{"u1":{"node":"acme-node","devices":[]}}}'
    affinity = {"key": "acme.com/rack", "operator": "In", "values": ["acme-r1", "7"]}
    pod: dict[str, Any] = {
        "metadata": {
            "name": "acme-pod",
            "namespace": "acme-team",
            "uid": "u1",
            "resourceVersion": "1",
            "labels": {"acme.com/app": "acme-llm", "kai.scheduler/queue": "acme-q", "n": "7"},
            "annotations": {
                names.POD_GROUP_NAME: "acme-gang",
                names.GPU_RECORD: record,
                names.TENANTS: book,
                names.SHARED_GPU_CONFIGMAP: "acme-map",
                "nvidia.com/container.acme-main.gpu-memory.request": "8Gi",
            },
            "ownerReferences": [{"kind": "Job", "name": "acme-job", "uid": "j"}],
        },
        "spec": {
            "schedulerName": names.SCHEDULER_NAME,
            "containers": [
                {
                    "name": "acme-main",
                    "image": "registry.acme.com/llm:1",
                    "resources": {"limits": {"nvidia.com/gpu": "1"}},
                    "env": [
                        {"name": names.ENV_VISIBLE_DEVICES, "valueFrom": {"configMapKeyRef": {"name": "acme-map-0"}}}
                    ],
                }
            ],
            "nodeSelector": {"acme.com/rack": "acme-r1"},
            "tolerations": [{"key": "acme.com/for", "operator": "Equal", "value": "acme-llm", "effect": "NoSchedule"}],
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{"matchExpressions": [affinity]}]
                    }
                }
            },
            "volumes": [{"name": "acme-vol", "ephemeral": {}}],
        },
    }
    node = {
        "metadata": {
            "name": "acme-node",
            "uid": "n1",
            "labels": {"acme.com/rack": "acme-r1", names.NODE_GPU_PRODUCT: "A100", names.HOSTNAME_LABEL: "acme-node"},
        },
        "spec": {"taints": [{"key": "acme.com/for", "value": "acme-llm", "effect": "NoSchedule"}]},
    }
    group = {
        "metadata": {"name": "acme-gang", "namespace": "acme-team", "uid": "g", "annotations": {names.PLAN: plan}},
        "spec": {"minMember": 1, "queue": "acme-q"},
    }
    intent = Intent(
        id="u1-0",
        action=Action.RECLAIM,
        namespace="acme-team",
        pod_group="acme-gang",
        places=(Place("u1", "acme-node"),),
        victims=(Victim(pod_uid="v", namespace="acme-other", name="acme-victim", node="acme-node", owner="o"),),
    )
    return Saved(
        kind=KIND,
        version=VERSION,
        taken_at="2026-11-27T04:00:00Z",
        unread=["pod acme-team/acme-bad: no"],
        room=written(Record(intents=(intent,))),
        queue_use=counts_written(UseOverTime(of={"acme-q": (1, 2, 3)})),
        nodes=[kept(msgspec.convert(node, Node))],
        pods=[kept(msgspec.convert(pod, Pod))],
        podgroups=[kept(msgspec.convert(group, PodGroup))],
        queues=[msgspec.convert({"metadata": {"name": "acme-q", "uid": "q"}}, Queue)],
    )


def test_no_name_is_left() -> None:
    before = msgspec.json.encode(cluster()).decode()
    assert len(set(NAME.findall(before))) > 12
    after = msgspec.json.encode(anonymized(cluster())).decode()
    assert NAME.findall(after) == []
    assert "A100" in after
    assert names.SCHEDULER_NAME in after


def test_what_belongs_together_still_does() -> None:
    found = anonymized(cluster())
    (pod,), (node,), (group,), (queue,) = found.pods, found.nodes, found.podgroups, found.queues
    labels, annotations = pod.metadata.labels or {}, pod.metadata.annotations or {}
    assert labels[names.QUEUE_LABEL] == queue.metadata.name == group.spec.queue
    assert annotations[names.POD_GROUP_NAME] == group.metadata.name
    assert pod.metadata.namespace == group.metadata.namespace
    assert (pod.spec.node_selector or {}).items() <= (node.metadata.labels or {}).items()
    assert (node.metadata.labels or {})[names.HOSTNAME_LABEL] == node.metadata.name
    assert node.spec.taints
    assert pod.spec.tolerations
    taint, toleration = node.spec.taints[0], pod.spec.tolerations[0]
    assert (taint.key, taint.value) == (toleration.key, toleration.value)
    main = pod.spec.containers[0].name
    assert f'"name":"{main}"' in annotations[names.GPU_RECORD]
    assert f"nvidia.com/container.{main}.gpu-memory.request" in annotations
    variable = (pod.spec.containers[0].env or [])[0].value_from
    assert variable is not None
    assert variable.config_map_key_ref is not None
    assert variable.config_map_key_ref.name.startswith(annotations[names.SHARED_GPU_CONFIGMAP])
    assert f'"node":"{node.metadata.name}"' in (group.metadata.annotations or {})[names.PLAN]
    (intent,) = read(found.room or "").record.intents
    assert (intent.namespace, intent.places[0].node) == (pod.metadata.namespace, node.metadata.name)
    assert queue.metadata.name in found.queue_use


def test_uids_numbers_and_times_stay() -> None:
    found = anonymized(cluster())
    assert found.pods[0].metadata.uid == "u1"
    assert "7" in (found.pods[0].metadata.labels or {}).values()
    assert found.taken_at == "2026-11-27T04:00:00Z"
    assert found.is_anonymized


def test_names_keep_their_order() -> None:
    named = ("b", "node-10", "node-9", "a")
    nodes = [msgspec.convert({"metadata": {"name": name, "uid": name}}, Node) for name in named]
    found = anonymized(Saved(kind=KIND, version=VERSION, taken_at="2026-11-27T04:00:00Z", nodes=nodes))
    renamed = [node.metadata.name for node in found.nodes]
    order = sorted(range(4), key=lambda at: nodes[at].metadata.name)
    assert sorted(range(4), key=lambda at: renamed[at]) == order
