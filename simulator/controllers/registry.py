"""What becomes of workloads in a simulation: their pods, with the PodGroups that the podgrouper would give them.

Pods are made for the controllers that are known here. What is passed over, and why, is counted for the lines that say
so.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from gpu import manifests
from gpu.translation import shown
from kube.client.resources import JOBS, POD_GROUPS, PODS
from podgrouper.core import answers, fields
from podgrouper.core.answers import Group, Nothing, Refusal, Why
from podgrouper.core.foreign import gangs
from podgrouper.core.grouping import group
from podgrouper.core.kinds import is_unread, pods_of
from podgrouper.core.owner_chain import Absent, Read
from podgrouper.core.rule_input import Pods
from simulator.controllers import jobs, roles, wrappers
from simulator.controllers.pods import (
    Charge,
    Expand,
    Json,
    Made,
    Malformed,
    Placed,
    Template,
    child,
    identity,
    marks,
    named,
    objects,
    owner_of,
    placed,
    read_template,
    stored,
)
from wire import names
from wire.crds.podgroup import PodGroup
from wire.gangs import IN_ORDER, waits_for_itself
from wire.go import parse_int

#: The name of a container that has none.
_MAIN: Final = "main"
#: KServe's name of the container of a model server, which is merged with the field for it.
_OF_MODEL: Final = "kserve-container"
#: What a field for the main container has of a container.
_OF_CONTAINERS: Final = ("name", "image", "resources", "env", "envFrom", "command", "args")


def has_template(api_version: object, kind: object) -> bool:
    """Whether pods of this kind are made here."""
    return bool(pods_of(str(api_version), str(kind)))


def expand_template(controller: Json, charge: Charge) -> Iterator[Placed]:
    """Yield the pods that an object describes. Raises Malformed."""
    for described in _described(controller):
        spec, pods = child(controller, "spec"), described.pods
        stopped = child(child(controller.get("metadata"), "annotations"), pods.stopped) or "false"
        if stopped == "false" and (not pods.unless or fields.at(spec, pods.unless) is None):
            yield from _pods(described, charge)


def written_templates(obj: Json) -> Iterator[tuple[str, Json]]:
    """Yield pod templates of specs in an object, with their paths. Raises Malformed."""
    for described in _described(obj):
        raw, path = described.field(described.pods.template)
        if described.pods.is_spec and raw is not None:
            yield path, _template(obj, raw, path, described.pods).raw


def _described(controller: Json) -> Iterator[_Described]:
    for pods in pods_of(str(controller.get("apiVersion")), str(controller.get("kind"))):
        if not pods.each:
            yield _Described(controller, pods)
            continue
        listed = fields.at(child(controller, "spec"), pods.each)
        for at, item in enumerate(objects(listed, f"spec.{pods.each}")):
            yield _Described(controller, pods, item, f"spec.{pods.each}[{at}]")


class _Described(msgspec.Struct, frozen=True):
    """Pods of one sort of an object; ``item``: that of a list which describes them, at ``place``."""

    controller: Json
    pods: Pods
    item: Json | None = None
    place: str = "spec"

    def field(self, path: str) -> tuple[Any, str]:
        """Return the value of a field, and its path from the object."""
        if path.startswith("."):
            return fields.at(self.item, path[1:]), f"{self.place}{path}"
        return fields.at(child(self.controller, "spec"), path), f"spec.{path}"

    def count(self, path: str) -> int:
        """Return a number, 1 where there is none. Raises Malformed."""
        value, full = self.field(path)
        if value is None:
            return 1
        if type(value) is not int or value < 0:
            raise Malformed(f"{full} is {shown(repr(value))}; a number of 0 or more is allowed")
        return value


def _pods(described: _Described, charge: Charge) -> Iterator[Placed]:
    controller, pods = described.controller, described.pods
    raw, path = described.field(pods.template)
    if raw is None and len(pods_of(controller["apiVersion"], controller["kind"])) > 1:
        return
    template = _template(controller, raw, path, pods)
    count = _scale(template, pods.scale) if pods.scale else math.prod(map(described.count, pods.counts))
    charge(count, path, template)
    name = controller["metadata"]["name"]
    if described.item is not None:
        name = f"{name}-{named(described.item, described.place)}"
    elif pods.is_spec and not pods.template.startswith("template"):
        name = f"{name}-{pods.template.partition('.')[0]}"
    owners = _template_owners(controller, pods, template, name)
    for index in range(count):
        is_numbered = pods.below[:1] == (("apps/v1", "StatefulSet"),)
        how = {"name": f"{name}-{index}"} if is_numbered else {"generate_name": f"{name}-"}
        yield placed(owners, template, **how)


def _template_owners(controller: Json, pods: Pods, template: Template, name: str) -> list[Json]:
    """The owners of pods, the direct one first."""
    above, owners, like = controller, [controller], {"metadata": marks((template.raw.get("metadata"), template.path))}
    for api_version, kind in reversed(pods.below):
        called = f"{name}-{identity(template.raw)}" if kind == "ReplicaSet" else name
        above = stored(api_version, kind, called, above=above, like=like)
        owners.insert(0, above)
    return owners


def _template(controller: Json, raw: object, path: str, pods: Pods) -> Template:
    if not pods.is_spec and isinstance(raw, Mapping):
        containers = child(child(raw, "spec"), "containers")
        if isinstance(containers, list):
            raw = {**raw, "spec": {**raw["spec"], "containers": [_called(each) for each in containers]}}
        return read_template(raw, path)
    if not isinstance(raw, Mapping):
        return read_template(raw, path)
    main = next((raw[field] for field in pods.container if isinstance(raw.get(field), Mapping)), None)
    spec = {field: value for field, value in raw.items() if field not in pods.container}
    if main is not None:
        beside = [each for each in objects(raw.get("containers"), path) if each.get("name") != _OF_MODEL]
        spec["containers"] = [{field: main[field] for field in _OF_CONTAINERS if field in main}, *beside]
    if isinstance(spec.get("containers"), list):
        spec["containers"] = [_called(each) for each in spec["containers"]]
    copied = ((fields.at(controller, at), at) for at in pods.copied)
    return read_template({"metadata": marks(*copied), "spec": spec}, path)


def _called(container: Any) -> Any:
    """A container with the name and image that its controller gives it where it has none."""
    return {"name": _MAIN, "image": "unknown", **container} if isinstance(container, Mapping) else container


def _scale(template: Template, annotation: str) -> int:
    """How many pods an annotation asks for; one where it does not."""
    text = child(child(template.raw.get("metadata"), "annotations"), annotation)
    return max(1, parse_int(text) or 1) if isinstance(text, str) else 1


_MOST_STEPS: Final = 1_000_000
#: API version and kind -> what makes its pods.
_EXPANDED: Final[Mapping[tuple[str, str], Expand]] = {
    **{("kubeflow.org/v1", kind): jobs.expand_kubeflow for kind in jobs.REPLICAS},
    ("kubeflow.org/v2beta1", "MPIJob"): jobs.expand_kubeflow,
    **{
        (f"ray.io/{version}", kind): roles.expand_ray
        for version in ("v1", "v1alpha1")
        for kind in ("RayCluster", "RayJob", "RayService")
    },
    **{(f"jobset.x-k8s.io/{version}", "JobSet"): jobs.expand_jobset for version in ("v1", "v1alpha2")},
    ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"): roles.expand_lws,
    ("batch.volcano.sh/v1alpha1", "Job"): jobs.expand_volcano,
    **{
        (f"sparkoperator.k8s.io/{version}", "SparkApplication"): roles.expand_spark
        for version in ("v1beta1", "v1beta2")
    },
    ("argoproj.io/v1alpha1", "Workflow"): wrappers.expand,
    ("grove.io/v1alpha1", "PodCliqueSet"): roles.expand_grove,
    **{("kubevirt.io/v1", kind): roles.expand_kubevirt for kind in ("VirtualMachine", "VirtualMachineInstance")},
    ("production-stack.vllm.ai/v1alpha1", "VLLMRuntime"): roles.expand_vllm,
}


#: API group and kind of objects that describe pods in another form than a pod template -> the path to the description,
#: and what makes pod templates of it.
_DESCRIBED: Final[Mapping[tuple[str, str], tuple[str, Callable[[Json, str], Iterator[tuple[str, Json]]]]]] = {
    ("argoproj.io", "Workflow"): ("spec", wrappers.templates),
    ("argoproj.io", "WorkflowTemplate"): ("spec", wrappers.templates),
    ("argoproj.io", "ClusterWorkflowTemplate"): ("spec", wrappers.templates),
    ("argoproj.io", "CronWorkflow"): ("spec.workflowSpec", wrappers.templates),
    ("sparkoperator.k8s.io", "SparkApplication"): ("spec", roles.spark_templates),
    ("sparkoperator.k8s.io", "ScheduledSparkApplication"): ("spec.template", roles.spark_templates),
}


def templates(obj: Json) -> Iterator[tuple[str, Json]]:
    """Yield the pod templates that an object describes in another form, with their paths. Raises Malformed."""
    group = str(obj.get("apiVersion")).rpartition("/")[0]
    path, made = _DESCRIBED.get((group, str(obj.get("kind"))), ("", None))
    spec = fields.at(obj, path)
    if made is not None and isinstance(spec, Mapping):
        yield from made(spec, path)
    yield from written_templates(obj)


class Member(msgspec.Struct, frozen=True):
    """A pod, the sub-group that it belongs to, and the path of its template."""

    made: Made
    pod_group: PodGroup | None
    part: str = ""
    template: str = ""


class Workload(msgspec.Struct, frozen=True):
    """What becomes of one workload. ``beside``: objects made before its pods. ``why``: why some get no PodGroup.

    ``is_refused``: since a value is not allowed.
    """

    beside: list[Made]
    members: list[Member]
    why: str = ""
    is_refused: bool = False

    @property
    def pod_groups(self) -> list[PodGroup]:
        """Its PodGroups, each once."""
        found = {each.pod_group.metadata.name: each.pod_group for each in self.members if each.pod_group is not None}
        return list(found.values())

    def made(self) -> Iterator[Made]:
        """Yield all objects in the order of their creation."""
        for each in self.pod_groups:
            yield group_made(each)
        yield from self.beside
        for member in self.members:
            yield member.made


def group_made(group: PodGroup) -> Made:
    """Return a PodGroup as it is created: its owner is not stored here, and an object without its owner is deleted."""
    meta = msgspec.structs.replace(group.metadata, owner_references=None)
    return Made(msgspec.to_builtins(msgspec.structs.replace(group, metadata=meta)), POD_GROUPS)


def is_known(api_version: object, kind: object) -> bool:
    """Whether pods of this kind are made here."""
    return (api_version, kind) in _EXPANDED or has_template(api_version, kind)


def expand(controller: Json, namespace: str, charge: Charge) -> Workload:
    """Return what the controller of a workload makes, and how it is grouped. Raises Malformed."""
    api_version, kind, name = controller["apiVersion"], controller["kind"], controller["metadata"]["name"]
    top = stored(api_version, kind, name, like=controller)
    templates: list[str] = []

    def noted(count: int, field: str, template: Template) -> None:
        templates.append(template.path)
        charge(count, field, template)

    made = list(_EXPANDED.get((api_version, kind), expand_template)(top, noted))
    pods = sum(each.made.resource is PODS for each in made)
    _bound(pods, len(templates))
    return _grouped(made, namespace, pods)


def grouped(controller: Json, namespace: str, made: Sequence[Made]) -> Workload:
    """Return what a controller of Kubernetes itself makes, with the PodGroups of the pods that state more than one."""
    kind, name = controller["kind"], controller["metadata"]["name"]
    if kind not in _GROUPED:
        return Workload([], [Member(each, None) for each in made])
    policy = fields.at(controller, "spec.podManagementPolicy")
    annotations = fields.annotations_of(controller)
    if kind == "StatefulSet" and waits_for_itself(annotations, policy):
        # In the words of the policy that refuses it on a cluster (admission/policies.py).
        said = f"metadata.annotations[{names.BATCH_MIN_MEMBER}] is"
        raise Malformed(f'{said} "{shown(annotations[names.BATCH_MIN_MEMBER])}"; allowed: {IN_ORDER}')
    top = stored(_GROUPED[kind], kind, name, like=controller)
    jobs = {each.body["metadata"]["name"]: each.body for each in made if each.resource is JOBS}
    path = "spec.jobTemplate.spec.template" if kind == "CronJob" else "spec.template"
    listed = [Placed(each, _owners(each, top, jobs) if each.resource is PODS else (), path) for each in made]
    pods = [each for each in listed if each.made.resource is PODS]
    if pods and gangs.asks(pods[0].made.body):
        # Which is read with all PodGroups of other schedulers (podgrouper/core/files.py).
        return Workload([each.made for each in listed if each not in pods], [Member(each.made, None) for each in pods])
    return _grouped(listed, namespace, len(pods))


#: Kinds of Kubernetes whose pods are grouped -> their API version.
_GROUPED: Final = {
    **dict.fromkeys(("Deployment", "ReplicaSet", "StatefulSet"), "apps/v1"),
    **dict.fromkeys(("Job", "CronJob"), "batch/v1"),
}


def _owners(pod: Made, top: Json, jobs: Mapping[str, Json]) -> list[Json]:
    """The owners of a pod, the direct one first: below a Deployment a ReplicaSet, below a CronJob a Job."""
    direct = pod.body["metadata"]["ownerReferences"][0]
    if direct["kind"] == top["kind"]:
        return [top]
    like = jobs.get(direct["name"])
    return [stored(direct["apiVersion"], direct["kind"], direct["name"], above=top, like=like), top]


def _grouped(placed: Sequence[Placed], namespace: str, pods: int) -> Workload:
    beside: list[Made] = []
    members: list[Member] = []
    groups: dict[str, PodGroup] = {}
    why, is_refused = "", False
    for number, each in enumerate(placed):
        if each.made.resource is not PODS:
            beside.append(each.made)
            continue
        pod = _as_stored(each, namespace, number)
        answer = group(pod, _read(each))
        if names.POD_GROUP_NAME in (pod["metadata"].get("annotations") or {}):
            members.append(Member(each.made, None, template=each.template))
        elif isinstance(answer, Group):
            name = answer.pod_group.metadata.name
            if name not in groups:
                _bound(pods, len(answer.pod_group.spec.sub_groups or ()))
                groups[name] = answer.pod_group
            grouped = groups[name]
            body = marked(each.made.body, Group(grouped, answer.part))
            made = msgspec.structs.replace(each.made, body=body)
            members.append(Member(made, grouped, answer.part, each.template))
        else:
            why, is_refused = answers.told(answer), is_refused or isinstance(answer, Refusal)
            members.append(Member(each.made, None, template=each.template))
    return Workload(beside, members, why, is_refused)


def _bound(pods: int, parts: int) -> None:
    """Refuse what would take too long: each pod is grouped on its own, by a rule that looks at all parts."""
    if pods * parts > _MOST_STEPS:
        raise Malformed(f"{pods} pods in {parts} parts; at most {_MOST_STEPS} as a product are simulated")


def _as_stored(each: Placed, namespace: str, number: int) -> Json:
    """Return a pod as the rules of grouping see it: with its namespace, a name and the UID of its owner.

    ``number`` stands for the end of a generated name.
    """
    meta = each.made.body["metadata"]
    owner = each.owners[0]["metadata"]
    references = [{**reference, "uid": owner["uid"]} for reference in meta["ownerReferences"]]
    name = meta.get("name") or f"{meta['generateName']}{number}"
    known = {"name": name, "namespace": namespace, "uid": owner_of("v1", "Pod", name)["uid"]}
    return {**each.made.body, "metadata": {**meta, **known, "ownerReferences": references}}


def _read(each: Placed) -> Read:
    owners = {
        owner["metadata"]["uid"]: Absent.FORBIDDEN if is_unread(owner["apiVersion"], owner["kind"]) else owner
        for owner in each.owners
    }
    top = each.owners[-1]
    # All pods come at once here, the launcher of an MPIJob too.
    launcher = ("batch", "Job", f"{top['metadata']['name']}-launcher")
    beside = {(one["apiVersion"].partition("/")[0], one["kind"], one["metadata"]["name"]): one for one in each.beside}
    return Read(owners=owners, named={launcher: top, **beside})


def marked(pod: Json, answer: Group) -> Json:
    """Return a pod that names its PodGroup, and its part."""
    meta: dict[str, Any] = dict(pod["metadata"])
    meta["annotations"] = {**(meta.get("annotations") or {}), names.POD_GROUP_NAME: answer.pod_group.metadata.name}
    if answer.part:
        meta["labels"] = {**(meta.get("labels") or {}), names.SUBGROUP_LABEL: answer.part}
    return {**pod, "metadata": meta}


#: Most kinds that one line names.
_MOST_NAMED: Final = 10
#: A kind of a group with this ending, or without a dot in it, is Kubernetes' own and is named without its group.
_OWN: Final = ".k8s.io"


class Passed:
    """Counts by kind."""

    def __init__(self) -> None:
        self._without_pods: Counter[str] = Counter()
        self._without_controller: Counter[str] = Counter()
        self._unknown: Counter[str] = Counter()
        self._made: Counter[str] = Counter()
        self._pods: Counter[str] = Counter()
        self._older: Counter[str] = Counter()
        self._suspended: Counter[str] = Counter()
        self._in_order: Counter[str] = Counter()
        self._admitted: Counter[str] = Counter()
        self._bound: Counter[str] = Counter()
        self._not_grouped: list[str] = []
        self._accounts: list[tuple[str, str]] = []
        self._missing: list[str] = []

    def note(self, obj: Mapping[str, Any]) -> None:
        """Note an object that is neither created nor expanded."""
        has_pods = next(manifests.templates(obj), None) is not None
        has_controller = "." in _name(obj)
        counts = self._without_controller if has_pods else self._unknown if has_controller else self._without_pods
        counts[_name(obj)] += 1

    def note_older(self, obj: Mapping[str, Any], version: str) -> None:
        """Note an object that is read as one of a newer version of its kind."""
        self._older[f"{obj['kind']} of {obj['apiVersion']} as {version}"] += 1

    def note_expanded(self, obj: Mapping[str, Any]) -> None:
        """Note a controller that is expanded: whether it is suspended, as Kueue gets its jobs."""
        spec = obj.get("spec")
        if child(spec, "suspend") is True or child(child(spec, "runPolicy"), "suspend") is True:
            self._suspended[_name(obj)] += 1

    def note_admitted(self, obj: Mapping[str, Any]) -> None:
        """Note an object that Kueue would hold back until it admits it."""
        self._admitted[_name(obj)] += 1

    def note_bound(self, claim: Mapping[str, Any]) -> None:
        """Note a claim that is taken as bound."""
        self._bound[_name(claim)] += 1

    def note_made(self, obj: Mapping[str, Any], about: str, workload: Workload) -> None:
        """Note a workload whose pods are made; ``about``: its kind, namespace and name."""
        self._made[_name(obj)] += 1
        self._pods[_name(obj)] += len(workload.members)
        self.note_why(about, workload)

    def note_why(self, about: str, workload: Workload) -> None:
        """Note pods of a workload that get no PodGroup, unless each of them is scheduled alone."""
        if workload.why and workload.why != answers.told(Nothing(Why.ALONE)):
            self._not_grouped.append(f"{shown(about)}: {workload.why}")

    def note_in_order(self, obj: Mapping[str, Any], pods: int) -> None:
        """Note pods of a controller that are made only once the one before is ready."""
        if pods:
            self._in_order[_name(obj)] += pods

    def note_ungrouped(self, about: str, why: str) -> None:
        """Note a pod that gets no PodGroup; ``about``: where it stands, kind, namespace and name."""
        self._not_grouped.append(f"{shown(about)}: {why}")

    def note_missing(self, about: str, missing: str) -> None:
        """Note a workload without pods, and the object that it needs; ``about``: its kind, namespace and name."""
        self._missing.append(f"{shown(about)}: {missing} is not among the manifests")

    def note_accounts(self, made: Sequence[tuple[str, str]]) -> None:
        """Note ServiceAccounts (namespace, name) that pods name and the manifests lack."""
        self._accounts += made

    def lines(self) -> Iterator[str]:
        """Say what was passed over, a line for each reason."""
        if self._older:
            yield f"read as newer versions: {_counts(self._older)}"
        yield from self._lines_of_made()
        if self._suspended:
            yield f"without pods, because they are suspended: {_counts(self._suspended)}"
        yield from _first("no pods for", self._missing, "workloads")
        yield from _first("no PodGroup for", self._not_grouped, "workloads")
        if self._accounts:
            shown_of = [shown(f"{namespace}/{name}") for namespace, name in self._accounts[:_MOST_NAMED]]
            more = len(self._accounts) - len(shown_of)
            named_as = ", ".join([*shown_of, *([f"{more} more"] if more else [])])
            yield f"ServiceAccounts that pods name and the manifests lack, taken as present: {named_as}"
        if self._without_pods:
            yield f"passed over, because they make no pods: {_counts(self._without_pods)}"
        if self._without_controller:
            why = "their pods are not made, because their controllers are not simulated"
            yield f"{why}: {_counts(self._without_controller)}"
        if self._unknown:
            why = "passed over, with any pods that their controllers make, which are not simulated"
            yield f"{why}: {_counts(self._unknown)}"

    def _lines_of_made(self) -> Iterator[str]:
        """Say which pods are made, and what is taken as done."""
        if self._made:
            pods = {kind: f"{n} pod" if n == 1 else f"{n} pods" for kind, n in self._pods.items()}
            named = [f"{count} {kind} ({pods[kind]})" for kind, count in self._made.most_common()]
            made = "pods made as the controllers would make them, with the PodGroups of 'translate --podgroup'"
            yield f"{made}: {', '.join(named)}"
        if self._admitted:
            yield f"taken as admitted, because Kueue is not simulated: {_counts(self._admitted)}"
        if self._bound:
            yield f"taken as bound, because no provisioner is simulated: {_counts(self._bound)}"
        for kind, count in self._in_order.items():
            made = "made one after another, each once the one before is ready (podManagementPolicy OrderedReady)"
            yield f"{made}: {count} {'pod' if count == 1 else 'pods'} of {kind}"


def _first(what: str, named: Sequence[str], plural: str) -> Iterator[str]:
    """Say it of the first, and of how many more."""
    yield from (f"{what} {each}" for each in named[:_MOST_NAMED])
    if len(named) > _MOST_NAMED:
        yield f"{what} {len(named) - _MOST_NAMED} more {plural}"


def _name(obj: Mapping[str, Any]) -> str:
    kind, api_version = shown(str(obj.get("kind"))), obj.get("apiVersion")
    group = api_version.rpartition("/")[0] if isinstance(api_version, str) else ""
    return kind if "." not in group or group.endswith(_OWN) else f"{kind}.{shown(group)}"


def _counts(kinds: Counter[str]) -> str:
    named = [f"{count} {kind}" for kind, count in kinds.most_common(_MOST_NAMED)]
    more = len(kinds) - len(named)
    return ", ".join([*named, *([f"objects of {more} more kinds"] if more > 0 else [])])
