from __future__ import annotations

from typing import Any

import pytest

from kube.client.resources import POD_GROUPS, PODS, PRIORITY_CLASSES
from simulator.manifests import MalformedManifest, Reader

TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"a": "b"}},
    "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]},
}
CRON = {"schedule": "@daily", "jobTemplate": {"spec": {"template": TEMPLATE}}}
ROLES = {"Worker": {"replicas": 2, "template": TEMPLATE}}


@pytest.mark.parametrize(
    ("api_version", "kind", "spec", "pods", "line"),
    [
        ("batch/v1beta1", "CronJob", CRON, 1, "CronJob of batch/v1beta1 as batch/v1"),
        (
            "extensions/v1beta1",
            "Deployment",
            {"replicas": 2, "template": TEMPLATE},
            2,
            "Deployment of extensions/v1beta1 as apps/v1",
        ),
        ("apps/v1beta2", "StatefulSet", {"template": TEMPLATE}, 1, "StatefulSet of apps/v1beta2 as apps/v1"),
        (
            "kubeflow.org/v1beta2",
            "TFJob",
            {"tfReplicaSpecs": ROLES},
            2,
            "TFJob of kubeflow.org/v1beta2 as kubeflow.org/v1",
        ),
        (
            "kubeflow.org/v1alpha2",
            "MPIJob",
            {"mpiReplicaSpecs": ROLES},
            2,
            "MPIJob of kubeflow.org/v1alpha2 as kubeflow.org/v1",
        ),
        (
            "jobset.x-k8s.io/v1alpha1",
            "JobSet",
            {"replicatedJobs": [{"name": "r", "template": {"spec": {"parallelism": 3, "template": TEMPLATE}}}]},
            3,
            "JobSet of jobset.x-k8s.io/v1alpha1 as jobset.x-k8s.io/v1alpha2",
        ),
        (
            "argoproj.io/v1",
            "Workflow",
            {"entrypoint": "a", "templates": [{"name": "a", "container": {"image": "x"}}]},
            1,
            "Workflow of argoproj.io/v1 as argoproj.io/v1alpha1",
        ),
    ],
)
def test_an_older_version_is_read_as_the_current_one_and_a_line_says_so(
    api_version: str, kind: str, spec: dict[str, Any], pods: int, line: str
) -> None:
    reader = Reader()
    found = reader.read(
        [{"apiVersion": api_version, "kind": kind, "metadata": {"name": "w"}, "spec": spec}], origin="f"
    )
    assert sum(each.resource is PODS for each in found) == pods
    assert next(reader.passed.lines()) == f"read as newer versions, because a cluster refuses the older ones: 1 {line}"


def test_an_object_that_is_created_has_the_current_version() -> None:
    reader = Reader()
    document = {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PriorityClass",
        "metadata": {"name": "p"},
        "value": 1,
    }
    (made,) = reader.read([document], origin="f")
    assert (made.resource, made.body["apiVersion"]) == (PRIORITY_CLASSES, "scheduling.k8s.io/v1")


def test_pods_name_a_pod_group_of_kube_batch_as_one_of_volcano() -> None:
    reader = Reader()
    group = {"apiVersion": "scheduling.incubator.k8s.io/v1alpha1", "kind": "PodGroup", "metadata": {"name": "g"}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "annotations": {"scheduling.k8s.io/group-name": "g"}},
        "spec": TEMPLATE["spec"],
    }
    found = reader.read([{**group, "spec": {"minMember": 4}}, pod], origin="f")
    made = [each for each in reader.grouped(found) if each.resource is POD_GROUPS]
    assert [each.body["spec"]["minMember"] for each in made] == [4]
    line = "1 PodGroup of scheduling.incubator.k8s.io/v1alpha1 as scheduling.volcano.sh/v1beta1"
    assert list(reader.passed.lines()) == [f"read as newer versions, because a cluster refuses the older ones: {line}"]


def test_a_current_version_is_not_named() -> None:
    reader = Reader()
    reader.read([{"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "w"}, "spec": CRON}], origin="f")
    assert list(reader.passed.lines()) == []


def test_a_version_of_another_form_is_not_guessed() -> None:
    """Kubeflow's first MPIJob has no replica types: its pods are not made."""
    reader = Reader()
    document = {
        "apiVersion": "kubeflow.org/v1alpha1",
        "kind": "MPIJob",
        "metadata": {"name": "w"},
        "spec": {"replicas": 2, "template": TEMPLATE},
    }
    assert reader.read([document], origin="f") == []
    assert "controllers are not simulated: 1 MPIJob.kubeflow.org" in next(reader.passed.lines())
    with pytest.raises(MalformedManifest, match="apiVersion 'batch/v2' of CronJob: CronJob is batch/v1"):
        reader.read([{"apiVersion": "batch/v2", "kind": "CronJob", "metadata": {"name": "w"}}], origin="f")
