from __future__ import annotations

from typing import Any

import pytest

from simulator import manifests
from simulator.manifests import MalformedManifest

POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {}\n"
GROUP = "apiVersion: scheduling.run.ai/v2alpha2\nkind: PodGroup\nmetadata: {name: g, namespace: team}\n"
TEMPLATE = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main"}]}}
QUEUE = "apiVersion: scheduling.run.ai/v2\nkind: Queue\nmetadata: {name: q}\n"


def test_documents_are_ordered_for_creation() -> None:
    loaded = manifests.load(f"{POD}---\n---\n{GROUP}---\n{QUEUE}")
    assert [manifest.resource.kind for manifest in loaded] == ["Queue", "PodGroup", "Pod"]
    assert [manifest.namespace for manifest in loaded] == ["", "team", "default"]


def test_a_list_is_read_item_by_item() -> None:
    items = "".join(f"- {{apiVersion: v1, kind: Pod, metadata: {{name: p{i}}}}}\n" for i in range(2))
    loaded = manifests.load(f"apiVersion: v1\nkind: List\nitems:\n{items}")
    assert [manifest.body["metadata"]["name"] for manifest in loaded] == ["p0", "p1"]


JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {name: j, namespace: team}
spec:
  parallelism: 2
  template: {spec: {restartPolicy: Never, containers: [{name: main, image: work}]}}
"""


def test_a_topology_is_there_before_the_gangs_that_name_it() -> None:
    topology = (
        "apiVersion: kai.scheduler/v1alpha1\nkind: Topology\nmetadata: {name: t}\nspec: {levels: [{nodeLabel: a}]}\n"
    )
    group = "apiVersion: scheduling.run.ai/v2alpha2\nkind: PodGroup\nmetadata: {name: g}\nspec: {minMember: 1}\n"
    assert [each.resource.kind for each in manifests.load(f"{group}---\n{topology}")] == ["Topology", "PodGroup"]


def test_a_controller_becomes_its_pods_in_its_namespace() -> None:
    loaded = manifests.load(f"{JOB}---\n{POD}")
    assert [manifest.resource.kind for manifest in loaded] == ["Job", "Pod", "Pod", "Pod"]
    assert [manifest.namespace for manifest in loaded] == ["team", "team", "team", "default"]
    assert [manifest.job for manifest in loaded] == ["", "j", "j", ""]


def test_what_a_simulation_has_no_use_for_is_passed_over_and_counted() -> None:
    reader = manifests.Reader()
    volcano = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "g"}}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}
    pods = {"apiVersion": "v1", "kind": "List", "items": [service, volcano, service]}
    assert reader.read([pods], origin="f.yaml") == []
    (line,) = reader.passed.lines()
    assert line == "passed over, because they make no pods: 2 Service, 1 Queue.scheduling.volcano.sh"


@pytest.mark.parametrize(
    ("kind", "api_version", "spec"),
    [
        ("Job", "batch/v1", {"suspend": True, "template": TEMPLATE}),
        ("JobSet", "jobset.x-k8s.io/v1alpha2", {"suspend": True, "replicatedJobs": []}),
        ("TFJob", "kubeflow.org/v1", {"runPolicy": {"suspend": True}, "tfReplicaSpecs": {}}),
    ],
)
def test_a_suspended_controller_has_no_pods_and_a_line_says_so(
    kind: str, api_version: str, spec: dict[str, Any]
) -> None:
    reader = manifests.Reader()
    document = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "w"}, "spec": spec}
    assert [each for each in reader.read([document], origin="f.yaml") if each.resource.kind == "Pod"] == []
    (line,) = [each for each in reader.passed.lines() if "suspended" in each]
    assert line.startswith(f"without pods, because they are suspended: 1 {kind}")


def test_pods_of_a_foreign_gang_name_a_pod_group_whatever_file_its_own_stands_in() -> None:
    reader = manifests.Reader()
    words = {"labels": {"scheduling.x-k8s.io/pod-group": "llm"}}
    template = {"metadata": words, "spec": {"containers": [{"name": "main", "image": "work"}]}}
    found = reader.read(
        [
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", **words}, "spec": template["spec"]},
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": "d"},
                "spec": {"replicas": 2, "template": template},
            },
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "b", "namespace": "other", **words}, "spec": {}},
        ],
        origin="pods.yaml",
    )
    theirs = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "metadata": {"name": "llm"}}
    found += reader.read([{**theirs, "spec": {"minMember": 3}}], origin="groups.yaml")
    group, *pods = reader.grouped(found)
    assert (group.resource.kind, group.namespace, group.body["spec"]["minMember"]) == ("PodGroup", "default", 3)
    named = [each.body["metadata"].get("annotations", {}).get("pod-group-name", "") for each in pods]
    assert named == [*["pg-coscheduling-llm"] * 3, ""]
    (line,) = reader.passed.lines()
    assert line == (
        "no PodGroup for pods.yaml document 3: Pod other/b: PodGroup llm of scheduling.x-k8s.io, "
        "metadata.labels[scheduling.x-k8s.io/pod-group], does not exist"
    )


def test_a_pod_that_comes_later_is_told_from_the_first_ones() -> None:
    loaded = manifests.load(JOB.replace("  parallelism", "  completions: 3\n  parallelism"))
    assert [manifest.is_later for manifest in loaded] == [False, False, False, True]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\n",
            "f.yaml: Deployment default/d: spec.template has to be a pod template with spec.containers",
        ),
        (
            "apiVersion: apps/v1alpha1\nkind: Deployment\nmetadata: {name: d}\n",
            "f.yaml: apiVersion 'apps/v1alpha1' of Deployment: Deployment is apps/v1",
        ),
        ("kind: Job\n", "f.yaml: apiVersion None of Job: Job is batch/v1"),
        (POD.replace("v1", "v2"), "f.yaml: apiVersion 'v2' of Pod: Pod is v1"),
        ("apiVersion: v1\nkind: Pod\n", "f.yaml: Pod without metadata.name"),
        ("apiVersion: v1\nkind: Pod\nmetadata: [1]\n", "f.yaml: Pod without metadata.name"),
        ("just text", "f.yaml: 'just text' is not an object with apiVersion, kind and metadata"),
        (f"{POD}---\n- 1\n", "f.yaml document 2: [1] is not an object with apiVersion, kind and metadata"),
        ("kind: null\n", "f.yaml: kind None: the name of a kind is allowed"),
    ],
)
def test_what_cannot_be_taken_is_named(text: str, message: str) -> None:
    with pytest.raises(MalformedManifest) as caught:
        manifests.load(text, origin="f.yaml")
    assert str(caught.value).startswith(message)


def test_what_is_not_yaml_is_refused_in_one_line() -> None:
    with pytest.raises(MalformedManifest, match=r"^f\.yaml: not YAML: .*$") as caught:
        manifests.load("a: [\n b: c: d", origin="f.yaml")
    assert "\n" not in str(caught.value)


def test_the_owner_of_a_controller_is_no_object_here_so_its_pods_are_grouped_by_the_controller_itself() -> None:
    """As ``kubectl get rayclusters -o yaml`` shows one that a RayJob made."""
    owner = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "job", "uid": "u", "controller": True}
    spec = {"headGroupSpec": {"template": TEMPLATE}}
    meta = {"name": "cluster", "ownerReferences": [owner]}
    reader = manifests.Reader()
    found = reader.read([{"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": meta, "spec": spec}], origin="f")
    assert [each.resource.kind for each in found] == ["PodGroup", "Pod"]
    assert not [line for line in reader.passed.lines() if line.startswith("no PodGroup")]


def test_an_object_as_kubectl_prints_it_is_created_anew() -> None:
    stored = {"resourceVersion": "7", "uid": "u", "ownerReferences": [{"kind": "RayCluster", "uid": "v"}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"a": "b"}, **stored}, **TEMPLATE}
    (made,) = manifests.read([pod])
    assert made.body["metadata"] == {"name": "p", "labels": {"a": "b"}}
