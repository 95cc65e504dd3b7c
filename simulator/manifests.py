"""Manifests as people write them: YAML with any number of documents, read into what is to be created.

Kubernetes' own controllers are expanded to the pods that they make (kubernetes.py), and those of other projects that
the table of workloads knows (controllers/); kinds that a simulation has no use for are passed over, and counted.

Workloads of Kueue, taken as admitted: Kueue itself is not simulated.

Kueue suspends a workload with a queue, or puts a gate on a plain pod, until it admits it. Facts:
Kueue's docs, Tasks, Run.

Claims that a provisioner would bind: simulated as if it had, with a volume that can be used on any node.

A claim without a volume is bound by what its StorageClass names, and nobody of that runs here. Claims are left as they
are where the manifests say more: a volume, or the class itself. Facts: Kubernetes, Dynamic Volume Provisioning.

Older API versions whose form is the same as the current one: manifests of them are read as the current version.

Today's clusters refuse them. Facts: Kubernetes' deprecated API migration guide; releases of Kubeflow's operators,
JobSet, Argo Workflows and Volcano.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import yaml
from typing_extensions import override

from gpu.manifests import MALFORMED, read_pod
from kube.client.resources import (
    CONFIG_MAPS,
    CSI_NODES,
    DEVICE_CLASSES,
    JOBS,
    NAMESPACES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    QUEUES,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    STORAGE_CLASSES,
    TOPOLOGIES,
    Resource,
)
from podgrouper.core import answers
from podgrouper.core.answers import Group
from podgrouper.core.files import Gangs
from podgrouper.core.foreign.gangs import OBJECTS as FOREIGN_GROUPS
from simulator import installation
from simulator.controllers import argo, registry, wrappers
from simulator.controllers.kubernetes import Expander, api_version_of
from simulator.controllers.pods import Made, Malformed, child
from simulator.controllers.registry import Passed, group_made, marked
from simulator.installation import SERVICE_ACCOUNTS
from simulator.nodes.api_access import SECRETS
from simulator.nodes.shape import NodeShape
from wire import names
from wire.yaml_text import why_not_yaml

QUEUE: Final = "kueue.x-k8s.io/queue-name"
_GATE: Final = "kueue.x-k8s.io/admission"


def admitted_by_kueue(obj: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an object as Kueue leaves it when it has admitted it; the same object if Kueue holds it not back.

    Kueue holds back what has a queue and is suspended (``spec.suspend``, ``spec.runPolicy.suspend``) or has its gate.
    """
    if not child(child(child(obj, "metadata"), "labels"), QUEUE):
        return obj
    spec = child(obj, "spec")
    if obj.get("kind") == "Pod":
        return _without_gate(obj, child(spec, "schedulingGates"))
    policy = child(spec, "runPolicy")
    if child(spec, "suspend") is True:
        return {**obj, "spec": {**spec, "suspend": False}}
    if child(policy, "suspend") is True:
        return {**obj, "spec": {**spec, "runPolicy": {**policy, "suspend": False}}}
    return obj


def _without_gate(pod: Mapping[str, Any], gates: object) -> Mapping[str, Any]:
    listed = gates if isinstance(gates, list) else []
    left = [gate for gate in listed if child(gate, "name") != _GATE]
    return pod if len(left) == len(listed) else {**pod, "spec": {**pod["spec"], "schedulingGates": left}}


Json = Mapping[str, Any]


def is_provisioned(claim: Json, classes: Collection[str]) -> bool:
    """Whether a provisioner would make a volume for a claim. ``classes``: StorageClasses that the manifests bring.

    ``storageClassName: ""`` asks for a volume that somebody has made.
    """
    spec, meta = child(claim, "spec"), child(claim, "metadata")
    written = child(child(meta, "annotations"), names.OLD_STORAGE_CLASS) or child(spec, "storageClassName")
    has_volume = child(spec, "volumeName") or child(child(meta, "annotations"), names.BIND_COMPLETED)
    return not has_volume and written != "" and written not in classes


def provisioned(claim: Json, namespace: str) -> tuple[Json, Json]:
    """Return the volume that a provisioner makes for a claim, and the claim bound to it."""
    meta, spec = claim["metadata"], child(claim, "spec") or {}
    volume = f"pvc-{namespace}-{meta['name']}"
    annotations = {**(meta.get("annotations") or {}), names.BIND_COMPLETED: "yes"}
    bound = {**claim, "metadata": {**meta, "annotations": annotations}, "spec": {**spec, "volumeName": volume}}
    made = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": volume},
        "spec": {
            "accessModes": spec.get("accessModes"),
            "capacity": child(spec.get("resources"), "requests"),
            "claimRef": {"namespace": namespace, "name": meta["name"]},
        },
    }
    return made, bound


_APPS: Final = ("Deployment", "DaemonSet", "ReplicaSet", "StatefulSet")
#: Older version and kind -> the current version.
_CURRENT: Final[Mapping[tuple[str, str], str]] = {
    **{
        (version, kind): "apps/v1"
        for version in ("extensions/v1beta1", "apps/v1beta1", "apps/v1beta2")
        for kind in _APPS
    },
    **{(version, "CronJob"): "batch/v1" for version in ("batch/v1beta1", "batch/v2alpha1")},
    **{
        (f"scheduling.k8s.io/{version}", "PriorityClass"): "scheduling.k8s.io/v1" for version in ("v1alpha1", "v1beta1")
    },
    **{("storage.k8s.io/v1beta1", kind): "storage.k8s.io/v1" for kind in ("StorageClass", "CSINode")},
    **{
        ("resource.k8s.io/v1beta2", kind): "resource.k8s.io/v1"
        for kind in ("DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice")
    },
    **{(f"kubeflow.org/{version}", "TFJob"): "kubeflow.org/v1" for version in ("v1alpha2", "v1beta1", "v1beta2")},
    **{(f"kubeflow.org/{version}", "PyTorchJob"): "kubeflow.org/v1" for version in ("v1beta1", "v1beta2")},
    ("kubeflow.org/v1alpha2", "MPIJob"): "kubeflow.org/v1",
    ("xgboostjob.kubeflow.org/v1alpha1", "XGBoostJob"): "kubeflow.org/v1",
    ("jobset.x-k8s.io/v1alpha1", "JobSet"): "jobset.x-k8s.io/v1alpha2",
    ("argoproj.io/v1", "Workflow"): "argoproj.io/v1alpha1",
    # kube-batch, from which Volcano came.
    **{
        (f"scheduling.incubator.k8s.io/{version}", "PodGroup"): "scheduling.volcano.sh/v1beta1"
        for version in ("v1alpha1", "v1alpha2")
    },
}

#: Versions of another form, which are passed over: their pods wait for what they make on a cluster.
OTHER_FORM: Final = frozenset({f"resource.k8s.io/{version}" for version in ("v1alpha2", "v1alpha3", "v1beta1")})


def current(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an object in the current version of its kind; the same object where it has that, or another form."""
    version = _CURRENT.get((str(document.get("apiVersion")), str(document.get("kind"))))
    return document if version is None else {**document, "apiVersion": version}


#: In the order of creation: what others refer to comes first.
KINDS: Final[tuple[Resource[Any], ...]] = (
    NAMESPACES,
    PRIORITY_CLASSES,
    QUEUES,
    TOPOLOGIES,
    SERVICE_ACCOUNTS,
    CONFIG_MAPS,
    SECRETS,
    STORAGE_CLASSES,
    CSI_NODES,
    PERSISTENT_VOLUMES,
    PERSISTENT_VOLUME_CLAIMS,
    DEVICE_CLASSES,
    RESOURCE_SLICES,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    POD_GROUPS,
    JOBS,
    PODS,
)
_BY_KIND: Final = {resource.kind: resource for resource in KINDS}
#: libyaml where PyYAML has it: far quicker, at thousands of pods.
_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
DEFAULT_NAMESPACE: Final = "default"
#: Fields of an object's metadata that are true only on the cluster where it is stored. Owners are no objects here, and
#: what they own is deleted.
_STORED: Final = frozenset({"resourceVersion", "uid", "ownerReferences"})


class MalformedManifest(ValueError):
    """Raised when a document can't be taken; names the place, the value and what is allowed."""


class Manifest(msgspec.Struct, frozen=True):
    """One object to be created. ``origin`` says where it was read, for messages.

    ``job``: name of the Job that makes this pod; the pod needs the UID that the API server gives it. ``is_later``: the
    pod is made when another one of its Job has succeeded.
    """

    resource: Resource[Any]
    namespace: str
    body: Mapping[str, Any]
    origin: str
    job: str = ""
    is_later: bool = False

    @override
    def __str__(self) -> str:
        """Name the object and where it came from."""
        metadata = self.body["metadata"]
        name = metadata.get("name") or f"{metadata.get('generateName')}..."
        place = f"{self.namespace}/{name}" if self.namespace else name
        return f"{self.origin}: {self.resource.kind} {place}"


def load(text: str, *, origin: str = "manifest") -> list[Manifest]:
    """Read all documents of a text, ordered for creation. Raises MalformedManifest."""
    try:
        documents = list(yaml.load_all(text, Loader=_LOADER))
    except yaml.YAMLError as error:
        raise MalformedManifest(f"{origin}: not YAML: {why_not_yaml(error)}") from error
    return read(documents, origin=origin)


def read(documents: Sequence[object], *, origin: str = "manifest") -> list[Manifest]:
    """Read the documents of one text, ordered for creation. Raises MalformedManifest."""
    reader = Reader()
    return reader.grouped(reader.read(documents, origin=origin))


class Reader:
    """Reads any number of texts. ``passed``: what was passed over in them; the limit of pods holds for all together.

    ``nodes``: those of the cluster, on which DaemonSets have their pods.
    """

    def __init__(self, nodes: Sequence[NodeShape] = ()) -> None:
        self.passed = Passed()
        self._expander = Expander(nodes)
        self._gangs = Gangs()
        self._templates = argo.WorkflowTemplates()
        #: Workflows that have the templates of another object, and where they stand: it may come after them.
        self._referring: list[tuple[Mapping[str, Any], str]] = []

    def read(self, documents: Sequence[object], *, origin: str) -> list[Manifest]:
        """Read the documents of one text, in their order. Raises MalformedManifest."""
        manifests = []
        for number, document in enumerate(documents, start=1):
            place = f"{origin} document {number}" if len(documents) > 1 else origin
            for item in _items(document, place):
                self._templates.note(item)
                for each in self._unwrapped(item, place):
                    if argo.refers(each):
                        self._referring.append((each, place))
                    else:
                        manifests += self._read(self._current(each), place)
        return manifests

    def _referred(self) -> Iterator[Manifest]:
        """Yield what comes of Workflows that have the templates of another object."""
        for workflow, place in self._referring:
            about = _about(workflow, _namespace(workflow, place, is_namespaced=True))
            try:
                found = self._templates.resolved(workflow)
            except Malformed as error:
                raise MalformedManifest(f"{place}: {about}: {error}") from error
            if isinstance(found, str):
                self.passed.note_missing(about, found)
                continue
            for each in self._unwrapped(found, place):
                yield from self._read(self._current(each), place)
        self._referring.clear()

    def _current(self, document: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the object in the current version of its kind, and as one that Kueue has admitted."""
        found = current(document)
        if found is not document:
            self.passed.note_older(document, found["apiVersion"])
        admitted = admitted_by_kueue(found)
        if admitted is not found:
            self.passed.note_admitted(found)
        return admitted

    def _unwrapped(self, document: Mapping[str, Any], place: str) -> Sequence[Mapping[str, Any]]:
        """Return what is created of an object that brings manifests along: one level, so that this ends."""
        try:
            found = wrappers.inner(document)
        except Malformed as error:
            raise MalformedManifest(f"{place}: {document['kind']}: {error}") from error
        return [document] if found is None else found

    def _read(self, document: Mapping[str, Any], place: str) -> list[Manifest]:
        kind, api_version = document.get("kind"), document.get("apiVersion")
        if not (isinstance(kind, str) and kind):
            raise MalformedManifest(f"{place}: kind {_shown(kind)}: the name of a kind is allowed")
        if api_version in OTHER_FORM:
            self.passed.note(document)
            return []
        resource = _BY_KIND.get(kind)
        expanded = api_version_of(kind)
        expected = expanded or (resource.api_version if resource else "")
        if expected and _is_meant(api_version, expected):
            if api_version != expected:
                raise MalformedManifest(f"{place}: apiVersion {_shown(api_version)} of {kind}: {kind} is {expected}")
            namespace = _namespace(document, place, is_namespaced=resource is None or resource.namespaced)
            if expanded:
                return self._expanded(document, namespace, place)
            return [_checked(Manifest(_BY_KIND[kind], namespace, _new(document), place))]
        if (api_version, kind) in FOREIGN_GROUPS:
            self._gangs.note(document, _namespace(document, place, is_namespaced=True))
            return []
        if registry.is_known(api_version, kind):
            return self._workload(document, _namespace(document, place, is_namespaced=True), place)
        self.passed.note(document)
        return []

    def grouped(self, found: Sequence[Manifest]) -> list[Manifest]:
        """Return all that was read, with PodGroups of foreign gangs and ServiceAccounts; in order of creation.

        Pods name the PodGroups; accounts are made for pods whose account is not among the manifests. Raises
        MalformedManifest for a Workflow that has the templates of another object.
        """
        found = [*found, *self._referred()]
        groups: dict[tuple[str, str], Manifest] = {}
        pods: list[Manifest] = []
        for each in found:
            answer = self._gangs.answer(each.body, each.namespace) if each.resource is PODS else None
            if isinstance(answer, Group):
                made = group_made(answer.pod_group)
                groups.setdefault(
                    (each.namespace, answer.pod_group.metadata.name), _manifest(made, each.namespace, each.origin)
                )
                pods.append(msgspec.structs.replace(each, body=marked(each.body, answer)))
                continue
            if answer is not None:
                self.passed.note_ungrouped(str(each), answers.told(answer))
            pods.append(each)
        return in_order([*groups.values(), *self._accounts(pods), *self._bound(pods)])

    def _bound(self, found: Sequence[Manifest]) -> Iterator[Manifest]:
        """Yield what is there, with claims bound that a provisioner would bind, each after its volume."""
        classes = {str(each.body["metadata"].get("name")) for each in found if each.resource is STORAGE_CLASSES}
        has_volumes = any(each.resource is PERSISTENT_VOLUMES for each in found)
        for each in found:
            is_claim = each.resource is PERSISTENT_VOLUME_CLAIMS and bool(each.body["metadata"].get("name"))
            if not is_claim or has_volumes or not is_provisioned(each.body, classes):
                yield each
                continue
            volume, claim = provisioned(each.body, each.namespace)
            self.passed.note_bound(each.body)
            yield Manifest(PERSISTENT_VOLUMES, "", volume, each.origin)
            yield msgspec.structs.replace(each, body=claim)

    def _accounts(self, found: Sequence[Manifest]) -> list[Manifest]:
        """Make the ServiceAccounts that pods name and nothing brings: on a cluster somebody has made them before."""
        pods = [(each.namespace, each.body) for each in found if each.resource is PODS]
        present = {
            (each.namespace, str(each.body["metadata"].get("name")))
            for each in found
            if each.resource is SERVICE_ACCOUNTS
        }
        made = installation.missing(pods, present)
        self.passed.note_accounts(made)
        return [Manifest(SERVICE_ACCOUNTS, at, installation.account(name), "named by a pod") for at, name in made]

    def _workload(self, controller: Mapping[str, Any], namespace: str, place: str) -> list[Manifest]:
        """Return the pods of a workload of another project's kind, and the PodGroups that start them together."""
        about = _about(controller, namespace)
        self.passed.note_expanded(controller)
        controller = _alone(controller)
        try:
            workload = registry.expand(self._expander.named(controller), namespace, self._expander.charge)
        except Malformed as error:
            raise MalformedManifest(f"{place}: {about}: {error}") from error
        self.passed.note_made(controller, about, workload)
        return [_manifest(each, namespace, f"{place}: {about}") for each in workload.made()]

    def _expanded(self, controller: Mapping[str, Any], namespace: str, place: str) -> list[Manifest]:
        name = _about(controller, namespace)
        self.passed.note_expanded(controller)
        controller = _alone(controller)
        try:
            made = self._expander.expand(controller)
        except Malformed as error:
            raise MalformedManifest(f"{place}: {name}: {error}") from error
        origin = f"{place}: {name}"
        return [_manifest(each, namespace, origin) for each in made]


def _about(controller: Mapping[str, Any], namespace: str) -> str:
    meta = controller["metadata"]
    return f"{controller['kind']} {namespace}/{meta.get('name') or meta.get('generateName')}"


def _alone(controller: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a controller without the owner that ``kubectl get`` shows, since that is no object here."""
    return _without(controller, frozenset({"ownerReferences"}))


def _new(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an object, perhaps one that ``kubectl get`` shows, as one to be created."""
    return _without(document, _STORED)


def _without(document: Mapping[str, Any], fields: frozenset[str]) -> Mapping[str, Any]:
    meta = document["metadata"]
    if fields.isdisjoint(meta):
        return document
    return {**document, "metadata": {field: value for field, value in meta.items() if field not in fields}}


def _manifest(made: Made, namespace: str, origin: str) -> Manifest:
    return Manifest(made.resource, namespace, made.body, origin, made.job, made.is_later)


def adopted(manifests: Sequence[Manifest]) -> list[Manifest]:
    """Return manifests whose pods are all Moorage's, whichever scheduler they name, but for those that bring a node."""
    return [_ours(each) if each.resource is PODS else each for each in manifests]


def _ours(pod: Manifest) -> Manifest:
    spec = pod.body["spec"]
    if spec.get("nodeName"):
        return pod
    return msgspec.structs.replace(pod, body={**pod.body, "spec": {**spec, "schedulerName": names.SCHEDULER_NAME}})


def in_order(manifests: Sequence[Manifest]) -> list[Manifest]:
    """Sort for creation by kind; within a kind the order stays."""
    rank = {resource.kind: i for i, resource in enumerate(KINDS)}
    return sorted(manifests, key=lambda manifest: rank[manifest.resource.kind])


def _items(document: object, place: str) -> Iterator[Mapping[str, Any]]:
    """Yield the objects of a document: none of an empty one, all of a List."""
    if document is None:
        return
    if not isinstance(document, Mapping):
        raise MalformedManifest(f"{place}: {_shown(document)} is not an object with apiVersion, kind and metadata")
    if document.get("kind") != "List":
        yield document
        return
    for item in document.get("items") or ():
        yield from _items(item, place)


def _namespace(document: Mapping[str, Any], place: str, *, is_namespaced: bool) -> str:
    """Check that an object has a name, and return its namespace; "" without namespaces. Raises MalformedManifest."""
    metadata = document.get("metadata")
    if not isinstance(metadata, Mapping) or not (metadata.get("name") or metadata.get("generateName")):
        raise MalformedManifest(f"{place}: {document['kind']} without metadata.name")
    return str(metadata.get("namespace") or DEFAULT_NAMESPACE) if is_namespaced else ""


def _checked(manifest: Manifest) -> Manifest:
    if manifest.resource is PODS:
        _, malformed = read_pod(manifest.body)
        if malformed:
            raise MalformedManifest(f"{manifest}: {MALFORMED}: {malformed}")
    return manifest


def _is_meant(api_version: object, expected: str) -> bool:
    """Whether an apiVersion is meant to be that of a kind: of its group, of Kubernetes' own ones (no dot), or none."""
    group = api_version.rpartition("/")[0] if isinstance(api_version, str) else ""
    return "." not in group or group == expected.rpartition("/")[0]


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
