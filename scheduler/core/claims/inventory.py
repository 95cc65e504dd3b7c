"""Devices that each node reaches: slices and classes as drivers and administrators publish them, by node.

Devices have taints, and requests tolerate them (KEP-5055). Drivers publish taints, and administrators add some by
DeviceTaintRules: as in kube-scheduler a rule's taint is added to each device that it selects. Pods that use such a
device are evicted by Kubernetes' own controller, not here.
"""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Callable, Collection, Iterable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, Final, TypeAlias

import msgspec

from scheduler.core.claims.pools import Pool, Run, make_pool
from scheduler.core.claims.selectors import Asked, Compiler, SelectorFailed, Selectors
from scheduler.core.model.device_requests import DeviceNeed, DeviceToleration
from scheduler.core.model.devices import (
    DeviceClassRecord,
    DeviceId,
    DeviceKind,
    DeviceTaint,
    PoolId,
    SliceRecord,
    TaintRuleRecord,
)
from scheduler.core.model.facts import Facts
from scheduler.core.model.records import NodeRecord

#: Other effects, ``None`` among them, keep nobody off.
KEEPS_OFF: Final = frozenset({"NoSchedule", "NoExecute"})


def keep_off(taints: Iterable[DeviceTaint], tolerations: Iterable[DeviceToleration]) -> bool:
    """Whether a taint keeps a request off a device."""
    listed = tuple(tolerations)
    return any(taint.effect in KEEPS_OFF and not any(_tolerates(each, taint) for each in listed) for taint in taints)


def _tolerates(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    if toleration.effect not in {"", taint.effect} or toleration.key not in {"", taint.key}:
        return False
    return toleration.operator == "Exists" or (toleration.operator in {"", "Equal"} and toleration.value == taint.value)


#: Driver and pool that rules select; None: any.
Selected = tuple[str | None, str | None]
_NONE: Mapping[str | None, Mapping[str, DeviceTaint]] = {}


def selecting(pool_id: PoolId) -> tuple[Selected, ...]:
    """All ways to select a pool."""
    driver, pool = pool_id
    return (None, None), (driver, None), (None, pool), (driver, pool)


class TaintRules:
    """Rules by what they select, so that a pool looks at four places and not at all rules."""

    def __init__(self) -> None:
        self._known: dict[str, TaintRuleRecord] = {}
        #: Taints by name of the rule, by name of the device (None: all of them).
        self._taints: dict[Selected, dict[str | None, dict[str, DeviceTaint]]] = {}

    def put(self, name: str, rule: TaintRuleRecord | None) -> set[Selected]:
        """Take a rule as it is now (None: it is gone); returns what it and the one before it select."""
        changed: set[Selected] = set()
        before = self._known.pop(name, None)
        if before is not None:
            changed.add(self._drop(before))
        if rule is not None and rule.taint.effect in KEEPS_OFF:
            self._known[name] = rule
            selected = rule.driver, rule.pool
            self._taints.setdefault(selected, {}).setdefault(rule.device, {})[name] = rule.taint
            changed.add(selected)
        return changed

    def _drop(self, rule: TaintRuleRecord) -> Selected:
        selected = rule.driver, rule.pool
        by_device = self._taints[selected]
        del by_device[rule.device][rule.name]
        if not by_device[rule.device]:
            del by_device[rule.device]
        if not by_device:
            del self._taints[selected]
        return selected

    def tainted(self, pool_id: PoolId, slices: Collection[SliceRecord]) -> Collection[SliceRecord]:
        """The slices of a pool with the taints of rules; the same ones where no rule selects the pool."""
        found = [each for selected in selecting(pool_id) if (each := self._taints.get(selected, _NONE))]
        return [_tainted(each, found) for each in slices] if found else slices


def _tainted(published: SliceRecord, found: list[Mapping[str | None, Mapping[str, DeviceTaint]]]) -> SliceRecord:
    of_all = _listed(None, found)
    devices = []
    for device in published.devices:
        added = of_all + _listed(device.name, found)
        # Several rules may give the same taint.
        taints = tuple(dict.fromkeys(device.taints + added)) if added else device.taints
        devices.append(msgspec.structs.replace(device, taints=taints) if added else device)
    return msgspec.structs.replace(published, devices=tuple(devices))


def _listed(device: str | None, found: list[Mapping[str | None, Mapping[str, DeviceTaint]]]) -> tuple[DeviceTaint, ...]:
    return tuple(chain.from_iterable(each[device].values() for each in found if device in each))


#: The most lists of selectors for which a node's devices are kept judged.
_MOST_JUDGED: Final = 64
#: Bytes of answers for nodes that are kept.
_MOST_BYTES: Final = 64 << 20
#: What one pod asks for.
Needs: TypeAlias = tuple[DeviceNeed, ...]

#: The attribute in which drivers of GPUs publish the UUID by which programs know a device.
UUID: Final = "uuid"
_NO_POOLS: Final[Mapping[PoolId, Pool]] = {}
#: Most slices of a pool that are searched for nodes when one changes; of a larger pool, a change is one of all nodes.
_MOST_LOOKED_AT: Final = 16


class NodePool:
    """A pool as one node reaches it: its devices in order, each with its place. ``wrong``: why it gives nothing."""

    __slots__ = ("_answers", "_named", "_runs", "_selectors", "devices", "places", "pool", "wrong")

    def __init__(self, pool: Pool, reached: Iterable[Run], selectors: Selectors) -> None:
        self._runs = tuple(reached)
        self.pool = pool
        self.places = tuple(place for place, run in self._runs for _ in run)
        self.devices = tuple(device for _, run in self._runs for device in run)
        self.wrong = pool.wrong or self._repeated()
        self._selectors = selectors
        #: A text: why there is no answer.
        self._answers: dict[Asked, list[bool | str | None]] = {}
        self._named: dict[str, list[str]] | None = None

    def named(self, uuid: str) -> Sequence[str]:
        """The devices with this UUID: a driver may publish one in several ways, for passing it through, say."""
        if self._named is None:
            self._named = {}
            for device in self.devices:
                self._named.setdefault(uuid_of(device.kind), []).append(device.name)
        return self._named.get(uuid, ())

    def is_of(self, reached: Iterable[Run]) -> bool:
        """Whether these are its devices."""
        return self._runs == tuple(reached)

    def _repeated(self) -> str:
        names = [device.name for device in self.devices if device.name in self.pool.repeated]
        return "" if len(set(names)) == len(names) else f"several devices have the name {min(names)}"

    def takes(self, asked: Asked, number: int) -> bool:
        """Whether selectors take the device of this number. Raises SelectorFailed, and NotEvaluated."""
        if not (asked.of_class or asked.own):
            return True
        answers = self._answers.get(asked)
        if answers is None:
            drop_for(self._answers, _MOST_JUDGED)
            answers = self._answers[asked] = [None] * len(self.devices)
        answer = answers[number]
        if answer is None:
            answer = answers[number] = self._judge(asked, number)
        if isinstance(answer, str):
            raise SelectorFailed(answer)
        return answer

    def takes_any(self, asked: Asked) -> bool:
        """Whether selectors take a device; one that they can't judge is none."""
        for number in range(len(self.devices)):
            with suppress(SelectorFailed):
                if self.takes(asked, number):
                    return True
        return False

    def _judge(self, asked: Asked, number: int) -> bool | str:
        try:
            return self._selectors.take(asked, self.devices[number].kind)
        except SelectorFailed as error:
            return str(error)


def drop_for(kept: dict[Asked, list[bool | str | None]], most: int) -> None:
    """If ``most`` are kept, drop the oldest answers of the namespace that has most."""
    if len(kept) < most:
        return
    counts = Counter(asked.namespace for asked in kept)
    largest = max(counts, key=counts.__getitem__)
    del kept[next(asked for asked in kept if asked.namespace == largest)]


class KeptAnswers:
    """Answers for nodes, by what was asked. Each namespace has a share; where all is full, the largest share shrinks.

    What was asked counts as well, once for all nodes. ``base``: has the answers for nodes that it knows.
    """

    def __init__(self, *, most_bytes: int = _MOST_BYTES, base: KeptAnswers | None = None) -> None:
        self._most_bytes = most_bytes
        self._base = base
        self._by_node: dict[str, dict[Needs, tuple[Any, int]]] = {}
        #: Nodes and what was asked for them, the oldest first, by namespace.
        self._order: dict[str, dict[tuple[str, Needs], None]] = {}
        self._sizes: Counter[str] = Counter()
        #: What was asked, with its bytes; and for how many nodes an answer is kept.
        self._asked: dict[Needs, tuple[Needs, int]] = {}
        self._users: Counter[Needs] = Counter()
        #: About what all answers occupy.
        self.size_bytes = 0

    def get(self, node: str, needs: Needs) -> Any:
        """Return the answer for a node; None if none is kept."""
        known = self._by_node.get(node)
        if known is None:
            return None if self._base is None else self._base.get(node, needs)
        kept = known.get(needs)
        return None if kept is None else kept[0]

    def knows(self, node: str) -> bool:
        """Whether it has had answers for a node."""
        return node in self._by_node

    def put(self, node: str, needs: Needs, answer: Any, size_bytes: int) -> None:
        """Keep an answer for a node."""
        if self._base is not None and node not in self._by_node and self._base.knows(node):
            self._base.put(node, needs, answer, size_bytes)
            return
        kept = self._by_node.setdefault(node, {})
        before = kept.get(needs)
        if before is None:
            needs, of_asked = self._use(needs)
            more = size_bytes + of_asked
            self._order.setdefault(_namespace(needs), {})[node, needs] = None
        else:
            more = size_bytes - before[1]
        kept[needs] = answer, size_bytes
        if not more:
            return
        self._sizes[_namespace(needs)] += more
        self.size_bytes += more
        while self.size_bytes > self._most_bytes:
            largest = max(self._order, key=self._sizes.__getitem__)
            self._drop(*next(iter(self._order[largest])))

    def forget_node(self, node: str) -> None:
        """Drop all answers for a node."""
        for needs in [*self._by_node.get(node, ())]:
            self._drop(node, needs)
        self._by_node.pop(node, None)

    def _use(self, needs: Needs) -> tuple[Needs, int]:
        """Keep what was asked for one more node: the object that has it, and its bytes if it was not kept so far."""
        known = self._asked.get(needs)
        if known is None:
            known = self._asked[needs] = needs, len(repr(needs))
        self._users[known[0]] += 1
        return known[0], known[1] if self._users[known[0]] == 1 else 0

    def _leave(self, needs: Needs) -> int:
        """No longer keep what was asked for one of its nodes; return the bytes that are free by that."""
        self._users[needs] -= 1
        if self._users[needs]:
            return 0
        del self._users[needs]
        return self._asked.pop(needs)[1]

    def _drop(self, node: str, needs: Needs) -> None:
        kept = self._by_node.get(node, {}).pop(needs, None)
        if kept is None:
            return
        namespace = _namespace(needs)
        order = self._order[namespace]
        del order[node, needs]
        less = kept[1] + self._leave(needs)
        self._sizes[namespace] -= less
        self.size_bytes -= less
        if not order:
            del self._order[namespace], self._sizes[namespace]


def _namespace(needs: Needs) -> str:
    """The namespace of a pod's claims; of what is asked for without one, none."""
    return next((need.namespace for need in needs if need.namespace), "")


#: By node: the node and the pools that were looked at, and what it reaches of them.
_Kept = MutableMapping[str, tuple[NodeRecord, tuple[Pool, ...], tuple[NodePool, ...]]]


class InventoryView:
    """What an inventory has, as of one moment. It never changes, but for what it remembers of its own answers."""

    __slots__ = ("_answers", "_at", "_classes", "_kept", "_pools", "_roaming", "_selectors")

    def __init__(
        self,
        classes: Mapping[str, DeviceClassRecord],
        at: Mapping[str, Mapping[PoolId, Pool]],
        roaming: Mapping[PoolId, Pool],
        *,
        pools: Mapping[PoolId, Pool],
        selectors: Selectors,
        kept: _Kept,
        answers: KeptAnswers,
    ) -> None:
        self._classes = classes
        self._at = at
        self._roaming = roaming
        self._pools = pools
        self._selectors = selectors
        self._kept = kept
        self._answers = answers

    @property
    def effort_spent(self) -> int:
        """What selectors have taken so far, in operations of about a microsecond."""
        return self._selectors.effort_spent

    @property
    def has_common_pools(self) -> bool:
        """Whether there are pools of which more than one node reaches devices."""
        return bool(self._roaming) or any(len(pool.runs_at) > 1 for pool in self._pools.values())

    def with_pools(self, pools: Sequence[Pool]) -> InventoryView:
        """The same with further pools, each of one node. What it remembers of other nodes is shared."""
        at = {pool.id: pool for pool in pools}
        further: dict[str, dict[PoolId, Pool]] = {}
        for pool in pools:
            for node in pool.runs_at:
                further.setdefault(node, dict(self._at.get(node, _NO_POOLS)))[pool.id] = pool
        return InventoryView(
            self._classes,
            {**self._at, **further},
            self._roaming,
            pools={**self._pools, **at},
            selectors=self._selectors,
            kept=ChainMap({}, self._kept),
            answers=KeptAnswers(base=self._answers),
        )

    @property
    def answers(self) -> KeptAnswers:
        """What was answered for nodes with these classes; for those who ask the same again."""
        return self._answers

    def spend_at_most(self, operations: int | None) -> None:
        """From now on, selectors raise NotEvaluated once they have taken this much. None: never."""
        self._selectors.spend_at_most(operations)

    def pool(self, pool_id: PoolId) -> Pool | None:
        """The pool of this driver and name."""
        return self._pools.get(pool_id)

    def kind_of(self, device: DeviceId) -> DeviceKind | None:
        """What its driver says of a device."""
        pool = self._pools.get(device[:2])
        runs = () if pool is None else pool.runs
        return next((each.kind for _, run in runs for each in run if each.name == device[2]), None)

    def device_class(self, name: str) -> DeviceClassRecord | None:
        """The class of this name."""
        return self._classes.get(name)

    def has_any(self, node: NodeRecord, expressions: tuple[str, ...]) -> bool:
        """Whether a node reaches a device that these selectors take, in use or not."""
        return any(pool.takes_any(Asked(expressions)) for pool in self.pools_on(node))

    def missing(self, needs: Iterable[DeviceNeed]) -> str | None:
        """The first class that these needs name and that does not exist."""
        asked = (ask.device_class for need in needs for ask in need.asks())
        return next((name for name in asked if name not in self._classes), None)

    def pools_on(self, node: NodeRecord) -> tuple[NodePool, ...]:
        """The pools of which a node reaches a device, by driver and name."""
        candidates = (*self._at.get(node.name, _NO_POOLS).values(), *self._roaming.values())
        known = self._kept.get(node.name)
        # Changes of a node that have nothing to do with its labels are frequent.
        if known is not None and _same(known[1], candidates) and (known[0] is node or known[0].labels == node.labels):
            return known[2]
        before = {id(each.pool): each for each in known[2]} if known is not None else {}
        made = []
        # As kube-scheduler: devices for which nobody has to wait come first.
        for pool in sorted(candidates, key=lambda each: (each.has_awaited, each.id)):
            reached = pool.reached(node)
            if not reached:
                continue
            same = before.get(id(pool))
            made.append(same if same and same.is_of(reached) else NodePool(pool, reached, self._selectors))
        now = tuple(made)
        self._kept[node.name] = node, candidates, now
        return now


def _same(one: tuple[Pool, ...], other: tuple[Pool, ...]) -> bool:
    return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))


class Inventory:
    """Slices, classes and taint rules as they come.

    ``changed``: nodes whose devices may have changed; None: any, or a class or a rule has.
    """

    def __init__(
        self,
        changed: Callable[[frozenset[str] | None], None],
        *,
        read_changed: Callable[[], None],
        compiler: Compiler,
    ) -> None:
        self._tell = changed
        self._selectors = Selectors(compiler)
        self.slices: Facts[str, SliceRecord] = Facts(self._slice_changed, read_changed=read_changed)
        self.classes: Facts[str, DeviceClassRecord] = Facts(self._class_changed, read_changed=read_changed)
        self.rules: Facts[str, TaintRuleRecord] = Facts(self._rule_changed, read_changed=read_changed)
        self._taint_rules = TaintRules()
        #: What rules select that have changed since pools were made.
        self._retainted: set[Selected] = set()
        self._slices_of: dict[PoolId, dict[str, SliceRecord]] = {}
        #: The pool that each slice belongs to, by name: it may come back with another one.
        self._pool_of: dict[str, PoolId] = {}
        self._pools: dict[PoolId, Pool] = {}
        self._stale: set[PoolId] = set()
        #: Pools by node, and those whose devices any node may reach.
        self._at: dict[str, dict[PoolId, Pool]] = {}
        self._roaming: dict[PoolId, Pool] = {}
        #: Another one whenever a class is new, different or gone.
        self.classes_version = 0
        self._view: InventoryView | None = None
        self._kept: _Kept = {}
        #: By node, while the classes stay as they are.
        self._answers = KeptAnswers()

    def view(self) -> InventoryView:
        """What there is now. The same view until a slice or a class changes."""
        self._refresh()
        if self._view is None:
            classes = {record.name: record for record in self.classes.all()}
            self._view = InventoryView(
                classes,
                dict(self._at),
                dict(self._roaming),
                pools=dict(self._pools),
                selectors=self._selectors,
                kept=self._kept,
                answers=self._answers,
            )
        return self._view

    def published_for(self, node: str) -> tuple[SliceRecord, ...]:
        """The slices of pools that this node alone reaches, as their drivers published them."""
        self._refresh()
        own = (pool for pool in self._at.get(node, _NO_POOLS).values() if len(pool.runs_at) == 1)
        return tuple(self._slices_of[pool.id][each.name] for pool in own for each in pool.slices)

    def view_with(self, slices: Iterable[SliceRecord]) -> InventoryView:
        """What there would be with these slices of further pools; taint rules select them like all others."""
        by_pool: dict[PoolId, list[SliceRecord]] = {}
        for each in slices:
            by_pool.setdefault(each.pool_id, []).append(each)
        return self.view().with_pools(
            [make_pool(pool_id, self._taint_rules.tainted(pool_id, listed)) for pool_id, listed in by_pool.items()]
        )

    def forget_node(self, name: str) -> None:
        """Drop what was answered for a node that is gone. Its slices stay until their driver deletes them."""
        self._kept.pop(name, None)
        self._answers.forget_node(name)

    def _class_changed(self, _: DeviceClassRecord) -> None:
        self.classes_version += 1
        self._view = None
        self._answers = KeptAnswers()
        self._tell(None)

    def _slice_changed(self, record: SliceRecord) -> None:
        now = self.slices.get(record.name)
        before = self._pool_of.pop(record.name, None)
        pools = {before} if before is not None else set()
        changed = [self._slices_of[before].pop(record.name)] if before is not None else []
        if now is not None:
            pools.add(now.pool_id)
            self._pool_of[now.name] = now.pool_id
            self._slices_of.setdefault(now.pool_id, {})[now.name] = now
        # The others of the pool may be of use only now, or no longer.
        for pool_id in pools:
            changed += self._slices_of.get(pool_id, {}).values()
        self._stale |= pools
        self._view = None
        self._tell(_nodes_of(changed) if len(changed) <= _MOST_LOOKED_AT else None)

    def _rule_changed(self, record: TaintRuleRecord) -> None:
        changed = self._taint_rules.put(record.name, self.rules.get(record.name))
        if changed:
            self._retainted |= changed
            self._view = None
            self._tell(None)

    def _refresh(self) -> None:
        if self._retainted:
            self._stale.update(each for each in self._slices_of if not self._retainted.isdisjoint(selecting(each)))
            self._retainted = set()
        while self._stale:
            pool_id = self._stale.pop()
            self._leave(pool_id)
            slices = self._slices_of.get(pool_id)
            if not slices:
                self._slices_of.pop(pool_id, None)
                continue
            pool = self._pools[pool_id] = make_pool(pool_id, self._taint_rules.tainted(pool_id, slices.values()))
            if pool.open_runs:
                self._roaming[pool_id] = pool
                continue
            for node in pool.runs_at:
                self._at[node] = {**self._at.get(node, {}), pool_id: pool}

    def _leave(self, pool_id: PoolId) -> None:
        pool = self._pools.pop(pool_id, None)
        if pool is None:
            return
        if self._roaming.pop(pool_id, None) is not None:
            return
        for node in pool.runs_at:
            left = {each: kept for each, kept in self._at.get(node, {}).items() if each != pool_id}
            if left:
                self._at[node] = left
            else:
                self._at.pop(node, None)
                self.forget_node(node)


def _nodes_of(slices: Iterable[SliceRecord]) -> frozenset[str] | None:
    """Nodes that may reach a device of these; None: any may."""
    places = {device.place or each.place for each in slices for device in each.devices} - {None}
    named = frozenset(place.node for place in places if place is not None)
    return None if "" in named else named


def uuid_of(kind: DeviceKind) -> str:
    """The UUID of a device, "" if its driver does not publish one."""
    attributes = dict(kind.attributes)
    found = attributes.get(UUID) or attributes.get(f"{kind.driver}/{UUID}")
    return str(found.value) if found is not None and found.kind == "string" else ""
