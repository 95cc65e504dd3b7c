"""All rows about a cluster, in the order in which an administrator goes on. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec
import yaml

from admission.objects.findings import Refused, told
from admission.objects.queue import Others, judge_written
from cli.checks.reader import Raw
from cli.migration.config import config_rows, shard_rows
from cli.migration.rows import Code, Found, Level, Row, row
from gpu import bind_request, grant
from gpu import reservation as reservations
from gpu.node_resources import cards_mib
from gpu.request import MemoryAsk
from gpu.reservation import Reservation
from gpu.share import NANO_PER_DEVICE
from scheduler.conditions import messages
from scheduler.core.convert import constraints
from scheduler.core.convert.owners import is_gang_kind
from scheduler.core.convert.pod_groups import pod_group_record
from scheduler.core.convert.pods import pod_record
from scheduler.core.model.settings import Settings
from sharing.pods import PodView
from sharing.pods import view as read_pod
from sharing.rebuilding import tenant
from ui.inspect.tables import gpus_up
from wire import names
from wire.core import Node, Pod
from wire.crds.podgroup import PodGroup


def queue_rows(found: Found) -> Iterator[Row]:
    """Queues that admission would refuse, and queues that pods name and nobody made."""
    queues = Others(found.queues)
    for queue in found.queues:
        judgement = judge_written(queue, old=None, others=queues)
        if isinstance(judgement, Refused):
            for finding in judgement.findings:
                yield row(Code.QUEUE_REFUSED, f"Queue {queue.metadata.name}", why=told(finding))
    known = {queue.metadata.name for queue in found.queues}
    named = {(pod.metadata.labels or {}).get(names.QUEUE_LABEL, "") for pod in found.pods}
    for name in sorted(named - known - {""}):
        yield row(Code.QUEUE_MISSING, f"Queue {name}")


def group_rows(groups: Sequence[PodGroup]) -> Iterator[Row]:
    """What PodGroups ask that is not served, and who made them."""
    for group in groups:
        about = f"PodGroup {group.metadata.namespace}/{group.metadata.name}"
        record = pod_group_record(group)
        if record.unsupported:
            yield row(Code.GROUP_UNSUPPORTED, about, value=record.unsupported)
        if record.contradiction is not None and record.blocker is not None:
            yield row(Code.GROUP_CONTRADICTS, about, why=messages.told(record.blocker).message)
        if group.spec.scheduling_backoff:
            yield row(Code.GROUP_FIELD, about, value="schedulingBackoff")
        if group.spec.mark_unschedulable is False:
            yield row(Code.GROUP_FIELD, about, value="markUnschedulable")
        if owner := (group.metadata.annotations or {}).get(names.TOP_OWNER_METADATA):
            api_group, kind = _owner(owner)
            is_gang = is_gang_kind(api_group, kind)
            yield row(Code.GROUPS_OF_GANGS if is_gang else Code.GROUPS_ALONE, about, kind=kind)


def _owner(text: str) -> tuple[str, str]:
    """API group and kind of the owner; what can't be read is of no group."""
    try:
        said = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError):
        said = None
    if not isinstance(said, dict):
        return "", "workload"
    return str(said.get("group") or ""), str(said.get("kind") or "workload")


_DONE = "Succeeded"


def waiting_rows(found: Found) -> Iterator[Row]:
    """Each pod that waits, each order, and what running pods ask that is not served."""
    groups = {(group.metadata.namespace, group.metadata.name) for group in found.groups}
    for pod in found.pods:
        if pod.spec.scheduler_name != names.SCHEDULER_NAME:
            continue
        about = f"Pod {pod.metadata.namespace}/{pod.metadata.name}"
        if pod.spec.node_name:
            if why := constraints.unsupported(pod):
                yield row(Code.UNSUPPORTED, about, why=why)
        elif grant.labelled_groups(pod.metadata.labels):
            yield row(Code.HALF_BOUND, about)
        elif why := _why_it_waits(pod, groups):
            yield row(Code.WAITS, about, why=why)
    yield from _orders(found)


def _why_it_waits(pod: Pod, groups: set[tuple[str, str]]) -> str:
    """Why the scheduler would not place it on any node; "" where it is placed like others."""
    record = pod_record(pod, Settings())
    if record is None or record.gated:
        return ""
    if record.blocker is not None:
        return messages.told(record.blocker).message
    if record.pod_group and (record.namespace, record.pod_group) not in groups:
        return f"PodGroup {record.pod_group} is not there"
    return ""


def _orders(found: Found) -> Iterator[Row]:
    for request in found.requests:
        is_ours = isinstance(bind_request.read(request), bind_request.Order)
        if not is_ours and request.status.phase != _DONE:
            yield row(Code.BIND_REQUEST, f"BindRequest {request.metadata.namespace}/{request.metadata.name}")


_INDEX: Final = re.compile(r"\d+", re.ASCII)


class _Shares(msgspec.Struct, frozen=True):
    """Bound pods with shares, and reservations, by group."""

    bound: Mapping[str, Sequence[PodView]]
    held: Mapping[str, Sequence[Reservation]]
    nodes: Mapping[str, Node]

    def card_mib(self, held: Reservation) -> int:
        """What the binder charges memory by."""
        node = self.nodes.get(held.node)
        if held.mem_mib or node is None:
            return held.mem_mib
        return cards_mib(node.metadata.labels or {}, node.metadata.annotations or {})[0]


def share_rows(found: Found) -> Iterator[Row]:
    """All running shares and all reservations: what the binder adopts when it starts, and what it can't.

    Judged by the binder's own reading of pods and reservations (gpu/reservation.py, sharing/rebuilding.py), so that the
    two agree.
    """
    bound: dict[str, list[PodView]] = {}
    held: dict[str, list[Reservation]] = {}
    for pod in found.pods:
        if _says_reservation(pod):
            if not reservations.is_reservation(pod):
                yield row(Code.RESERVATION_ELSEWHERE, _pod(pod.metadata.namespace, pod.metadata.name))
            else:
                held.setdefault((one := reservations.read(pod)).group, []).append(one)
            continue
        seen = read_pod(pod)
        for group in seen.held_groups if seen.is_bound else ():
            bound.setdefault(group, []).append(seen)
        asks = seen.request is None or bool(seen.request.shared)
        if seen.is_bound and asks and not seen.held_groups and seen.scheduler == names.SCHEDULER_NAME:
            yield row(Code.SHARE_UNLABELLED, _pod(seen.namespace, seen.name))
    shares = _Shares(bound, held, found.nodes)
    for group in sorted({*bound, *held}):
        yield from _group(group, shares)
    yield from _twice(held)


def _says_reservation(pod: Pod) -> bool:
    return (pod.metadata.labels or {}).get(names.APP_LABEL) == names.RESERVATION_APP


def _group(group: str, shares: _Shares) -> Iterator[Row]:
    bound, listed = shares.bound.get(group, ()), shares.held.get(group, ())
    alive = [held for held in listed if not held.is_terminal]
    if not group:
        yield from (row(Code.RESERVATION_NAMELESS, _held(held)) for held in listed)
    elif len(alive) > 1:
        yield from (row(Code.RESERVATION_DISPUTED, _held(held)) for held in alive)
    elif alive:
        yield from _device(alive[0], shares)
    elif bound:
        for held in listed:
            yield row(Code.RESERVATION_ENDED, _held(held), phase=held.phase, tenants=len(bound))
        if not listed:
            yield from (row(Code.SHARE_UNRESERVED, _pod(pod.namespace, pod.name)) for pod in bound)


def _device(held: Reservation, shares: _Shares) -> Iterator[Row]:
    """One reservation, and all whose share it holds."""
    bound = shares.bound.get(held.group, ())
    elsewhere = [pod for pod in bound if pod.node != held.node]
    for pod in elsewhere:
        yield row(Code.SHARE_MISPLACED, _pod(pod.namespace, pod.name), reservation=held.name)
    here = [pod for pod in bound if pod.node == held.node]
    if not bound:
        yield row(Code.RESERVATION_IDLE, _held(held))
    if not held.uuid:
        yield row(Code.RESERVATION_UNTOLD, _held(held))
    elif _INDEX.fullmatch(held.uuid):
        yield row(Code.RESERVATION_BY_INDEX, _held(held), value=held.uuid)
    charges = {pod.uid: tenant(held.group, pod, card_mib=shares.card_mib(held)).entry.nano for pod in here}
    if sum(charges.values()) > NANO_PER_DEVICE:
        yield row(Code.GPU_OVERBOOKED, _held(held), used=gpus_up(sum(charges.values())))
    is_adopted = sum(charges.values()) <= NANO_PER_DEVICE
    for pod in here:
        if why := _why_whole(pod, charges[pod.uid]):
            yield row(Code.SHARE_WHOLE, _pod(pod.namespace, pod.name), why=why)
        elif is_adopted:
            yield row(Code.SHARE_ADOPTED, _pod(pod.namespace, pod.name))


def _why_whole(pod: PodView, nano: int) -> str:
    """Why a share is charged a whole GPU; "" where it is not. A pod that we bound says what it was given."""
    if nano < NANO_PER_DEVICE or pod.grant is not None:
        return ""
    shared = pod.request.shared if pod.request is not None else ()
    if any(isinstance(ask, MemoryAsk) for ask in shared):
        return f"its node does not say how much memory a GPU has (label {names.NODE_GPU_MEMORY}), or less than it asks"
    return "what it asks can't be read from KAI's annotations"


def _twice(held: Mapping[str, Sequence[Reservation]]) -> Iterator[Row]:
    """Reservations of different groups that say the same GPU of one node."""
    alive = [one for listed in held.values() for one in listed if one.uuid and not one.is_terminal]
    counts = Counter((one.node, one.uuid) for one in alive)
    for one in alive:
        if counts[one.node, one.uuid] > 1:
            yield row(Code.GPU_TWICE, _held(one), uuid=one.uuid)


def _held(held: Reservation) -> str:
    return _pod(held.namespace, held.name)


def _pod(namespace: str, name: str) -> str:
    return f"Pod {namespace}/{name}"


#: KAI's Deployments; a shard's scheduler has the shard's name behind it.
_DEPLOYMENTS: Final = frozenset(
    {
        "kai-operator",
        "binder",
        "admission",
        "pod-grouper",
        "podgroup-controller",
        "queue-controller",
        "node-scale-adjuster",
    }
)
_SHARDS: Final = "kai-scheduler-"
#: Its webhook configurations, and how those begin whose names have a version (2.1, 2.2, errata 6).
_WEBHOOKS: Final = frozenset({"mutating-kai-admission", "validating-kai-admission"})
_WEBHOOK_PREFIXES: Final = ("kai-queue-validation-", "kai-podgroup-validation-")
_RELEASE: Final = "meta.helm.sh/release-name"
OURS: Final = "moorage"


def is_kais_webhook(configuration: Raw) -> bool:
    """Whether a registration is KAI's: by its name, or by the Service that it asks."""
    name: str = configuration["metadata"]["name"]
    if name in _WEBHOOKS or name.startswith(_WEBHOOK_PREFIXES):
        return True
    if name.startswith(OURS):
        return False
    clients = ((hook.get("clientConfig") or {}).get("service") or {} for hook in configuration.get("webhooks") or ())
    return any(
        service.get("namespace") == names.SYSTEM_NAMESPACE and not str(service.get("name", "")).startswith(OURS)
        for service in clients
    )


def is_lenient(configuration: Raw) -> bool:
    """Whether none of its webhooks refuses anything when it can't be asked. Without a policy it is Fail."""
    return all(hook.get("failurePolicy") == "Ignore" for hook in configuration.get("webhooks") or ())


def running_rows(found: Found) -> Iterator[Row]:
    """What has to be stopped, in the order in which to do it, and what would go with the release of KAI."""
    for deployment in sorted(found.deployments, key=lambda each: each["metadata"]["name"] != "kai-operator"):
        replicas = (deployment.get("spec") or {}).get("replicas", 1)
        name = deployment["metadata"]["name"]
        if (name in _DEPLOYMENTS or name.startswith(_SHARDS)) and replicas:
            yield row(Code.DEPLOYMENT_AT_WORK, f"Deployment {names.SYSTEM_NAMESPACE}/{name}", replicas=replicas)
    for what in found.at_work:
        yield row(Code.KAI_AT_WORK, what)
    for what in found.elsewhere:
        yield row(Code.KAI_ELSEWHERE, what)
    for webhook in found.webhooks:
        yield row(Code.WEBHOOK_LENIENT if webhook in found.lenient_webhooks else Code.WEBHOOK, webhook)
    release = (found.reservation_namespace.get("metadata") or {}).get("annotations", {}).get(_RELEASE, "")
    if release and release != OURS:
        yield row(Code.OWNED_NAMESPACE, f"Namespace {names.RESERVATION_NAMESPACE}", release=release)


_ORDER = list(Level)


def judge(found: Found) -> list[Row]:
    """Rows by level: what has to be done first comes first. Equal rows are reported once."""
    rows = {(each.code, each.about, *each.values.items()): each for each in _rows(found)}
    return sorted(rows.values(), key=lambda each: _ORDER.index(each.level))


def _rows(found: Found) -> Iterator[Row]:
    for what, why in found.unread:
        yield row(Code.UNREAD, what, why=why)
    yield from running_rows(found)
    for config in found.configs:
        yield from config_rows(config)
    for shard in found.shards:
        yield from shard_rows(shard)
    yield from queue_rows(found)
    yield from group_rows(found.groups)
    yield from share_rows(found)
    yield from waiting_rows(found)
