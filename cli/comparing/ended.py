"""A cluster from a snapshot, after its scheduler has decided until nothing changes: where pods are, and who waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from cli.comparing import changes
from cli.snapshots.counted import cluster_of
from cli.snapshots.saved import Saved
from scheduler.core.cluster import Cluster
from scheduler.core.model.records import PodRecord
from scheduler.core.model.settings import Settings
from scheduler.core.model.verdict import Verdict
from scheduler.core.queues.use import queue_of
from scheduler.core.report.state import QueueState, queue_states
from scheduler.core.what_if.edits import Edit
from simulator.settling.rest import Rest, settle
from simulator.settling.shell import Shell

_S: Final = 1_000_000_000
_RULES_UNKNOWN: Final = (
    "whether the scheduler follows DeviceTaintRules: the snapshot does not have it, and they do not count here; "
    "--scheduler-config may say it (device-taint-rules)"
)


class PodEnd(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a pod. ``was_at``: its node in the snapshot, "" if it waited; ``node``: that in the end, likewise.

    ``is_gone``: nothing has its place. ``starts_again``: another pod has its place. ``verdict``: why it waits, as far
    as it was said.
    """

    namespace: str
    name: str
    queue: str
    was_at: str
    node: str = ""
    is_gone: bool = False
    starts_again: bool = False
    verdict: Verdict | None = None


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """``pods``: those of this scheduler that had not ended in the snapshot, by UID. ``evicted``: for others.

    ``differences``: where the ledger differs from a recount. ``problems``: what the file contradicts itself in.
    """

    pods: dict[str, PodEnd]
    queues: tuple[QueueState, ...]
    rest: Rest
    evicted: int
    others_gone: int
    differences: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


class Scheduling(msgspec.Struct, frozen=True):
    """How the scheduler is set. ``grace_s``: of gangs below their minimum.

    ``follows_taint_rules``: DeviceTaintRules count; None: as the snapshot says, and not where it does not say it.
    """

    decisions: Settings
    grace_s: float
    follows_taint_rules: bool | None = None

    def on(self, saved: Saved) -> bool:
        """Whether DeviceTaintRules of a snapshot count."""
        return bool(saved.follows_taint_rules if self.follows_taint_rules is None else self.follows_taint_rules)

    def unread(self, saved: Saved) -> tuple[str, ...]:
        """What is not known of how the scheduler of a snapshot is set."""
        is_known = self.follows_taint_rules is not None or saved.follows_taint_rules is not None
        return () if is_known or not saved.devicetaintrules else (_RULES_UNKNOWN,)


def ended(
    saved: Saved, scheduling: Scheduling, edits: Sequence[Edit] = (), told: Callable[[int], None] = lambda _: None
) -> Ended:
    """Decide on a snapshot with these changes, until nothing more happens. Raises BadInput for one that can't be."""
    cluster, problems = cluster_of(saved, scheduling.decisions, follows_taint_rules=scheduling.on(saved))
    cluster.stale.grace_ns = round(scheduling.grace_s * _S)
    shell = Shell(cluster, saved.pods, wall_s=saved.wall_s)
    ours = list(_ours(cluster))
    shell.finish_what_is_under_way()
    changes.carry_out(shell, edits)
    rest = settle(shell, told=told)
    queues = cluster.queues
    return Ended(
        pods={pod.uid: _end(pod, queue, shell) for pod, queue in ours},
        queues=tuple(queue_states(queues.records.all(), queues.accounts(), queues.sums.sums)),
        rest=rest,
        evicted=shell.evictions,
        others_gone=shell.others_gone,
        differences=tuple(cluster.validate()),
        problems=problems,
    )


def _ours(cluster: Cluster) -> Iterator[tuple[PodRecord, str]]:
    """Pods that this scheduler decides on, with the queues that they count in."""
    snapshot = cluster.snapshot()
    for pod in snapshot.pods.records.values():
        if pod.queue and not (pod.is_reservation or pod.is_elsewhere or pod.deleting):
            group = snapshot.pod_group(pod.namespace, pod.pod_group) if pod.pod_group else None
            yield pod, queue_of(pod, group)


def _end(pod: PodRecord, queue: str, shell: Shell) -> PodEnd:
    uid = shell.current[pod.uid]
    found = PodEnd(namespace=pod.namespace, name=pod.name, queue=queue, was_at=pod.node)
    record = None if uid is None else shell.cluster.pod(uid)
    if uid is None or record is None:
        return msgspec.structs.replace(found, is_gone=True)
    verdict = None if record.node else shell.cluster.backlog.said.verdict(uid)
    return msgspec.structs.replace(found, node=record.node, starts_again=uid != pod.uid, verdict=verdict)
