"""A snapshot with other names: none of the old ones is left, and what belongs together still does."""

from __future__ import annotations

import json
import re
from typing import Any, get_args, get_type_hints

import msgspec
import pytest

from cli.snapshots.anonymous import anonymized, expression
from cli.snapshots.fields import kept
from cli.snapshots.file import KIND, PLURALS, VERSION, Saved, write
from scheduler.core.model.pod_class import Demand
from scheduler.core.model.preemption import Action, Moved, Nomination, Place, Victim
from scheduler.core.preemption.nomination_record import Record, read, written
from scheduler.core.queues.use_over_time import UseOverTime, counts_written
from tests.wire.filled import KEY, WORDS, Path, filled
from wire import gangs, names
from wire.core import Node, Pod
from wire.crds.podgroup import PodGroup
from wire.crds.queue import Queue

# That the plan is the same is in tests/simulation/test_snapshots.py.

UID = "0b39a6c9-9a3c-4d6f-a3a2-6b3a4d4f0a11"
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
            "uid": UID,
            "resourceVersion": "1",
            "labels": {"acme.com/app": "acme-llm", "kai.scheduler/queue": "acme-q", "n": "7"},
            "annotations": {
                names.POD_GROUP_NAME: "acme-gang",
                names.GPU_RECORD: record,
                names.TENANTS: book,
                names.CHARGED: '{"queue":"acme-q","preemptible":true,"pool":"acme-pool"}',
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
    nomination = Nomination(
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
        nominations=written(Record(nominations=(nomination,))),
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


def test_models_stay_in_what_says_which_gpus_alone() -> None:
    saved = cluster()
    term = {"matchExpressions": [
        {"key": names.NODE_GPU_PRODUCT, "operator": "In", "values": ["NVIDIA-A100-SXM4-80GB"]},
        {"key": "acme.com/project", "operator": "In", "values": ["H100"]},
    ]}  # fmt: skip
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    made = {
        "metadata": {
            "name": "h100-17-3", "namespace": "L40", "uid": "p", "annotations": {names.HAMI_USE_TYPE: "A100,V100"},
            "labels": {"acme.com/project": "H100", "cost": "CC4711"},
        },
        "spec": {
            "containers": [{"name": "max-super-server"}], "nodeSelector": {names.NODE_GPU_PRODUCT: "T4"},
            "affinity": affinity,
        },
    }  # fmt: skip
    found = anonymized(msgspec.structs.replace(saved, pods=[kept(msgspec.convert(made, Pod))])).pods[0]
    for field in (found.metadata.name, found.metadata.namespace, found.spec.containers[0].name):
        assert re.fullmatch(r"n[0-9]+", field)
    assert (found.metadata.annotations or {})[names.HAMI_USE_TYPE] == "A100,V100"
    assert all(re.fullmatch(r"n[0-9]+", value) for value in (found.metadata.labels or {}).values())
    assert found.spec.node_selector == {names.NODE_GPU_PRODUCT: "T4"}
    kept_of = msgspec.json.encode(found.spec.affinity).decode()
    assert "NVIDIA-A100-SXM4-80GB" in kept_of
    assert "H100" not in kept_of


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
    charged = json.loads(annotations[names.CHARGED])
    assert charged["queue"] == queue.metadata.name
    assert charged["preemptible"]
    assert f'"node":"{node.metadata.name}"' in (group.metadata.annotations or {})[names.PLAN]
    (nomination,) = read(found.nominations or "").record.nominations
    assert (nomination.namespace, nomination.places[0].node) == (pod.metadata.namespace, node.metadata.name)
    assert queue.metadata.name in found.queue_use


def test_uids_numbers_and_times_stay() -> None:
    found = anonymized(cluster())
    assert found.pods[0].metadata.uid == UID
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


class Canaries:
    """A text of its own for each place of an object, in different forms."""

    def __init__(self) -> None:
        self.count = 0

    def at(self, place: Path) -> str:
        self.count += 1
        if place and place[-1] == KEY:
            domain = ("", "canary.example/", "nvidia.com/", "sub.canary.nvidia.com/", "kai.scheduler/")[self.count % 5]
            return f"{domain}canary{self.count}"
        return WORDS.get(place[-1] if place else "", f"canary{self.count}")

    def text(self) -> str:
        self.count += 1
        forms = (
            "canary{}",
            "a/canary{}",
            '{{"canary{}": ["b", "canary-{}", {{"pod": "canary/{}"}}]}}',
            "1, canary{}:2;",
        )
        return forms[self.count % len(forms)].format(*[self.count] * 3)

    def known(self) -> dict[str, str]:
        """A canary under each key that anything reads, and some under keys that only begin as these."""
        keys = {each for each in vars(names).values() if isinstance(each, str) and "/" in each}
        keys |= set(vocabulary_keys())
        return {key: self.text() for key in sorted({*keys, *(f"{key}canary" for key in keys)})}


def vocabulary_keys() -> tuple[str, ...]:
    return (*gangs.ALL, "hami.io/gpu-scheduler-policy", "nvidia.com/use-gputype", "nvidia.com/nouse-gpuuuid")


@pytest.mark.parametrize("plural", PLURALS)
def test_no_text_of_any_field_is_left(plural: str) -> None:
    """What is not known to be harmless is replaced, in fields that nobody has thought of as well."""
    (cls,) = get_args(get_type_hints(Saved)[plural])
    canaries, objects = Canaries(), []
    for more in (canaries.known, dict):
        tree = filled(cls, canaries.at)
        tree["metadata"]["annotations"] = more()
        tree["metadata"]["labels"] = {canaries.at((KEY,)): canaries.text(), **more()}
        objects.append(kept(msgspec.convert(tree, cls)))
    empty = Saved(kind=KIND, version=VERSION, taken_at="2026-11-27T04:00:00Z")
    found = msgspec.structs.replace(empty, **{plural: objects})
    assert len(re.findall("canary", write(found).decode())) > 4
    assert re.findall(r".{0,60}canary.{0,20}", write(anonymized(found)).decode()) == []


def test_no_text_of_the_schedulers_records_is_left() -> None:
    def canary(number: int) -> str:
        return f"canary-{number}"

    nomination = Nomination(
        id=f"{canary(1)}-0",
        action=Action.RECLAIM,
        namespace=canary(2),
        pod_group=canary(3),
        places=(Place(canary(4), canary(5)),),
        victims=(Victim(pod_uid=canary(6), namespace=canary(7), name=canary(8), node=canary(9), owner=canary(10)),),
        moved=(
            Moved(
                pod_uid=canary(18),
                namespace=canary(11),
                owner=canary(12),
                node=canary(13),
                demand=Demand(extended=((canary(14), 1),)),
            ),
        ),
    )
    found = Saved(
        kind=KIND,
        version=VERSION,
        taken_at="2026-11-27T04:00:00Z",
        unread=[canary(15)],
        nominations=written(Record(nominations=(nomination,), evicted={canary(16): (1,)})),
        queue_use=counts_written(UseOverTime(of={canary(17): (1, 2, 3)})),
    )
    assert "canary" not in write(anonymized(found)).decode()
    (after,) = read(anonymized(found).nominations or "").record.nominations
    assert after.places[0].node.startswith("n")


# Other names in selectors: no text is left but words of the language and of NVIDIA, and what is equal stays equal.

_OURS = 'device.attributes["acme.com"]'
_HIDDEN = 'device.attributes["<acme.com>"]'
_THEIRS = 'device.attributes["gpu.nvidia.com"]'


def _rename(text: str) -> str:
    return f"<{text}>"


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (f"{_OURS}.canary == 'large'", f"{_HIDDEN}.<canary> == '<large>'"),
        ("device.driver == r'acme.com'", "device.driver == r'<acme.com>'"),
        ('device.driver in ["""acme""", "b"]', 'device.driver in ["""<acme>""", "<b>"]'),
        # A quote in a text does not end it, and a comment is no text.
        (r"""device.driver == 'it\'s "acme"'""", r"""device.driver == '<it>\'<s> "<acme>"'"""),
        ("true // it's acme's\n&& true", "true \n&& true"),
        ("device.driver == 'a//b'", "device.driver == 'a//<b>'"),
        ("[1].exists(canary, canary == 1)", "[1].exists(<canary>, <canary> == 1)"),
        # Models of GPUs are no secret, and stay readable for patterns; other words in the same places are names.
        (f"{_THEIRS}.productName.matches('^H100')", f"{_THEIRS}.productName.matches('^H100')"),
        (
            f"{_THEIRS}.productName.lowerAscii().contains('a100')",
            f"{_THEIRS}.productName.lowerAscii().contains('a100')",
        ),
        (f"{_THEIRS}.productName == 'acme'", f"{_THEIRS}.productName == '<acme>'"),
        ("device.driver == 'gpu.nvidia.com'", "device.driver == 'gpu.nvidia.com'"),
        (
            "device.capacity['acme.com'].memory.isGreaterThan(quantity('1Gi'))",
            "device.capacity['<acme.com>'].memory.isGreaterThan(quantity('1Gi'))",
        ),
    ],
)
def test_each_word_of_a_selector_is_a_name(written: str, expected: str) -> None:
    assert expression(written, _rename) == expected
