"""One queue in numbers, as decisions see it: what its object says, what its pods hold and ask, its fair share.

Counted by what decides (queues/accounts.py), so nothing here can differ from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from scheduler.core.model.quota import UNLIMITED, QueueRecord, Resources
from scheduler.core.model.verdict import Verdict
from scheduler.core.queues.accounts import Account, Accounts
from scheduler.core.queues.queues import Queues
from scheduler.core.queues.tree import Sum, Tree

#: Renders a verdict (scheduler/conditions/messages.py).
Say = Callable[[Verdict], str]
#: What a quota or limit without end is in what is shown, as in the object.
WITHOUT_END = -1


class Amounts(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Amounts of all resources, in the smallest unit of each. -1: unlimited."""

    cpu_milli: int = 0
    mem_bytes: int = 0
    gpu_nano: int = 0


class Weights(msgspec.Struct, frozen=True, gc=False):
    """``overQuotaWeight`` of each resource, in millionths."""

    cpu: int = 0
    memory: int = 0
    gpu: int = 0


class Why(msgspec.Struct, frozen=True, gc=False):
    """A reason: for programs, and in words."""

    code: str
    message: str


class QueueView(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """One queue. What counts for queues below it counts for it, too; ``pods`` are those that name it.

    ``allocated``: what its pods hold, ``terminating`` of it by pods that are terminating; ``requested``: what they hold
    and wait for, without terminating ones. ``unusable``: which link is broken, so that it takes nobody. ``node_pool``:
    whose nodes it divides, "default" being those without the label; "": the cluster is not divided.
    """

    name: str
    node_pool: str = ""
    parent: str = ""
    children: tuple[str, ...] = ()
    priority: int = 100
    created: str = ""
    quota: Amounts
    limit: Amounts
    weight_millionths: Weights
    fair_share: Amounts
    allocated: Amounts
    allocated_non_preemptible: Amounts
    terminating: Amounts
    requested: Amounts
    pods: int = 0
    unusable: Why | None = None


def amounts(of: Resources) -> Amounts:
    """Amounts as they are shown."""
    return Amounts(*(shown(amount) for amount in of))


def shown(amount: int) -> int:
    """-1 for what has no end."""
    return WITHOUT_END if amount >= UNLIMITED else amount


def queue_views(queues: Queues, made: Accounts, say: Say) -> list[QueueView]:
    """All queues by name, those that can't be used among them."""
    if made.tree.is_implied:
        return []
    records = sorted(queues.records.all(), key=lambda record: record.name)
    below = children(records)
    return [queue_view(record, queues, made, say, below=below.get(record.name, ())) for record in records]


def children(records: Iterable[QueueRecord]) -> dict[str, tuple[str, ...]]:
    """Names of the queues that name each as their parent, sorted."""
    found: dict[str, list[str]] = {}
    for record in records:
        if record.parent:
            found.setdefault(record.parent, []).append(record.name)
    return {parent: tuple(sorted(names)) for parent, names in found.items()}


def queue_view(
    record: QueueRecord, queues: Queues, made: Accounts, say: Say, *, below: tuple[str, ...] = ()
) -> QueueView:
    """One queue. Of one that can't be used its own pods are counted, as their use is taken off what others divide."""
    own = queues.sums.sums.get(record.name, Sum())
    found = made.tree.find(record.name)
    account = made.of[found.number] if found is not None else _account(own)
    return QueueView(
        name=record.name,
        node_pool=queues.node_pool,
        parent=record.parent,
        children=below,
        priority=record.priority,
        created=record.created,
        quota=amounts(record.quota),
        limit=amounts(record.limit),
        weight_millionths=Weights(*record.weight),
        fair_share=amounts(account.fair),
        allocated=amounts(account.held),
        allocated_non_preemptible=amounts(account.fixed),
        terminating=amounts(account.held.minus(account.kept)),
        requested=amounts(account.asked),
        pods=own.pods,
        unusable=_unusable(record.name, made.tree, say) if found is None else None,
    )


def _account(own: Sum) -> Account:
    return Account(held=own.held, fixed=own.fixed, kept=own.kept, asked=own.asked)


def _unusable(name: str, tree: Tree, say: Say) -> Why | None:
    found = tree.leaf(name)
    return why(found, say) if isinstance(found, Verdict) else None


def why(verdict: Verdict, say: Say) -> Why:
    """A verdict as a reason."""
    return Why(verdict.code.value, say(verdict))
