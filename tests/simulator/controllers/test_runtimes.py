"""Pods of workloads that have templates of another object, or that describe theirs in fields of their own."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from kube.client.resources import POD_GROUPS, PODS
from simulator.manifests import MalformedManifest, Manifest, Reader
from wire import names

Raw = dict[str, Any]
CONTAINER: Raw = {"name": "node", "image": "torch", "env": [{"name": "A", "value": "1"}]}
VERSION = "trainer.kubeflow.org/v1alpha1"


def read(*objects: Raw) -> tuple[list[Manifest], list[str]]:
    reader = Reader()
    found = reader.grouped([each for obj in objects for each in reader.read([obj], origin="f")])
    return found, list(reader.passed.lines())


def pods(found: list[Manifest]) -> list[Any]:
    return [each.body for each in found if each.resource is PODS]


def replicated(name: str, container: Raw, *, is_step: bool = True) -> Raw:
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"} if is_step else {}
    spec = {"template": {"spec": {"containers": [container]}}}
    return {"name": name, "template": {"metadata": {"labels": labels}, "spec": spec}}


def runtime(*jobs: Raw, kind: str = "ClusterTrainingRuntime", **policy: Any) -> Raw:
    spec = {"mlPolicy": policy, "template": {"spec": {"replicatedJobs": list(jobs)}}}
    return {"apiVersion": VERSION, "kind": kind, "metadata": {"name": "r", "namespace": "team"}, "spec": spec}


def train_job(trainer: Raw, namespace: str = "team", **ref: Any) -> Raw:
    meta = {"name": "t", "namespace": namespace, "labels": {names.QUEUE_LABEL: "q"}}
    spec = {"runtimeRef": {"name": "r", **ref}, "trainer": trainer}
    return {"apiVersion": VERSION, "kind": "TrainJob", "metadata": meta, "spec": spec}


TORCH = runtime(replicated("node", CONTAINER), numNodes=2, torch={})
GPUS = {"limits": {"nvidia.com/gpu": "4"}}


@pytest.mark.parametrize(
    ("of", "trainer", "count"),
    [
        pytest.param(TORCH, {}, 2, id="as the runtime says"),
        pytest.param(TORCH, {"numNodes": 3}, 3, id="as the trainer says"),
        pytest.param(
            runtime(replicated("launcher", CONTAINER), replicated("node", CONTAINER, is_step=False), mpi={}),
            {"numNodes": 3},
            4,
            id="MPI",
        ),
        pytest.param(
            runtime(
                replicated("launcher", {**CONTAINER, "name": "launcher"}),
                replicated("node", CONTAINER, is_step=False),
                mpi={"runLauncherAsNode": True},
            ),
            {"numNodes": 3},
            3,
            id="MPI with a launcher that is a node",
        ),
    ],
)
def test_a_train_job_makes_the_job_set_of_its_runtime(of: Raw, trainer: Raw, count: int) -> None:
    wanted = train_job({**trainer, "resourcesPerNode": GPUS, "env": [{"name": "A", "value": "2"}]})
    for objects in ((of, wanted), (wanted, of)):
        found, lines = read(*objects)
        made = pods(found)
        assert len(made) == count
        container = made[-1]["spec"]["containers"][0]
        assert (container["resources"], container["env"][0]) == (GPUS, {"name": "A", "value": "2"})
        (group,) = [each for each in found if each.resource is POD_GROUPS]
        assert (group.namespace, group.body["spec"]["queue"]) == ("team", "q")
        assert not any("ClusterTrainingRuntime" in line for line in lines)


@pytest.mark.parametrize(
    ("objects", "missing"),
    [
        ((train_job({}),), "ClusterTrainingRuntime r"),
        ((TORCH, train_job({}, kind="TrainingRuntime")), "TrainingRuntime r"),
        (
            (runtime(kind="TrainingRuntime"), train_job({}, namespace="other", kind="TrainingRuntime")),
            "TrainingRuntime r",
        ),
    ],
)
def test_a_runtime_that_is_missing_is_named(objects: tuple[Raw, ...], missing: str) -> None:
    found, lines = read(*objects)
    assert pods(found) == []
    (line,) = [line for line in lines if line.startswith("no pods for TrainJob")]
    assert line.endswith(f"{missing} is not among the manifests")


def test_a_reference_to_another_kind_is_refused() -> None:
    with pytest.raises(MalformedManifest, match=r"spec.runtimeRef is .*; allowed: the name of one of"):
        read(train_job({}, kind="Other"))


def clique(name: str, replicas: int, **spec: Any) -> Raw:
    return {"name": name, "labels": {"role": name}, "spec": {"replicas": replicas, "podSpec": POD, **spec}}


POD: Raw = {"containers": [{"name": "c", "image": "x"}]}
CLIQUES = [clique("front", 2, minAvailable=1), clique("leader", 1), clique("worker", 3)]
GROUP = {"name": "g", "cliqueNames": ["leader", "worker"], "replicas": 2, "minAvailable": 1}


def clique_set(replicas: int, *groups: Raw) -> Raw:
    template = {"cliques": CLIQUES, "podCliqueScalingGroups": list(groups)}
    return {
        "apiVersion": "grove.io/v1alpha1",
        "kind": "PodCliqueSet",
        "metadata": {"name": "s", "labels": {names.QUEUE_LABEL: "q"}},
        "spec": {"replicas": replicas, "template": template},
    }


def parts(found: list[Manifest]) -> dict[str, dict[str, int]]:
    return {
        each.body["metadata"]["name"].partition("-")[2]: {
            part["name"]: part["minMember"] for part in each.body["spec"]["subGroups"]
        }
        for each in found
        if each.resource is POD_GROUPS
    }


def test_a_pod_clique_set_has_a_gang_for_each_replica_and_each_further_one_of_a_scaling_group() -> None:
    found, _ = read(clique_set(1, GROUP))
    base, scaled = parts(found).values()
    assert base == {"s-0-front": 1, "s-0-g-0-leader": 1, "s-0-g-0-worker": 3}
    assert scaled == {"s-0-g-1-leader": 1, "s-0-g-1-worker": 3}
    of = [(pod["metadata"]["labels"]["grove.io/podgang"], pod["metadata"]["labels"]["role"]) for pod in pods(found)]
    assert of.count(("s-0", "worker")) == of.count(("s-0-g-0", "worker")) == 3
    assert of.count(("s-0", "front")) == 2


def test_replicas_of_a_pod_clique_set_are_gangs_of_their_own() -> None:
    found, _ = read(clique_set(2))
    assert [sum(each.values()) for each in parts(found).values()] == [5, 5]
    assert len(pods(found)) == 12
    assert pods(read(clique_set(0))[0]) == []


def test_a_scaling_group_of_unknown_cliques_is_refused() -> None:
    with pytest.raises(MalformedManifest, match=r"podCliqueScalingGroups\[0\].cliqueNames is .*; a list of names of"):
        read(clique_set(1, {**GROUP, "cliqueNames": ["none"]}))


def obj(api_version: str, kind: str, spec: Raw, **meta: Any) -> Raw:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "w", **meta}, "spec": spec}


def machine(kind: str = "VirtualMachine", *, spec: Raw | None = None, **domain: Any) -> Raw:
    made: Raw = {"schedulerName": "kai-scheduler", "domain": domain}
    if kind != "VirtualMachine":
        return obj("kubevirt.io/v1", kind, made)
    return obj("kubevirt.io/v1", kind, {"template": {"metadata": {"labels": {"a": "b"}}, "spec": made}, **(spec or {})})


TWO_GPUS = {"gpus": [{"name": "a", "deviceName": "nvidia.com/A10"}, {"name": "b", "deviceName": "nvidia.com/A10"}]}


@pytest.mark.parametrize(
    ("domain", "resources"),
    [
        pytest.param({}, {"limits": {}, "requests": {"cpu": "100m"}}, id="one virtual CPU"),
        pytest.param(
            {"devices": TWO_GPUS, "cpu": {"cores": 4, "threads": 2}, "memory": {"guest": "8Gi"}},
            {"limits": {"nvidia.com/A10": "2"}, "requests": {"cpu": "800m", "memory": "8Gi"}},
            id="devices, CPUs and memory",
        ),
        pytest.param(
            {"resources": {"requests": {"cpu": "3", "memory": "2Gi"}}, "memory": {"guest": "8Gi"}},
            {"limits": {}, "requests": {"cpu": "3", "memory": "2Gi"}},
            id="what it requests",
        ),
        pytest.param(
            {"devices": {"gpus": [{"name": "a", "claimName": "c", "requestName": "r"}]}},
            {"limits": {}, "requests": {"cpu": "100m"}, "claims": [{"name": "c", "request": "r"}]},
            id="a device by a claim",
        ),
    ],
)
def test_a_virtual_machine_has_one_pod_with_its_devices(domain: Raw, resources: Raw) -> None:
    for of in (machine(spec={"runStrategy": "Always"}, **domain), machine("VirtualMachineInstance", **domain)):
        (pod,) = pods(read(of)[0])
        assert pod["metadata"]["generateName"] == "virt-launcher-w-"
        assert pod["metadata"]["ownerReferences"][0]["kind"] == "VirtualMachineInstance"
        assert (pod["spec"]["schedulerName"], pod["spec"]["containers"][0]["resources"]) == ("kai-scheduler", resources)


@pytest.mark.parametrize(
    ("spec", "count"),
    [({"running": True}, 1), ({"running": False}, 0), ({"runStrategy": "Halted"}, 0), ({"runStrategy": "Manual"}, 0)],
)
def test_a_virtual_machine_runs_as_its_strategy_says(spec: Raw, count: int) -> None:
    assert len(pods(read(machine(spec=spec))[0])) == count


def test_a_device_without_a_name_is_refused() -> None:
    with pytest.raises(MalformedManifest, match=r"devices.gpus\[0\].deviceName is None; a name is allowed"):
        read(machine("VirtualMachineInstance", devices={"gpus": [{"name": "a"}]}))


def test_a_vllm_runtime_has_the_pods_of_its_deployment() -> None:
    config = {
        "replicas": 2,
        "resources": {"cpu": "4", "memory": "16Gi", "gpu": "1"},
        "toleration": [{"key": "gpu", "operator": "Exists"}],
        "sidecarConfig": {"enabled": True, "resources": {"cpu": "1"}},
    }
    of = obj("production-stack.vllm.ai/v1alpha1", "VLLMRuntime", {"deploymentConfig": config}, labels={"a": "b"})
    made = pods(read(of)[0])
    assert len(made) == 2
    server, sidecar = (each["resources"]["limits"] for each in made[0]["spec"]["containers"])
    assert server == {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "1"}
    assert sidecar == {"cpu": "1", "memory": "128Mi"}
    labels = made[0]["metadata"]["labels"]
    assert {"app": "w", "a": "b"}.items() <= labels.items()
    assert made[0]["metadata"]["ownerReferences"][0]["name"] == f"w-{labels['pod-template-hash']}"
    assert made[0]["spec"]["tolerations"] == config["toleration"]


VLLM: Raw = {
    "resources": {"cpu": "4", "gpu": "1", "gpuType": "nvidia.com/gpu"},
    "sidecarConfig": {"enabled": True, "resources": {"cpu": "1"}},
}
KSERVE: Raw = {"labels": {"e": "f"}, "model": {"image": "i"}, "containers": [{"name": "side", "image": "k"}]}
TRAINER: Raw = {"env": [{"name": "A", "value": "2"}], "resourcesPerNode": GPUS}
MANY = [
    [TORCH, train_job(TRAINER)],
    [clique_set(1, GROUP)],
    [machine(spec={"runStrategy": "Always"}, devices=TWO_GPUS, resources={"requests": {"cpu": "3"}})],
    [obj("production-stack.vllm.ai/v1alpha1", "VLLMRuntime", {"deploymentConfig": VLLM}, labels={"a": "b"})],
    [obj("serving.kserve.io/v1beta1", "InferenceService", {"predictor": KSERVE}, labels={"a": "b"})],
]


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield all that is in a value, with its key or number."""
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from places(value[key])


@pytest.mark.parametrize("objects", MANY, ids=[each[-1]["kind"] for each in MANY])
@pytest.mark.parametrize("wrong", [1, "x", ["x"]], ids=["number", "text", "list"])
def test_a_value_of_another_type_is_refused_or_taken_and_no_accident(objects: list[Raw], wrong: Any) -> None:
    refused, read_all = 0, copy.deepcopy(objects)
    for holder, key in [*places(read_all)]:
        kept, holder[key] = holder[key], wrong
        try:
            read(*read_all)
        except MalformedManifest:
            refused += 1
        holder[key] = kept
    assert refused > 3
