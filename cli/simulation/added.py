"""Manifests on a cluster as it is: admission judges them, and the scheduler places their pods beside those there.

The outcome names the node and time of each new pod, or why it waits, the evicted pods, and what the queues have left.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import anyio
import msgspec

from admission.settings import Choices
from admission.settings import Settings as AdmissionSettings
from cli.simulation.comparison import UNTOLD, Comparison, PodEnd, Settled
from cli.simulation.manifests import read as read_files
from cli.snapshots.fields import kept
from cli.snapshots.file import PLURALS, Saved
from kube.client import errors
from kube.client.resources import (
    JOBS,
    NAMESPACES,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    QUEUES,
    STORAGE_CLASSES,
    Resource,
)
from runtime.options import manifests as options
from runtime.output import Progress
from runtime.text import BadInput
from scheduler.conditions.advice import link
from scheduler.conditions.messages import told
from scheduler.core.model.quota import UNLIMITED, Resources
from scheduler.core.report.queue_view import Amounts, amounts
from scheduler.core.report.state import QueueState
from simulator import apply, installation, manifests
from simulator.clock import VirtualClock, VirtualTimeLoop
from simulator.installation import RUNTIME_CLASSES
from simulator.manifests import Manifest
from simulator.outcome import OTHER_SCHEDULER
from ui.explain.views import EditView
from ui.queues.tables import GPU, amount
from ui.tables import Cell, Sheet, first_rows
from wire import names
from wire.core import Pod
from wire.crds.podgroup import PodGroup
from wire.units import SECOND_NS

_FAMILY: Final = "manifests"
_CLUSTER: Final = "cluster"
#: Kinds that may not be in the cluster already. What exists of other kinds stays as it is.
_NEW: Final = frozenset({each.plural for each in (PODS, POD_GROUPS, QUEUES, JOBS)})
#: Made by each API server.
_BUILT_IN: Final = "system-"


class Added(msgspec.Struct, frozen=True):
    """Objects as admission leaves them, by the plural of their kind; and what is not as in the cluster, in words."""

    objects: Mapping[str, Sequence[Any]] = {}
    notes: tuple[str, ...] = ()

    def to(self, saved: Saved) -> Saved:
        """Return the cluster with them."""
        more = {plural: [*getattr(saved, plural), *new] for plural, new in self.objects.items() if new}
        return msgspec.structs.replace(saved, **more)

    def view(self) -> EditView | None:
        """Return the change, None without objects."""
        counts = [(kind, len(self.objects.get(kind.plural, ()))) for kind in (PODS, POD_GROUPS, QUEUES)]
        parts = [f"{count} {kind.kind}{'s' * (count != 1)}" for kind, count in counts if count]
        made = ", ".join(parts) or "no pods"
        return EditView(family=_FAMILY, message=f"create {made}") if self.objects else None


NOTHING: Final = Added()


def read(saved: Saved, arguments: argparse.Namespace, progress: Progress) -> Added:
    """Read the manifests of a command line and have admission see them. Raises BadInput."""
    if saved.is_anonymized:
        raise BadInput("manifests: not with a snapshot of --anonymize, whose names are others; take one without it")
    settings = AdmissionSettings(choices=Choices(dialects=options.dialects_of(arguments.dialects)))
    try:
        beside = [_there(STORAGE_CLASSES, each) for each in saved.storageclasses]
        found = read_files(options.named(arguments), progress, nodes=saved.nodes, beside=beside)
    except manifests.MalformedManifest as error:
        raise BadInput(str(error)) from error
    return admitted(saved, manifests.adopted(found) if arguments.adopt_all else found, settings)


def admitted(saved: Saved, objects: Sequence[Manifest], settings: AdmissionSettings) -> Added:
    """Have admission see manifests in a cluster. Raises BadInput for what it refuses, or what exists already."""
    new, notes = _new(saved, objects)
    notes += _unknown_namespaces(saved, new)
    found = anyio.run(
        _submit, new, _known(saved, new), settings, saved.wall_s, backend_options={"loop_factory": VirtualTimeLoop}
    )
    if isinstance(found, errors.ApiError):
        raise BadInput(f"{'; '.join(found.__notes__)}: {found}")
    here = {plural: {_key(each) for each in getattr(saved, plural)} for plural in found if plural in PLURALS}
    return Added(
        {plural: [kept(each) for each in found[plural] if _key(each) not in known] for plural, known in here.items()},
        tuple(notes),
    )


async def _submit(
    objects: Sequence[Manifest], there: Sequence[Manifest], admission: AdmissionSettings, wall_s: int
) -> apply.Stored | errors.ApiError:
    clock = VirtualClock(asyncio.get_running_loop(), epoch_ns=wall_s * SECOND_NS)
    return await apply.submit(objects, there=there, clock=clock, admission=admission)


def _new(saved: Saved, objects: Sequence[Manifest]) -> tuple[list[Manifest], list[str]]:
    """Return what the cluster does not have, and notes of the rest. Raises BadInput."""
    known = {plural: {_key(each) for each in getattr(saved, plural)} for plural in PLURALS}
    new, notes = [], []
    for each in objects:
        plural, name = each.resource.plural, each.body["metadata"].get("name", "")
        if each.resource is NAMESPACES or (each.namespace, name) not in known.get(plural, ()):
            new.append(each)
        elif plural in _NEW:
            raise BadInput(
                f"{each}: metadata.name: {name} exists in the cluster; allowed is a new name: rename it, or leave it "
                "out of the manifests"
            )
        else:
            notes.append(f"{each.resource.kind} {name}: exists in the cluster, and stays as it is there")
    return new, notes


def _unknown_namespaces(saved: Saved, objects: Sequence[Manifest]) -> list[str]:
    if NAMESPACES.plural in saved.missing:
        return []
    known = {each.metadata.name for each in saved.namespaces}
    known |= {each.body["metadata"].get("name") for each in objects if each.resource is NAMESPACES}
    named = dict.fromkeys(each.namespace for each in objects if each.namespace not in {"", *known})
    return [f"namespace {name}: not in the cluster, and taken as made" for name in named]


def _known(saved: Saved, objects: Sequence[Manifest]) -> list[Manifest]:
    """What admission reads of the cluster for these objects, and the RuntimeClasses that they name."""
    used = {each.namespace for each in objects} | {
        str(each.body["metadata"].get("name")) for each in objects if each.resource is NAMESPACES
    }
    found = [_there(NAMESPACES, each) for each in saved.namespaces if each.metadata.name in used]
    of_files = {each.body["metadata"].get("name") for each in objects if each.resource is PRIORITY_CLASSES}
    classes = [_there(PRIORITY_CLASSES, each) for each in saved.priorityclasses] or manifests.installed([])
    found += [each for each in classes if not _name(each).startswith(_BUILT_IN) and _name(each) not in of_files]
    if any(each.resource is QUEUES for each in objects):
        found += [_there(QUEUES, each) for each in saved.queues]
    runtimes = {each.body["metadata"].get("name") for each in objects if each.resource is RUNTIME_CLASSES}
    specs = [each.body["spec"] for each in objects if each.resource is PODS]
    by_overhead = sorted(specs, key=lambda spec: bool(spec.get("overhead")))  # not all pods have it written out
    named = {spec.get("runtimeClassName"): spec.get("overhead") for spec in by_overhead}
    for name in sorted(filter(None, named.keys() - runtimes - {installation.NVIDIA_RUNTIME})):
        body = {**installation.named(name), "handler": name, "overhead": {"podFixed": named[name]}}
        found.append(Manifest(RUNTIME_CLASSES, "", body, _CLUSTER))
    return manifests.in_order(found)


def _there(resource: Resource[Any], obj: Any) -> Manifest:
    """An object of the cluster as one to be created."""
    body = msgspec.to_builtins(obj)
    meta = {
        field: body["metadata"][field] for field in ("name", "labels", "annotations") if body["metadata"].get(field)
    }
    head = {"apiVersion": resource.api_version, "kind": resource.kind}
    return Manifest(resource, obj.metadata.namespace, {**body, **head, "metadata": meta}, _CLUSTER)


def _name(manifest: Manifest) -> str:
    return str(manifest.body["metadata"].get("name"))


def _key(obj: Any) -> tuple[str, str]:
    return obj.metadata.namespace, obj.metadata.name


# --- what comes of them ----------------------------------------------------------------------------------------------
class NewPod(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """A pod of the manifests. ``after_s``: when it is placed, from now; ``evicts``: pods that go before.

    While it waits ``node`` is "", and ``reason`` and ``message`` say why, as its condition would.
    """

    namespace: str
    name: str
    group: str = ""
    queue: str = ""
    node: str = ""
    after_s: int = 0
    evicts: tuple[str, ...] = ()
    reason: str = ""
    message: str = ""
    help: str = ""


class NewGroup(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """A PodGroup of the manifests. ``minimum`` None: its object has none. ``placed``, ``waiting``: pods."""

    namespace: str
    name: str
    minimum: int | None
    placed: int
    waiting: int


class EvictedPod(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """A pod of the cluster that is evicted. ``evicted_for``: pods. ``node_after`` "": it waits, or is gone for good."""

    namespace: str
    name: str
    queue: str
    node: str
    evicted_for: tuple[str, ...]
    node_after: str = ""
    is_gone: bool = False


class QueueLeft(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """A queue of new pods, or above one, afterwards: its use, and what is left of its quota and limit; at least 0."""

    name: str
    parent: str
    allocated: Amounts
    quota_left: Amounts
    limit_left: Amounts


class Outcome(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What comes of manifests. ``queues``: those of the new pods first."""

    pods: tuple[NewPod, ...]
    groups: tuple[NewGroup, ...]
    evicted: tuple[EvictedPod, ...]
    queues: tuple[QueueLeft, ...]


class Addition(Comparison, frozen=True, kw_only=True, rename="camel"):
    """The comparison of a cluster without and with manifests, and what comes of these."""

    new: Outcome


def outcome(added: Added, without: Settled, with_: Settled) -> Outcome:
    """Find out what comes of manifests; ``without`` is the same cluster without them."""
    new = (uid for uid in with_.room if uid not in without.room)
    evicted = {uid: with_.room[uid] for uid in sorted(new, key=lambda uid: _place(with_.pods[uid]))}
    pods = tuple(_pod(pod, with_, evicted) for pod in added.objects.get(PODS.plural, ()))
    return Outcome(
        pods=pods,
        groups=tuple(_group(each, pods) for each in added.objects.get(POD_GROUPS.plural, ())),
        evicted=tuple(_evicted(with_.pods[uid], takers, with_) for uid, takers in evicted.items()),
        queues=tuple(_queues({pod.queue for pod in pods}, with_.queues)),
    )


def _pod(pod: Pod, with_: Settled, evicted: Mapping[str, Sequence[str]]) -> NewPod:
    meta, end = pod.metadata, with_.pods.get(pod.metadata.uid)
    found = NewPod(
        namespace=meta.namespace, name=meta.name, group=(meta.annotations or {}).get(names.POD_GROUP_NAME, "")
    )
    if end is None:
        message = f"spec.schedulerName is {pod.spec.scheduler_name!r}; --adopt-all schedules it as well"
        return msgspec.structs.replace(found, reason=OTHER_SCHEDULER, message=message)
    found = msgspec.structs.replace(found, queue=end.queue, node=end.node)
    evicts = tuple(_place(with_.pods[uid]) for uid, takers in evicted.items() if meta.uid in takers)
    if end.node:
        return msgspec.structs.replace(found, after_s=end.after_s, evicts=evicts)
    if end.verdict is None:
        return msgspec.structs.replace(found, reason=UNTOLD, message="nothing was said of it", evicts=evicts)
    reason = end.verdict.code.value
    message = told(end.verdict, reader=None).message
    return msgspec.structs.replace(found, reason=reason, message=message, help=link(reason), evicts=evicts)


def _group(group: PodGroup, pods: Sequence[NewPod]) -> NewGroup:
    meta = group.metadata
    own = [pod for pod in pods if (pod.namespace, pod.group) == (meta.namespace, meta.name)]
    placed = sum(bool(pod.node) for pod in own)
    minimum = group.spec.min_member
    return NewGroup(namespace=meta.namespace, name=meta.name, minimum=minimum, placed=placed, waiting=len(own) - placed)


def _evicted(pod: PodEnd, takers: Sequence[str], with_: Settled) -> EvictedPod:
    return EvictedPod(
        namespace=pod.namespace,
        name=pod.name,
        queue=pod.queue,
        node=pod.was_at,
        evicted_for=tuple(_place(with_.pods[uid]) for uid in takers if uid in with_.pods),
        node_after=pod.node,
        is_gone=pod.is_gone,
    )


def _place(pod: PodEnd) -> str:
    return f"{pod.namespace}/{pod.name}"


def _queues(named: set[str], states: Sequence[QueueState]) -> Iterator[QueueLeft]:
    by_name = {state.record.name: state for state in states}
    due, seen = sorted(named), set[str]()
    while due:
        name = due.pop(0)
        state = by_name.get(name)
        if state is None or name in seen:
            continue
        seen.add(name)
        due.append(state.record.parent)
        yield QueueLeft(
            name=name,
            parent=state.record.parent,
            allocated=amounts(state.held),
            quota_left=_left(state.record.quota, state.held),
            limit_left=_left(state.record.limit, state.held),
        )


def _left(most: Resources, held: Resources) -> Amounts:
    """What is left; 0 where more is held."""
    return amounts(Resources(*(m if m >= UNLIMITED else max(0, m - h) for m, h in zip(most, held, strict=True))))


# --- for people ------------------------------------------------------------------------------------------------------
def sheets(found: Outcome) -> Iterator[Sheet]:
    """A table each for new pods, groups, evicted pods and queues, and why pods wait."""
    yield _pods(found.pods)
    messages = dict.fromkeys((pod.reason, pod.message) for pod in found.pods if pod.message)
    for reason, message in messages:
        yield Sheet(title=f"{reason}: {message}", columns=(), rows=())
    if found.groups:
        rows = [
            [Cell(f"{each.namespace}/{each.name}"), *map(Cell, map(_count, (each.minimum, each.placed, each.waiting)))]
            for each in found.groups
        ]
        yield Sheet(title="New groups:", columns=("GROUP", "MINIMUM", "PLACED", "WAITING"), rows=rows, folds=("GROUP",))
    if found.evicted:
        yield _evictions(found.evicted)
    if found.queues:
        yield _lefts(found.queues)


def _count(number: int | None) -> str:
    return "" if number is None else str(number)


def _pods(pods: Sequence[NewPod]) -> Sheet:
    rows = [
        [
            Cell(f"{pod.namespace}/{pod.name}"),
            Cell(pod.group),
            Cell(pod.queue),
            Cell(pod.node),
            Cell(_when(pod), "green" if pod.node else "red"),
            Cell(pod.reason),
            Cell(pod.help),
        ]
        for pod in pods
    ]
    columns = ("POD", "GROUP", "QUEUE", "NODE", "WHEN", "WAITS FOR", "HELP")
    return Sheet(
        title="New pods:", columns=columns, rows=first_rows(rows), spare=("HELP", "GROUP", "QUEUE"), folds=("POD",)
    )


def _when(pod: NewPod) -> str:
    if not pod.node:
        return "waits"
    if pod.evicts:
        return f"after {len(pod.evicts)} eviction{'s' * (len(pod.evicts) != 1)}"
    return f"after {pod.after_s} s" if pod.after_s else "at once"


def _evictions(evicted: Sequence[EvictedPod]) -> Sheet:
    rows = [
        [
            Cell(f"{each.namespace}/{each.name}"),
            Cell(each.queue),
            Cell(each.node),
            Cell(", ".join(each.evicted_for)),
            Cell("is gone" if each.is_gone else f"starts on {each.node_after}" if each.node_after else "waits", "red"),
        ]
        for each in evicted
    ]
    columns = ("POD", "QUEUE", "NODE", "EVICTED FOR", "THEN")
    return Sheet(title="Evicted:", columns=columns, rows=first_rows(rows), folds=("POD", "EVICTED FOR"))


def _lefts(queues: Sequence[QueueLeft]) -> Sheet:
    rows = [
        [Cell(each.name), *(Cell(_gpu(part)) for part in (each.allocated, each.quota_left, each.limit_left))]
        for each in queues
    ]
    columns = ("QUEUE", "USED", "LEFT OF QUOTA", "LEFT OF LIMIT")
    return Sheet(title="GPUs of their queues afterwards:", columns=columns, rows=rows, folds=("QUEUE",))


def _gpu(of: Amounts) -> str:
    return amount(GPU, of.gpu_nano)
