"""What changes of a cluster change: pods, what keeps pods waiting, and queues, without them and with them.

Both sides are the same snapshot, each after its schedulers have decided until nothing changes. Changes are those of
``explain --what-if``, carried out as an administrator would.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from cli.snapshots.cluster import cluster_of
from cli.snapshots.file import Saved
from runtime.text import BadInput
from scheduler.conditions.advice import link
from scheduler.core.cluster import Cluster
from scheduler.core.decide.changes import AnotherNode, AnotherQueue, Change, Cordoned, Drained, WithoutPods
from scheduler.core.model.quota import NOTHING
from scheduler.core.model.records import PodRecord
from scheduler.core.model.settings import NodePool, Settings, name_of
from scheduler.core.model.verdict import Verdict
from scheduler.core.queues.use import queue_of
from scheduler.core.report.queue_view import Amounts, amounts
from scheduler.core.report.state import QueueState, queue_states
from scheduler.core.what_if.edit_text import read_edit
from scheduler.core.what_if.edits import Edit, NotPossible, Subject
from scheduler.core.what_if.node_changes import Ended
from simulator.offline.shell import Rest, Shell, settle
from ui.explain.views import EditView
from wire.units import SECOND_NS

#: No group asks: the cluster is changed.
_NOBODY: Final = Subject(namespace="", name="", waiting=())
_FORMS: Final = (
    "limit QUEUE gpu=16, quota QUEUE gpu=16, weight QUEUE gpu=2, node +2 like NODE, drain NODE, cordon NODE, "
    "finish NAMESPACE/NAME"
)


def read(texts: Sequence[str]) -> list[Edit]:
    """Read changes. Raises BadInput for one that means nothing, or that concerns one group alone."""
    found = []
    for text in texts:
        try:
            edit = read_edit(text)
        except NotPossible as error:
            raise BadInput(f"--what-if {error}") from error
        if edit.is_own or (isinstance(edit, Ended) and not edit.namespace):
            raise BadInput(f"--what-if {text}: allowed are changes of the cluster: {_FORMS}")
        found.append(edit)
    return found


def _carry_out(shell: Shell, change: Change) -> None:
    match change:
        case AnotherNode(node=node, slices=slices):
            shell.put_node(node, slices)
        case Cordoned(node=name):
            shell.cordon(name)
        case Drained(node=name):
            shell.drain(name)
        case AnotherQueue(queue=queue):
            shell.cluster.queues.records.put(queue)
        case WithoutPods(uids=uids):
            for uid in uids:
                shell.remove(uid)
        case _:
            raise TypeError(f"{change!r} is of no edit that {__name__}.read takes")


_RULES_UNKNOWN: Final = (
    "whether the scheduler follows DeviceTaintRules: the snapshot does not have it, and they do not count here; "
    "--scheduler-config may say it (device-taint-rules)"
)


class PodEnd(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a pod. ``was_at``: its node in the snapshot, "" if it waited; ``node``: that in the end, likewise.

    ``is_gone``: nothing has its place. ``starts_again``: another pod has its place. ``verdict``: why it waits, as far
    as it was said. ``after_s``: when it was placed, from the time of the snapshot.
    """

    namespace: str
    name: str
    queue: str
    was_at: str
    node: str = ""
    is_gone: bool = False
    starts_again: bool = False
    verdict: Verdict | None = None
    after_s: int = 0


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """``pods``: those of this scheduler that had not ended in the snapshot, by UID. ``evicted``: for others.

    ``room``: by the UID of a pod that was evicted for others, theirs.
    ``differences``: where the ledger differs from a recount. ``problems``: what the file contradicts itself in.
    """

    pods: dict[str, PodEnd]
    queues: tuple[QueueState, ...]
    rest: Rest
    evicted: int
    others_gone: int
    room: Mapping[str, tuple[str, ...]]
    differences: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


class Scheduling(msgspec.Struct, frozen=True):
    """How the scheduler is set. ``staleness_grace_s``: of gangs below their minimum.

    ``follows_taint_rules``: DeviceTaintRules count; None: as the snapshot says, and not where it does not say it.
    """

    decisions: Settings
    staleness_grace_s: float
    follows_taint_rules: bool | None = None

    def on(self, saved: Saved) -> bool:
        """Whether DeviceTaintRules of a snapshot count."""
        return bool(saved.follows_taint_rules if self.follows_taint_rules is None else self.follows_taint_rules)

    def unread(self, saved: Saved) -> tuple[str, ...]:
        """What is not known of how the scheduler of a snapshot is set."""
        is_known = self.follows_taint_rules is not None or saved.follows_taint_rules is not None
        rules = () if is_known or not saved.devicetaintrules else (_RULES_UNKNOWN,)
        pools = pools_of(saved, self.decisions.pool)
        named = ", ".join(map(name_of, pools))
        taken = (f"which node pools have a scheduler: {named} are taken to",) if pools[1:] else ()
        own = self.decisions.pool
        if own is None or own.value:
            return (*rules, *taken)
        known = {each.value for each in pools if each is not None}
        pods = sum((each.metadata.labels or {}).get(own.key, "") not in known for each in saved.pods)
        return (*rules, *taken, *((f"pods of node pools that no node and no Queue names: {pods}",) if pods else ()))


def ended(
    saved: Saved, scheduling: Scheduling, edits: Sequence[Edit] = (), told: Callable[[int], None] = lambda _: None
) -> Settled:
    """Decide on a snapshot with these changes, until nothing more happens: one scheduler a node pool.

    A scheduler sees the pods of other pools where the snapshot has them. Raises BadInput for a change that can't be.
    """
    pools = [_Pool(saved, scheduling, pool) for pool in pools_of(saved, scheduling.decisions.pool)]
    for edit in edits:
        _carry_out_everywhere(pools, edit)
    found = [pool.settled(saved.wall_s, told) for pool in pools]
    return Settled(
        pods={uid: pod for each in found for uid, pod in each.pods.items()},
        queues=tuple(queue for each in found for queue in each.queues),
        rest=Rest(
            is_at_rest=all(each.rest.is_at_rest for each in found),
            rounds=sum(each.rest.rounds for each in found),
            passed_s=max(each.rest.passed_s for each in found),
        ),
        evicted=sum(each.evicted for each in found),
        others_gone=max(each.others_gone for each in found),
        room={uid: takers for each in found for uid, takers in each.room.items()},
        differences=tuple(text for each in found for text in each.differences),
        problems=tuple(dict.fromkeys(text for each in found for text in each.problems)),
    )


def pools_of(saved: Saved, divided: NodePool | None) -> list[NodePool | None]:
    """Return the node pools that nodes or Queues name, the default one first; None where nothing is divided.

    Each is a cluster of its own here, and pods can name thousands of others. ``divided``: the pool of the scheduler's
    settings; one with a value is alone.
    """
    if divided is None or divided.value:
        return [divided]
    labelled = (saved.nodes, saved.queues)
    values = {(each.metadata.labels or {}).get(divided.key, "") for listed in labelled for each in listed}
    return [NodePool(key=divided.key, value=value) for value in sorted({"", *values})]


def _carry_out_everywhere(pools: Sequence[_Pool], edit: Edit) -> None:
    """Carry a change out in each node pool where it is possible. Raises BadInput where it is possible in none."""
    refused: list[NotPossible] = []
    for pool in pools:
        try:
            changes = edit.changes(pool.cluster.snapshot(), _NOBODY)
        except NotPossible as error:
            refused.append(error)
            continue
        for change in changes:
            _carry_out(pool.shell, change)
    if len(refused) == len(pools):
        raise BadInput(f"--what-if {refused[0]}") from refused[0]


class _Pool:
    """The cluster as the scheduler of a node pool sees it."""

    def __init__(self, saved: Saved, scheduling: Scheduling, pool: NodePool | None) -> None:
        decisions = msgspec.structs.replace(scheduling.decisions, pool=pool)
        self.cluster, self.problems = cluster_of(saved, decisions, follows_taint_rules=scheduling.on(saved))
        self.cluster.stale.staleness_grace_ns = round(scheduling.staleness_grace_s * SECOND_NS)
        self.shell = Shell(self.cluster, saved.pods, wall_s=saved.wall_s)
        self.ours = list(_ours(self.cluster))
        self.shell.finish_what_is_under_way()

    def settled(self, wall_s: int, told: Callable[[int], None]) -> Settled:
        """Decide until nothing more happens."""
        shell, queues = self.shell, self.cluster.queues
        rest = settle(shell, told=told)
        return Settled(
            pods={pod.uid: _end(pod, queue, shell, wall_s) for pod, queue in self.ours},
            queues=tuple(queue_states(queues.records.all(), queues.accounts(), queues.sums.sums)),
            rest=rest,
            evicted=shell.evictions,
            others_gone=shell.others_gone,
            room=shell.room,
            differences=tuple(self.cluster.validate()),
            problems=self.problems,
        )


def _ours(cluster: Cluster) -> Iterator[tuple[PodRecord, str]]:
    """Pods that this scheduler decides on, with the queues that they count in."""
    snapshot = cluster.snapshot()
    for pod in snapshot.pods.records.values():
        if pod.queue and not (pod.is_reservation or pod.is_elsewhere or pod.deleting):
            group = snapshot.pod_group(pod.namespace, pod.pod_group) if pod.pod_group else None
            yield pod, queue_of(pod, group)


def _end(pod: PodRecord, queue: str, shell: Shell, begin_s: int) -> PodEnd:
    uid = shell.current[pod.uid]
    found = PodEnd(namespace=pod.namespace, name=pod.name, queue=queue, was_at=pod.node)
    record = None if uid is None else shell.cluster.pod(uid)
    if uid is None or record is None:
        return msgspec.structs.replace(found, is_gone=True)
    verdict = None if record.node else shell.cluster.scheduling_queue.said.verdict(uid)
    after_s = shell.placed_s.get(pod.uid, begin_s) - begin_s
    return msgspec.structs.replace(
        found, node=record.node, starts_again=uid != pod.uid, verdict=verdict, after_s=after_s
    )


#: Of a pod that waits and was told nothing yet: it is on its way, or an eviction for it is.
UNTOLD: Final = "NotDecided"


class Kind(enum.StrEnum):
    """What the changes mean for one pod; in the order in which they are listed."""

    #: It is placed without the changes only.
    WAITS = "waits"
    #: Nothing makes it again, so it is lost.
    ENDS = "ends"
    #: It runs, and has to start again on another node, or on the same.
    MOVES = "moves"
    RESTARTS = "restarts"
    #: It is placed with the changes only.
    STARTS = "starts"
    #: It would be evicted for others without the changes, and is not.
    STAYS = "stays"
    #: It waits now, and is placed on another node than without the changes.
    ELSEWHERE = "elsewhere"


class PodChange(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """A pod. ``node_now``: in the snapshot. ``reason``: why it waits with the changes, and ``help``: on which page.

    Nodes are "" while it waits, or where it is gone.
    """

    namespace: str
    name: str
    queue: str
    change: Kind
    node_now: str
    node_without: str
    node_with: str
    reason: str = ""
    help: str = ""


class Counts(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """Pods of one side. ``evicted``: for others. ``is_at_rest``: else the number of decisions is bounded, and was up.

    ``passed_s``: the clock was put forward by so much, for what the scheduler waits for.
    """

    placed: int
    waiting: int
    gone: int
    evicted: int
    is_at_rest: bool
    passed_s: int


class ReasonCount(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """Pods that wait for one reason, without the changes and with them."""

    reason: str
    pods_without: int
    pods_with: int
    help: str = ""


class QueueSide(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """A queue with all below it. ``fair_share`` None: it can't be used. ``requested``: what it holds and waits for."""

    allocated: Amounts
    requested: Amounts
    fair_share: Amounts | None = None


class QueueChange(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """A queue, without the changes and with them."""

    name: str
    parent: str
    without: QueueSide
    with_: QueueSide = msgspec.field(name="with")


class Comparison(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is printed as JSON and YAML. ``unread``: what the snapshot lacks. ``others_gone``: of other schedulers."""

    taken_at: str
    changes: tuple[EditView, ...]
    without: Counts
    with_: Counts = msgspec.field(name="with")
    pods: tuple[PodChange, ...]
    reasons: tuple[ReasonCount, ...]
    queues: tuple[QueueChange, ...]
    others_gone: int = 0
    unread: tuple[str, ...] = ()


def compared(
    without: Settled, with_: Settled, *, taken_at: str, changes: Sequence[EditView], unread: Sequence[str]
) -> Comparison:
    """Compare both sides, which are of one snapshot."""
    order = list(Kind)
    pods = sorted(
        _pod_changes(without.pods, with_.pods), key=lambda pod: (order.index(pod.change), pod.namespace, pod.name)
    )
    return Comparison(
        taken_at=taken_at,
        changes=tuple(changes),
        without=_counts(without),
        with_=_counts(with_),
        pods=tuple(pods),
        reasons=tuple(_reasons(without.pods.values(), with_.pods.values())),
        queues=tuple(_queues(without.queues, with_.queues)),
        others_gone=with_.others_gone,
        unread=tuple(unread),
    )


# --- pods ------------------------------------------------------------------------------------------------------------
def _pod_changes(without: Mapping[str, PodEnd], with_: Mapping[str, PodEnd]) -> Iterator[PodChange]:
    for uid, before in without.items():
        after = with_[uid]
        kind = _kind(before, after)
        if kind is None:
            continue
        reason = _reason(after) if _waits(after) else ""
        yield PodChange(
            namespace=after.namespace,
            name=after.name,
            queue=after.queue,
            change=kind,
            node_now=after.was_at,
            node_without=before.node,
            node_with=after.node,
            reason=reason,
            help=link(reason) if reason not in {"", UNTOLD} else "",
        )


def _kind(before: PodEnd, after: PodEnd) -> Kind | None:
    if after.is_gone:
        return None if before.is_gone else Kind.ENDS
    if not after.node:
        return Kind.WAITS if before.node else None
    if not before.node:
        return Kind.STARTS
    if after.starts_again and not before.starts_again:
        return Kind.RESTARTS if after.node == after.was_at else Kind.MOVES
    if before.starts_again and not after.starts_again:
        return Kind.STAYS
    return Kind.ELSEWHERE if before.node != after.node else None


def _waits(pod: PodEnd) -> bool:
    return not pod.node and not pod.is_gone


def _reason(pod: PodEnd) -> str:
    return UNTOLD if pod.verdict is None else pod.verdict.code.value


def _counts(side: Settled) -> Counts:
    pods = side.pods.values()
    return Counts(
        placed=sum(bool(pod.node) for pod in pods),
        waiting=sum(map(_waits, pods)),
        gone=sum(pod.is_gone for pod in pods),
        evicted=side.evicted,
        is_at_rest=side.rest.is_at_rest,
        passed_s=side.rest.passed_s,
    )


# --- reasons and queues ----------------------------------------------------------------------------------------------
def _reasons(without: Iterable[PodEnd], with_: Iterable[PodEnd]) -> Iterator[ReasonCount]:
    """Those with which most pods wait first."""
    before, after = (Counter(_reason(pod) for pod in side if _waits(pod)) for side in (without, with_))
    for reason in sorted(before.keys() | after.keys(), key=lambda each: (-after[each], each)):
        helped = "" if reason == UNTOLD else link(reason)
        yield ReasonCount(reason=reason, pods_without=before[reason], pods_with=after[reason], help=helped)


def _queues(without: Sequence[QueueState], with_: Sequence[QueueState]) -> Iterator[QueueChange]:
    before = {state.record.name: state for state in without}
    for state in with_:
        name = state.record.name
        yield QueueChange(name=name, parent=state.record.parent, without=_side(before.get(name)), with_=_side(state))


def _side(state: QueueState | None) -> QueueSide:
    """Return a side, of a queue that is not there one that has nothing."""
    if state is None:
        return QueueSide(allocated=amounts(NOTHING), requested=amounts(NOTHING))
    return QueueSide(
        allocated=amounts(state.held),
        requested=amounts(state.asked),
        fair_share=None if state.fair is None else amounts(state.fair),
    )
