"""ServiceAccounts that pods name."""

from __future__ import annotations

import random
from typing import Any

import pytest

from admission.objects.review import ObjectAdmission
from admission.review import PodAdmission
from admission.settings import Settings
from kube.client.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, POD_GROUPS, PODS, PRIORITY_CLASSES
from simulator import manifests
from simulator.components import hooks, object_hooks
from simulator.installation import SERVICE_ACCOUNTS
from simulator.manifests import MalformedManifest, Manifest, Reader
from tests.admission.pods import env, half, patched, review
from wire import names

POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {}\n"
GROUP = "apiVersion: scheduling.run.ai/v2alpha2\nkind: PodGroup\nmetadata: {name: g, namespace: team}\n"
TEMPLATE = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "work"}]}}
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
    assert [manifest.resource.kind for manifest in loaded] == ["PodGroup", "Job", "Pod", "Pod", "Pod"]
    assert [manifest.namespace for manifest in loaded] == ["team"] * 4 + ["default"]
    assert [manifest.job for manifest in loaded] == ["", "", "j", "j", ""]


def test_what_a_simulation_has_no_use_for_is_passed_over_and_counted() -> None:
    reader = manifests.Reader()
    volcano = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "g"}}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}
    pods = {"apiVersion": "v1", "kind": "List", "items": [service, volcano, service]}
    assert reader.read([pods], origin="f.yaml") == []
    assert list(reader.passed.lines()) == [
        "passed over, because they make no pods: 2 Service",
        "passed over, with any pods that their controllers make, which are not simulated: "
        "1 Queue.scheduling.volcano.sh",
    ]


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
                "spec": {"replicas": 2, "selector": {"matchLabels": words["labels"]}, "template": template},
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
    pods = [manifest for manifest in loaded if manifest.resource is PODS]
    assert [manifest.is_later for manifest in pods] == [False, False, True]


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


def pod(name: str, account: str = "", *, field: str = "serviceAccountName", **meta: Any) -> dict[str, Any]:
    spec = {"containers": [{"name": "c", "image": "x"}], **({field: account} if account else {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **meta}, "spec": spec}


def account(name: str, **meta: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, **meta}}


@pytest.mark.parametrize(
    ("objects", "made", "lines"),
    [
        ([pod("a"), pod("b", "default")], [], []),
        ([account("runner"), pod("a", "runner")], [("default", "runner")], []),
        ([pod("a", "runner"), pod("b", "runner")], [("default", "runner")], ["default/runner"]),
        ([pod("a", "runner", field="serviceAccount")], [("default", "runner")], ["default/runner"]),
        (
            [account("runner"), pod("a", "runner", namespace="team")],
            [("team", "runner"), ("default", "runner")],
            ["team/runner"],
        ),
    ],
    ids=["the namespace's own", "among the manifests", "named by two pods", "by the old field", "in another namespace"],
)
def test_an_account_that_a_pod_names_is_created_and_a_line_names_it_where_the_manifests_lack_it(
    objects: list[dict[str, Any]], made: list[tuple[str, str]], lines: list[str]
) -> None:
    reader = Reader()
    found = reader.grouped(reader.read(objects, origin="f"))
    created = [(each.namespace, each.body["metadata"]["name"]) for each in found if each.resource is SERVICE_ACCOUNTS]
    assert created == made
    told = "ServiceAccounts that pods name and the manifests lack, taken as present: "
    assert list(reader.passed.lines()) == [told + line for line in lines]


def test_a_line_names_ten_accounts() -> None:
    reader = Reader()
    reader.grouped(reader.read([pod(f"p-{at}", f"a-{at}") for at in range(12)], origin="f"))
    (line,) = reader.passed.lines()
    assert line.endswith("default/a-9, 2 more")


def test_accounts_are_created_before_pods() -> None:
    reader = Reader()
    found = reader.grouped(reader.read([pod("a", "runner")], origin="f"))
    assert [each.resource.kind for each in found] == ["ServiceAccount", "Pod"]


# Claims that a provisioner would bind.

LINE = "taken as bound, because no provisioner is simulated: 1 PersistentVolumeClaim"


def claim(annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    size = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    meta = {"name": "data", "namespace": "team", "annotations": annotations or {}}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": {**size, **spec}}


def other(kind: str, name: str, api_version: str = "v1") -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": {}}


def storage_class(name: str, mode: str | None = None, provisioner: str = "disks.example") -> dict[str, Any]:
    written = {"provisioner": provisioner, **({"volumeBindingMode": mode} if mode else {})}
    return {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name}, **written}


def read(*objects: dict[str, Any]) -> tuple[list[Manifest], list[str]]:
    reader = Reader()
    return reader.grouped(reader.read(objects, origin="f")), list(reader.passed.lines())


@pytest.mark.parametrize(
    ("spec", "classes"),
    [
        ({}, []),
        ({"storageClassName": "fast"}, []),
        ({"storageClassName": "fast"}, [storage_class("fast", "Immediate")]),
        ({"storageClassName": "fast"}, [storage_class("fast")]),
    ],
    ids=["the default class", "a class", "a class that binds at once", "a class without a mode"],
)
def test_a_claim_without_a_volume_is_bound_to_one_that_is_made_for_it(
    spec: dict[str, Any], classes: list[dict[str, Any]]
) -> None:
    found, lines = read(claim(**spec), *classes)
    volume, bound = (each for each in found if each.resource in (PERSISTENT_VOLUMES, PERSISTENT_VOLUME_CLAIMS))
    assert (volume.resource, bound.resource) == (PERSISTENT_VOLUMES, PERSISTENT_VOLUME_CLAIMS)
    assert bound.body["spec"]["volumeName"] == volume.body["metadata"]["name"] == "pvc-team-data"
    assert bound.body["metadata"]["annotations"] == {"pv.kubernetes.io/bind-completed": "yes"}
    assert volume.body["spec"]["claimRef"] == {"namespace": "team", "name": "data"}
    assert lines == [LINE]


@pytest.mark.parametrize(
    "objects",
    [
        [claim(volumeName="pv")],
        [claim({"pv.kubernetes.io/bind-completed": "yes"})],
        [claim(storageClassName="")],
        [claim(storageClassName="fast"), storage_class("fast", "WaitForFirstConsumer")],
        [
            claim({"volume.beta.kubernetes.io/storage-class": "fast"}),
            storage_class("fast", "WaitForFirstConsumer"),
        ],
        [claim(storageClassName="fast"), storage_class("fast", provisioner="kubernetes.io/no-provisioner")],
        [
            claim(storageClassName="fast"),
            storage_class("fast"),
            {**other("PersistentVolume", "pv"), "spec": {"storageClassName": "fast"}},
        ],
        [claim(), other("PersistentVolume", "pv")],
    ],
    ids=[
        "names a volume",
        "lost its volume",
        "no class",
        "the class waits for a pod",
        "by annotation",
        "nobody makes volumes of the class",
        "a volume of the class is there",
        "a volume is there",
    ],
)
def test_a_claim_of_which_the_manifests_say_more_stays_as_it_is(objects: list[dict[str, Any]]) -> None:
    found, lines = read(*objects)
    (left,) = [each.body for each in found if each.resource is PERSISTENT_VOLUME_CLAIMS]
    assert left == objects[0]
    assert lines == []


VERSIONS_TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"a": "b"}},
    "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]},
}
SERVING = {**VERSIONS_TEMPLATE, "spec": {"containers": [{"name": "c", "image": "x"}]}}
CRON = {"schedule": "@daily", "jobTemplate": {"spec": {"template": VERSIONS_TEMPLATE}}}
ROLES = {"Worker": {"replicas": 2, "template": VERSIONS_TEMPLATE}}


@pytest.mark.parametrize(
    ("api_version", "kind", "spec", "pods", "line"),
    [
        ("batch/v1beta1", "CronJob", CRON, 1, "CronJob of batch/v1beta1 as batch/v1"),
        (
            "extensions/v1beta1",
            "Deployment",
            {"replicas": 2, "template": SERVING},
            2,
            "Deployment of extensions/v1beta1 as apps/v1",
        ),
        (
            "apps/v1beta2",
            "StatefulSet",
            {"template": SERVING, "selector": {"matchLabels": {"a": "b"}}},
            1,
            "StatefulSet of apps/v1beta2 as apps/v1",
        ),
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
            {
                "replicatedJobs": [
                    {"name": "r", "template": {"spec": {"parallelism": 3, "template": VERSIONS_TEMPLATE}}}
                ]
            },
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
    assert next(reader.passed.lines()) == f"read as newer versions: 1 {line}"


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
        "spec": VERSIONS_TEMPLATE["spec"],
    }
    found = reader.read([{**group, "spec": {"minMember": 4}}, pod], origin="f")
    made = [each for each in reader.grouped(found) if each.resource is POD_GROUPS]
    assert [each.body["spec"]["minMember"] for each in made] == [4]
    line = "1 PodGroup of scheduling.incubator.k8s.io/v1alpha1 as scheduling.volcano.sh/v1beta1"
    assert list(reader.passed.lines()) == [f"read as newer versions: {line}"]


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
        "spec": {"replicas": 2, "template": VERSIONS_TEMPLATE},
    }
    assert reader.read([document], origin="f") == []
    assert "controllers are not simulated: 1 MPIJob.kubeflow.org" in next(reader.passed.lines())
    with pytest.raises(MalformedManifest, match="apiVersion 'batch/v2' of CronJob: CronJob is batch/v1"):
        reader.read([{"apiVersion": "batch/v2", "kind": "CronJob", "metadata": {"name": "w"}}], origin="f")


# Which pods the webhooks of a simulated cluster are asked about.

OURS, OTHERS = half(), half(scheduler="other")
ADOPTS = {names.ADOPT: "true"}
OF_KUBERNETES = {"kubernetes.io/metadata.name": "kube-system"}

ADOPTION, MUTATION, VALIDATION = hooks(PodAdmission(Settings(), rng=random.Random(1)))


@pytest.mark.parametrize(
    ("pod", "labels", "asked"),
    [
        (OURS, {}, [MUTATION, VALIDATION]),
        (OURS, ADOPTS, [MUTATION, VALIDATION]),
        (OTHERS, ADOPTS, [ADOPTION]),
        (OTHERS, {names.ADOPT: "false"}, []),
        (OTHERS, {}, []),
        (OURS, OF_KUBERNETES, []),
        (OTHERS, OF_KUBERNETES | ADOPTS, []),
    ],
)
def test_a_webhook_is_asked_about(pod: dict[str, object], labels: dict[str, str], asked: list[object]) -> None:
    assert [hook for hook in (ADOPTION, MUTATION, VALIDATION) if hook.matches(pod, labels)] == asked


async def test_its_answer_is_the_real_one() -> None:
    assert env(patched(OURS, await MUTATION.review(review(OURS))))


def _of_object(operation: str, *, old: dict[str, Any] | None, new: dict[str, Any] | None) -> dict[str, Any]:
    named = {"metadata": {"name": "a"}}
    objects = {"oldObject": old and {**named, "spec": old}, "object": new and {**named, "spec": new}}
    request = {**review({})["request"], "uid": "u", "name": "a", "operation": operation, **objects}
    return {**review({}), "request": request}


async def test_a_queue_is_judged_where_its_spec_changes() -> None:
    queues, _ = object_hooks(ObjectAdmission())
    wrong: dict[str, Any] = {"resources": {"gpu": {"limit": -2}}}
    stored, refused = _of_object("UPDATE", old=wrong, new=wrong), _of_object("CREATE", old=None, new=wrong)
    assert (await queues.review(stored))["response"]["allowed"]
    assert "spec.resources.gpu.limit" in (await queues.review(refused))["response"]["status"]["message"]


async def test_a_pod_group_is_judged_but_in_namespaces_of_the_system() -> None:
    _, groups = object_hooks(ObjectAdmission())
    wrong = {"minMember": 1, "minSubGroup": 1}
    assert not (await groups.review(_of_object("CREATE", old=None, new=wrong)))["response"]["allowed"]
    assert groups.matches({}, {})
    assert not groups.matches({}, OF_KUBERNETES)
