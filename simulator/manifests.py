"""Manifests as people write them: YAML with any number of documents, read into what is to be created.

Kubernetes' own controllers are expanded to the pods that they make (kubernetes.py), and those of other projects that
the table of workloads knows (controllers/). Kinds that a simulation has no use for are passed over, and counted. Kueue
is not simulated: its workloads are taken as admitted. Manifests of older API versions are read as the current version
of their kind, as Kubernetes' deprecated API migration guide and the releases of the projects have it
(``resource.k8s.io/v1beta1``: KEP-4381, KEP-4816), although most clusters refuse them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import yaml
from typing_extensions import override

from gpu.manifests import MALFORMED, read_pod, without_nulls
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
from simulator.controllers import jobs, refusals, registry, wrappers
from simulator.controllers.kube_controllers import Storage
from simulator.controllers.kubernetes import Expander, api_version_of
from simulator.controllers.pods import Made, Malformed, child
from simulator.controllers.registry import Passed, group_made, marked
from simulator.installation import RUNTIME_CLASSES, SERVICE_ACCOUNTS
from simulator.nodes.api_access import SECRETS
from simulator.nodes.shape import NodeShape
from wire import names
from wire.core import Node
from wire.yaml_text import why_not_yaml

Json = Mapping[str, Any]

_APPS: Final = ("Deployment", "DaemonSet", "ReplicaSet", "StatefulSet")
#: Versions of them in which a selector could be left out.
_DEFAULTED: Final = frozenset({"extensions/v1beta1", "apps/v1beta1"})
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
OTHER_FORM: Final = frozenset({f"resource.k8s.io/{version}" for version in ("v1alpha2", "v1alpha3")})
_CLAIMS: Final = "resource.k8s.io/v1"
_BETA: Final = "resource.k8s.io/v1beta1"
#: Of a request in a claim: what is not about the devices that it asks for.
_BESIDE: Final = frozenset({"name", "firstAvailable", "exactly"})


def current(document: Json) -> Json:
    """Return an object in the current version of its kind; the same object where it has that, or another form."""
    api_version, kind = str(document.get("apiVersion")), str(document.get("kind"))
    if api_version == _BETA and kind in _CONVERTED:
        return {**_CONVERTED[kind](document), "apiVersion": _CLAIMS}
    version = _CURRENT.get((api_version, kind))
    if version is None:
        return document
    is_defaulted = kind in _APPS and api_version in _DEFAULTED
    return {**(_with_selector(document) if is_defaulted else document), "apiVersion": version}


def _with_selector(obj: Json) -> Json:
    """A workload with the labels of its template as its selector, unless it has one, as old versions had it."""
    spec = child(obj, "spec")
    labels = child(child(child(spec, "template"), "metadata"), "labels")
    if not (isinstance(spec, Mapping) and labels) or spec.get("selector") is not None:
        return obj
    return {**obj, "spec": {**spec, "selector": {"matchLabels": labels}}}


def _claim(obj: Json) -> Json:
    """A ResourceClaim: what a request asks for stands below ``exactly`` now."""
    spec = child(obj, "spec")
    requests = child(child(spec, "devices"), "requests")
    if not isinstance(requests, list):
        return obj
    return {**obj, "spec": {**spec, "devices": {**spec["devices"], "requests": [_request(each) for each in requests]}}}


def _request(request: Any) -> Any:
    asked = {key: value for key, value in request.items() if key not in _BESIDE} if isinstance(request, Mapping) else {}
    if not asked:
        return request
    return {**{key: value for key, value in request.items() if key in _BESIDE}, "exactly": asked}


def _template(obj: Json) -> Json:
    spec = child(obj, "spec")
    return {**obj, "spec": {**spec, **_claim({"spec": child(spec, "spec")})}} if isinstance(spec, Mapping) else obj


def _slice(obj: Json) -> Json:
    """A ResourceSlice: what a device has stood below ``basic`` then."""
    spec, devices = child(obj, "spec"), child(child(obj, "spec"), "devices")
    if not isinstance(devices, list):
        return obj
    return {**obj, "spec": {**spec, "devices": [_device(each) for each in devices]}}


def _device(device: Any) -> Any:
    basic = child(device, "basic")
    if not isinstance(basic, Mapping):
        return device
    return {**{key: value for key, value in device.items() if key != "basic"}, **basic}


_CONVERTED: Final[Mapping[str, Callable[[Json], Json]]] = {
    "ResourceClaim": _claim,
    "ResourceClaimTemplate": _template,
    "ResourceSlice": _slice,
    "DeviceClass": lambda obj: obj,
}


QUEUE: Final = "kueue.x-k8s.io/queue-name"
_GATE: Final = "kueue.x-k8s.io/admission"


def admitted_by_kueue(obj: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an object as Kueue leaves it when it has admitted it; the same object if Kueue holds it not back.

    Kueue holds back what has a queue and is suspended (``spec.suspend``, ``spec.runPolicy.suspend``), and a plain pod
    with its gate. Facts: Kueue's docs, Tasks, Run.
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


#: In the order of creation: what others refer to comes first.
KINDS: Final[tuple[Resource[Any], ...]] = (
    NAMESPACES,
    PRIORITY_CLASSES,
    RUNTIME_CLASSES,
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
_STORED: Final = frozenset({
    "resourceVersion", "uid", "ownerReferences", "creationTimestamp", "generation", "managedFields", "selfLink",
    "deletionTimestamp", "deletionGracePeriodSeconds",
})  # fmt: skip


#: What labels and annotations begin with that a pod gets when it is bound.
_OF_BINDINGS: Final = (
    names.GRANT,
    names.CHARGED,
    names.GPU_PORTION_ANNOTATION,
    names.RECEIVED_RESOURCE_TYPE,
    names.VISIBLE_DEVICES_PREFIX,
    names.ENV_PREFIX,
    names.GPU_GROUP_LABEL,
)


class MalformedManifest(ValueError):
    """Raised when a document can't be taken; names the place, the value and what is allowed."""


class Manifest(msgspec.Struct, frozen=True):
    """One object to be created. ``origin`` says where it was read, for messages.

    ``job``: name of the Job that makes this pod; the pod needs the UID that the API server gives it. ``is_later``: the
    pod is made when another one of its Job has succeeded. ``after``: name of the pod that has to be ready before.
    """

    resource: Resource[Any]
    namespace: str
    body: Mapping[str, Any]
    origin: str
    job: str = ""
    is_later: bool = False
    after: str = ""

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

    def __init__(self, nodes: Sequence[NodeShape | Node] = ()) -> None:
        self.passed = Passed()
        self._expander = Expander(nodes)
        self._gangs = Gangs()
        self._templates = wrappers.WorkflowTemplates()
        self._runtimes = jobs.Runtimes()
        #: Workflows and TrainJobs that have templates of another object, and where they stand: it may come after them.
        self._referring: list[tuple[Mapping[str, Any], str]] = []
        #: Claims that controllers make where there is none of that name.
        self._claims: list[Manifest] = []

    def read(self, documents: Sequence[object], *, origin: str) -> list[Manifest]:
        """Read the documents of one text, in their order. Raises MalformedManifest."""
        manifests = []
        for number, document in enumerate(documents, start=1):
            place = f"{origin} document {number}" if len(documents) > 1 else origin
            for item in _items(document, place):
                self._templates.note(item)
                if self._runtimes.note(item):
                    continue
                for each in self._unwrapped(item, place):
                    if wrappers.refers(each) or jobs.refers(each):
                        self._referring.append((each, place))
                    else:
                        manifests += self._read(self._current(each), place)
        return manifests

    def _referred(self) -> Iterator[Manifest]:
        """Yield what comes of Workflows and TrainJobs that have templates of another object."""
        for obj, place in self._referring:
            about = _about(obj, _namespace(obj, place, is_namespaced=True))
            try:
                found = (self._runtimes if jobs.refers(obj) else self._templates).resolved(obj)
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
        if not isinstance(api_version, str | None):
            raise MalformedManifest(
                f"{place}: apiVersion {_shown(api_version)} of {kind}: a group and version are allowed"
            )
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
            return [_checked(Manifest(_BY_KIND[kind], namespace, without_nulls(_new(document)), place))]
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
        claims = {(each.namespace, each.body["metadata"].get("name")) for each in found if _is_claim(each)}
        found += [each for each in self._claims if (each.namespace, each.body["metadata"]["name"]) not in claims]
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
        storage = storage_of(found)
        for each in found:
            is_claim = _is_claim(each) and bool(each.body["metadata"].get("name"))
            bound = storage.bound(each.body, each.namespace) if is_claim else None
            if bound is None:
                yield each
                continue
            volume, claim = bound
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
        controller = _new(controller)
        try:
            workload = registry.expand(self._expander.named(controller), namespace, self._expander.charge)
        except Malformed as error:
            raise MalformedManifest(f"{place}: {about}: {error}") from error
        self.passed.note_made(controller, about, workload)
        return [_manifest(each, namespace, f"{place}: {about}") for each in workload.made()]

    def _expanded(self, controller: Mapping[str, Any], namespace: str, place: str) -> list[Manifest]:
        name = _about(controller, namespace)
        self.passed.note_expanded(controller)
        try:
            controller = self._expander.named(_new(controller))
            refusals.check(controller)
            workload = registry.grouped(controller, namespace, self._expander.expand(controller))
        except Malformed as error:
            raise MalformedManifest(f"{place}: {name}: {error}") from error
        self.passed.note_why(name, workload)
        origin = f"{place}: {name}"
        manifests = [_manifest(each, namespace, origin) for each in workload.made()]
        self.passed.note_in_order(controller, sum(bool(each.after) for each in manifests))
        self._claims += filter(_is_claim, manifests)
        return [each for each in manifests if not _is_claim(each)]


def _is_claim(manifest: Manifest) -> bool:
    return manifest.resource is PERSISTENT_VOLUME_CLAIMS


def storage_of(found: Sequence[Manifest]) -> Storage:
    """Return the StorageClasses and volumes among manifests."""
    classes = [each.body for each in found if each.resource is STORAGE_CLASSES]
    return Storage.of(classes, [each.body for each in found if each.resource is PERSISTENT_VOLUMES])


def _about(controller: Mapping[str, Any], namespace: str) -> str:
    meta = controller["metadata"]
    return f"{controller['kind']} {namespace}/{meta.get('name') or meta.get('generateName')}"


def _new(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an object, perhaps one that ``kubectl get`` shows, as one to be created.

    A pod that was placed is placed again: without its node, and without what its Binding wrote.
    """
    meta = document["metadata"]
    if _STORED.isdisjoint(meta) and "status" not in document:
        return document
    rest = {field: value for field, value in document.items() if field != "status"}
    new = {**rest, "metadata": {field: value for field, value in meta.items() if field not in _STORED}}
    return _unplaced(new) if document.get("kind") == "Pod" and "uid" in meta else new


def _unplaced(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    meta = dict(pod["metadata"])
    for field in ("labels", "annotations"):
        if meta.get(field):
            meta[field] = {key: value for key, value in meta[field].items() if not key.startswith(_OF_BINDINGS)}
    spec = {field: value for field, value in (child(pod, "spec") or {}).items() if field != "nodeName"}
    return {**pod, "metadata": meta, "spec": spec}


def _manifest(made: Made, namespace: str, origin: str) -> Manifest:
    return Manifest(made.resource, namespace, made.body, origin, made.job, made.is_later, made.after)


def adopted(manifests: Sequence[Manifest]) -> list[Manifest]:
    """Return manifests whose pods are all Moorage's, whichever scheduler they name, but for those that bring a node."""
    return [_ours(each) if each.resource is PODS else each for each in manifests]


def _ours(pod: Manifest) -> Manifest:
    spec = pod.body["spec"]
    if spec.get("nodeName"):
        return pod
    return msgspec.structs.replace(pod, body={**pod.body, "spec": {**spec, "schedulerName": names.SCHEDULER_NAME}})


def installed(manifests: Sequence[Manifest]) -> list[Manifest]:
    """Return manifests with what the chart makes: its PriorityClasses, and beside other Queues the default ones."""
    has_queues = any(each.resource is QUEUES for each in manifests)
    made: list[tuple[Resource[Any], list[dict[str, Any]]]] = [
        (PRIORITY_CLASSES, installation.priority_classes()),
        (QUEUES, installation.queues() if has_queues else []),
    ]
    present = {(each.resource.kind, each.body["metadata"].get("name")) for each in manifests}
    added = [
        Manifest(resource, "", body, installation.ORIGIN)
        for resource, bodies in made
        for body in bodies
        if (resource.kind, body["metadata"]["name"]) not in present
    ]
    return in_order([*added, *manifests])


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
