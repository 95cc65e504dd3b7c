"""Faulty clusters once more: those that count or hold queues wrong (batch scheduling, S6 and L1)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable

import msgspec
from typing_extensions import override

from scheduler.core.cluster import Cluster
from scheduler.core.convert.pod_groups import is_preemptible, queue_of
from scheduler.core.model.facts import Facts
from scheduler.core.model.quota import WITHOUT_END, QueueRecord, Resources
from scheduler.core.model.records import NodeRecord, PodGroupRecord, PodRecord
from scheduler.core.model.settings import Settings
from scheduler.core.model.verdict import Code, Verdict
from scheduler.core.nodes.node_usage import Charge
from scheduler.core.queues.accounts import Accounts, Use, over_limit
from scheduler.core.queues.queues import Queues
from scheduler.core.queues.tree import Row, Tree
from scheduler.core.scheduling_queue.held_back import Item, OverQuota, Room
from wire import names

#: A hundredth of a GPU, in nano.
_HUNDREDTH = 10**7


def counting(queues: Callable[[Callable[[], None]], Queues]) -> type[Cluster]:
    """A cluster with these queues."""

    class Counting(Cluster):
        def __init__(self, settings: Settings) -> None:
            super().__init__(settings)
            self.queues = queues(self._changed)

    return Counting


class ForgetsWhatIsOnItsWay(Queues):
    """What is on its way to be bound counts when it is seen bound."""

    @override
    def row(
        self,
        pod: PodRecord,
        group: PodGroupRecord | None,
        charges: Collection[Charge],
        node: NodeRecord | None,
        *,
        is_victim: bool = False,
    ) -> Row | None:
        return super().row(pod, group, (), node, is_victim=is_victim)


class CountsByTheCurrentLabel(Queues):
    """A pod that runs counts for what its labels and its PodGroup say now, whatever it was placed for."""

    @override
    def row(
        self,
        pod: PodRecord,
        group: PodGroupRecord | None,
        charges: Collection[Charge],
        node: NodeRecord | None,
        *,
        is_victim: bool = False,
    ) -> Row | None:
        if pod.charged is not None:
            queue, said = queue_of(pod.labels), pod.labels.get(names.PREEMPTIBILITY_LABEL)
            pod = msgspec.structs.replace(pod, charged=None, queue=queue, is_preemptible=is_preemptible(said))
        return super().row(pod, group, charges, node, is_victim=is_victim)


class LooksAtLeavesOnly(Queues):
    """A limit holds for the queue that has it, and not for all below it."""

    @override
    def accounts(self) -> Accounts:
        made = super().accounts()
        return _Leaves(made.tree, made.total, made.of)


class _Leaves(Accounts):
    @override
    def refusal(self, use: Use) -> Verdict | None:
        refused = super().refusal(use)
        leaf = self.tree.find(use.queue)
        if refused is None or leaf is None or refused.code is not Code.OVER_LIMIT:
            return refused
        return refused if over_limit(leaf.record, self.of[leaf.number].held, use.amounts) else None


class RoundsAmounts(Queues):
    """Limits and quotas are read in hundredths of a GPU, and rounded up."""

    def __init__(self, changed: Callable[[], None]) -> None:
        super().__init__(changed)
        self.records = _Rounded(self._queue_changed, read_changed=self._forget_tree)


class _Rounded(Facts[str, QueueRecord]):
    @override
    def put(self, fact: QueueRecord) -> None:
        rounded = {field: _in_hundredths(getattr(fact, field)) for field in ("limit", "quota")}
        super().put(msgspec.structs.replace(fact, **rounded))


def _in_hundredths(amounts: Resources) -> Resources:
    if amounts.gpu_nano >= WITHOUT_END.gpu_nano:
        return amounts
    return amounts._replace(gpu_nano=-(-amounts.gpu_nano // _HUNDREDTH) * _HUNDREDTH)


class NeverWakes(Cluster):
    """Whoever a queue holds back sleeps until a Queue object changes."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.scheduling_queue.over_quota = _SoundAsleep()


class _SoundAsleep(OverQuota):
    @override
    def due(self, tree: Tree, cards: Hashable, accounts: Callable[[], Room], *, version: int = 0) -> list[Item]:
        return super().due(tree, cards, _Full, version=version)

    @override
    def outdated(self, count: int) -> list[Item]:
        return []


class _Full:
    def room_for(self, use: Use) -> int:
        return 0
