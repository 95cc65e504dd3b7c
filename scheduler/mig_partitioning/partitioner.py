"""Has MIG slices made for pods that wait for them: asks the agents of nodes by ``spec.mig`` of their GpuNodes.

Decisions never wait for this. Now and then it looks at the pods that were last said to wait, and at what GpuNodes show
(docs/mig.md). An agent refuses what it can't do safely, so what is known here may be old.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable, Sequence
from typing import Any, Final

import anyio
import anyio.lowlevel

from kube.client.api import Api
from kube.client.clock import monotonic_ns
from kube.client.errors import ApiError, Conflict, NotFound
from kube.client.resources import GPU_NODES
from kube.lead.secondary import Kind, SecondaryTee
from kube.watch.reflector import Sink
from kube.watch.signal import Signal
from scheduler.core.convert.nodes import mig_node
from scheduler.core.mig_partitioning.attempts import PREFIX, Amounts, Attempts, Withdraw
from scheduler.core.mig_partitioning.node_choice import Cutter, GpuPartition, Look, SliceWant, is_offered, slice_wants
from scheduler.core.model.mig import MigLayoutAsked, MigNode
from scheduler.core.model.verdict import Code, Verdict
from scheduler.settings import PartitioningSettings
from scheduler.watch.cache import Cache
from wire.crds.gpunode import GpuNode
from wire.tombstones import is_older


class GpuNodeSink:
    """Follows GpuNodes. Those without a GPU in MIG mode are not kept."""

    def __init__(self, wake: Signal) -> None:
        self._wake = wake
        self.nodes: dict[str, MigNode] = {}

    def keep(self, obj: GpuNode) -> MigNode:
        """What is kept of a GpuNode."""
        return mig_node(obj)

    async def replace(self, kept: Sequence[MigNode]) -> None:
        """Take a list: what is not in it is gone."""
        self.nodes.clear()  # a look that is under way sees it
        self.nodes |= {node.name: node for node in kept if node.cards}
        self._wake.set()

    def upsert(self, obj: GpuNode) -> None:
        """Take a GpuNode, from the watch or as the answer to a write."""
        node, known = self.keep(obj), self.nodes.get(obj.metadata.name)
        if known is not None and is_older(node.rv, known.rv):
            return
        if node.cards:
            self.nodes[node.name] = node
        else:
            self.nodes.pop(node.name, None)
        self._wake.set()

    def delete(self, obj: GpuNode) -> None:
        """Take a GpuNode's last state."""
        self.nodes.pop(obj.metadata.name, None)
        self._wake.set()

    def in_step(self, is_in_step: bool) -> None:
        """Take whether changes come in. What is known stays: agents refuse what is not true any more."""
        if is_in_step:
            self._wake.set()


_log: Final = logging.getLogger(__name__)
#: So much longer than its thinking, at least, is the pause after a look.
_PAUSE_PER_LOOK: Final = 10
#: A group for which nothing could be cut is looked at again after this, in seconds, if anything has changed.
_AGAIN_S: Final = 5.0
#: Nodes that a pod's condition names.
_MOST_NAMES: Final = 3
#: Pods that are given other words before other work has its turn: some 30 microseconds each.
_MOST_SAID: Final = 256


class Partitioner:
    """Asks for slices, and takes back what no agent takes up."""

    def __init__(self, api: Api, cache: Cache, *, settings: PartitioningSettings, rng: random.Random) -> None:
        self._api = api
        self._cache = cache
        self._settings = settings
        self._rng = rng
        self._wake = Signal()
        self._sink = GpuNodeSink(self._wake)
        #: Which attempts are under way, and what became of others.
        self.attempts = Attempts(rest_s=settings.rest_s, patience_s=settings.patience_s, shown_s=settings.shown_s)
        #: Pods (UIDs) that say something of this, and nodes whose slices are capped.
        self._said: dict[str, Verdict] = {}
        self._capped: set[str] = set()
        self._has_decided = False
        self._thought_s = 0.0
        self._cutter = Cutter()
        #: Kinds of groups for which nothing could be cut: when that was (event loop's time).
        self._in_vain: dict[object, float] = {}
        self._has_more = False

    def kind(self, *also: Sink[GpuNode, Any]) -> Kind[GpuNode]:
        """Return what keeps it, and other sinks, in step with GpuNodes by one watch."""
        return Kind(GPU_NODES, SecondaryTee(self._sink, *also), "no MIG slices are made for pods")

    def begin(self) -> None:
        """Count out what goes by attempts that are under way: the first decision places nobody on that."""
        self.attempts.observe(self._sink.nodes, now_s=anyio.current_time(), there=self._there)
        self._cap()

    def decided(self) -> None:
        """A decision was made: other pods may wait now."""
        self._has_decided = True
        self._wake.set()

    async def run(self) -> None:
        """Look whenever something has changed, until cancelled."""
        while True:
            await self._wait()
            await anyio.sleep(max(self._settings.look_s, _PAUSE_PER_LOOK * self._thought_s))
            await self.look()

    async def _wait(self) -> None:
        times = [self.attempts.next_s(), *(at_s + _AGAIN_S for at_s in self._in_vain.values())]
        at_s = min((each for each in times if each is not None), default=None)
        if self._has_more:
            return
        with anyio.move_on_after(None if at_s is None else max(0.0, at_s - anyio.current_time())):
            await self._wake.wait()

    async def look(self) -> None:
        """Ask for what is wanted now, and take back what was in vain."""
        if not self._has_decided:
            return
        now_s = anyio.current_time()
        withdrawals = self.attempts.observe(self._sink.nodes, now_s=now_s, there=self._there)
        self._cap()
        self._thought_s = anyio.current_time() - now_s
        await anyio.lowlevel.checkpoint()
        asked, none = await self._think(now_s)
        for withdraw in withdrawals:
            await self._withdraw(withdraw)
        for partition, attempt in asked:
            await self._ask(partition, attempt)
        self._cap()
        await self._say(none)

    async def _think(self, now_s: float) -> tuple[list[tuple[GpuPartition, str]], Sequence[SliceWant]]:
        """Choose in steps, since other work waits for each; return what is to be asked, and for whom nothing was found.

        What a step chooses is charged at once: no decision in between places anybody on what goes.
        """
        asked, nodes = list[tuple[GpuPartition, str]](), self._sink.nodes
        if not nodes:
            return asked, ()
        began_s = anyio.current_time()
        wants, due = self._wanted(now_s)
        self._thought_s += anyio.current_time() - began_s
        await anyio.lowlevel.checkpoint()
        began_s = anyio.current_time()
        look = Look(
            self._cache.cluster, nodes, busy=self.attempts.busy(now_s), cutter=self._cutter, now_ns=monotonic_ns()
        )
        for partitions in look.steps(due):
            asked += [(partition, self._begin(partition)) for partition in partitions]
            if partitions:
                self._cap()
            self._thought_s += anyio.current_time() - began_s
            await anyio.lowlevel.checkpoint()
            began_s = anyio.current_time()
        found = look.chosen
        self._in_vain = self._vain(wants) | {want.kind: now_s for want in found.none}
        self._has_more = bool(found.rest)
        uids = {uid for partition, _ in asked for uid in partition.uids}
        self._thought_s += anyio.current_time() - began_s
        return asked, [want for want in wants if want.kind in self._in_vain and not uids & {*want.uids}]

    def _wanted(self, now_s: float) -> tuple[list[SliceWant], list[SliceWant]]:
        """Return all that wait for slices, and those that are looked at now."""
        cluster = self._cache.cluster
        explained = cluster.scheduling_queue.said.all()
        wants = slice_wants(cluster, explained, now_ns=monotonic_ns(), covered=self.attempts.covered())
        before = self._vain(wants)
        # Those that were not looked at lately come first: nobody's group holds up another's.
        due = [want for want in wants if before.get(want.kind, -_AGAIN_S) + _AGAIN_S <= now_s]
        due.sort(key=lambda want: before.get(want.kind, float("-inf")))
        return wants, due

    def _vain(self, wants: Iterable[SliceWant]) -> dict[object, float]:
        return {want.kind: self._in_vain[want.kind] for want in wants if want.kind in self._in_vain}

    def _begin(self, partition: GpuPartition) -> str:
        attempt = f"{PREFIX}{self._rng.getrandbits(64):016x}"
        self.attempts.begin(partition, attempt, self._there(partition.node) or (), now_s=anyio.current_time())
        return attempt

    def _there(self, name: str) -> Amounts | None:
        """What a node offers; None if its GPUs are not offered for this."""
        node = self._cache.cluster.node(name)
        return node.capacity.extended if node is not None and is_offered(node) else None

    def _cap(self) -> None:
        """Have slices that are about to go count no more."""
        caps = self.attempts.caps()
        for name in sorted(self._capped | caps.keys()):
            self._cache.cluster.cap_slices(name, caps.get(name, {}))
        if self._capped or caps:
            self._cache.wake.set()
        self._capped = set(caps)

    async def _say(self, none: Iterable[SliceWant]) -> None:
        """Have pods say that slices are being made for them, or that none can be made; not too many in one piece."""
        cluster, now = self._cache.cluster, self._under_way()
        for want in none:
            verdict = Verdict(code=Code.NO_GPU_CAN_BE_PARTITIONED, detail=want.text)
            now |= dict.fromkeys(filter(self._waits, want.uids), (verdict, want.pod_group))
        if gone := self._said.keys() - now.keys():
            cluster.say_no_more(sorted(gone))
        said = cluster.scheduling_queue.said
        news = {uid: each for uid, each in now.items() if said.verdict(uid) != each[0]}
        self._said = {uid: verdict for uid, (verdict, _) in now.items()}
        for number, (uid, (verdict, group)) in enumerate(sorted(news.items()), 1):
            if self._waits(uid):
                cluster.say([uid], verdict, group)
            if number % _MOST_SAID == 0:
                await anyio.lowlevel.checkpoint()
        if gone or news:
            self._cache.wake.set()

    def _under_way(self) -> dict[str, tuple[Verdict, tuple[str, str] | None]]:
        """What pods say for which slices are being made, by UID."""
        nodes: dict[str, set[str]] = {}
        for one in self.attempts.in_flight.values():
            for uid in one.uids:
                nodes.setdefault(uid, set()).add(one.node)
        found: dict[str, tuple[Verdict, tuple[str, str] | None]] = {}
        for uid, names in nodes.items():
            pod = self._cache.cluster.pod(uid)
            if pod is not None and not pod.node:
                group = (pod.namespace, pod.pod_group) if pod.pod_group else None
                found[uid] = Verdict(code=Code.PARTITIONING_UNDER_WAY, detail=_listed(sorted(names))), group
        return found

    def _waits(self, uid: str) -> bool:
        pod = self._cache.cluster.pod(uid)
        return pod is not None and not pod.node

    async def _ask(self, partition: GpuPartition, attempt: str) -> None:
        uuid, node = partition.cut.uuid, self._sink.nodes.get(partition.node)
        if node is None or node.is_open(uuid):
            self.attempts.forget(partition.node, uuid)  # somebody else has asked meanwhile
            return
        try:
            await self._write(node, uuid, MigLayoutAsked(uuid, attempt, partition.cut.layout))
        except (Conflict, NotFound):
            # It changed meanwhile: the watch says how, and whether this was written.
            self.attempts.forget(partition.node, uuid)
        except ApiError as error:
            _log.warning("GpuNode %s could not be written: %s", partition.node, error)
            if not error.outcome_unknown:
                self.attempts.drop(partition.node, uuid, now_s=anyio.current_time())
        else:
            _log.info("MIG slices of %s on %s are asked for: %s", uuid, partition.node, partition.cut.layout)

    async def _withdraw(self, what: Withdraw) -> None:
        node = self._sink.nodes.get(what.node)
        asked = None if node is None else node.asked_of(what.uuid)
        if node is None or asked is None or asked.attempt != what.attempt:
            return
        _log.warning("the agent on %s did not make MIG slices of %s: withdrawn", what.node, what.uuid)
        try:
            await self._write(node, what.uuid, None)
        except (Conflict, NotFound):
            pass  # it comes again after the GPU's rest
        except ApiError as error:
            _log.warning("GpuNode %s could not be written: %s", what.node, error)

    async def _write(self, node: MigNode, uuid: str, wanted: MigLayoutAsked | None) -> None:
        """Write what is asked of one GPU, at exactly the version that was looked at. Raises ApiError."""
        asked = [each for each in node.asked if each.uuid != uuid]
        asked += [] if wanted is None else [wanted]
        body = {"spec": {"mig": [_entry(each) for each in asked] or None}}
        self._sink.upsert(await self._api.patch(GPU_NODES, node.name, body, resource_version=node.rv))


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMES
    shown = ", ".join(names[:_MOST_NAMES])
    return f"{shown} and {more} more" if more > 0 else shown


def _entry(asked: MigLayoutAsked) -> dict[str, Any]:
    layout = [{"profile": profile, "start": start} for profile, start in asked.layout]
    return {"uuid": asked.uuid, "attempt": asked.attempt, "layout": layout}
