"""What it costs decisions when a team takes back a whole cluster, pod by pod: part of ``python -m bench.room``.

A node has 8 GPUs, each with a pod of other teams, of which a twentieth can't be preempted; as many pods of one GPU wait
whose queue is owed all of them. Every 20 ms of virtual time six victims go, as evictions have a rate, and what is
decided is carried out at once. So hundreds of decisions are made while intents stand.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

import msgspec

from bench.core import pod
from scheduler.core.cluster import Cluster
from scheduler.core.model.plan import Bind, Explain, GiveUp, MakeRoom, Plan
from wire import names
from wire.core import Pod

_STEP_NS = 20_000_000
_EVICTED_A_STEP = 6
#: Steps in which nothing happens that end it: more than lie between two looks for room.
_QUIET_STEPS = 60


class _Taking:
    """The shell, without an API server."""

    def __init__(self, cluster: Cluster, waiting: list[Pod]) -> None:
        self.cluster = cluster
        self.waiting = {each.metadata.uid: each for each in waiting}
        self.victims: deque[tuple[str, str]] = deque()
        self.bound = 0

    def evict(self) -> None:
        """Some victims of intents that stand go."""
        left = _EVICTED_A_STEP
        while left and self.victims:
            uid, intent_id = self.victims.popleft()
            if self.cluster.commits.intents.get(intent_id) is not None:
                self.cluster.remove_pod(uid, has_ended=True)
                left -= 1

    def carry_out(self, plan: Plan) -> bool:
        """Do what was decided; return whether that was anything."""
        intents, done = self.cluster.commits.intents, 0
        for entry in plan.entries:
            match entry:
                case MakeRoom(intent=intent):
                    intents.put(intent)
                    self.victims.extend((victim.pod_uid, intent.id) for victim in intent.victims)
                case GiveUp(intent_id=intent_id):
                    intents.drop(intent_id)
                case Bind(placement=placement):
                    self.cluster.commits.assume(placement)
                    self._bind(placement.pod_uid, placement.node)
                case _:
                    continue
            done += 1
        self.cluster.told([entry for entry in plan.entries if isinstance(entry, Explain)])
        return bool(done)

    def _bind(self, uid: str, node: str) -> None:
        was = self.waiting[uid]
        meta = msgspec.structs.replace(was.metadata, resource_version="2")
        spec = msgspec.structs.replace(was.spec, node_name=node)
        self.cluster.upsert_pod(msgspec.structs.replace(was, metadata=meta, spec=spec))
        self.bound += 1


def taken(nodes: int, filled: Callable[[int], Cluster], queue: str, wall_s: int) -> dict[str, object]:
    """Measure one size. ``filled``: makes the full cluster, in which ``queue`` is owed all GPUs."""
    cluster, waiting = filled(nodes), [_waiting(number, queue) for number in range(nodes * 8)]
    for each in waiting:
        cluster.upsert_pod(each)
    taking, cpu_s, quiet, now_ns = _Taking(cluster, waiting), list[float](), 0, 0
    while quiet < _QUIET_STEPS:
        now_ns += _STEP_NS
        taking.evict()
        began = time.process_time()
        plan = cluster.decide(now_ns, wall_s=wall_s + now_ns // 1_000_000_000)
        cpu_s.append(time.process_time() - began)
        quiet = 0 if taking.carry_out(plan) or taking.victims else quiet + 1
    return {
        "bench": f"room_taken_{nodes}",
        "pods": len(waiting),
        "bound": taking.bound,
        "decisions": len(cpu_s),
        "cpu_s": round(sum(cpu_s), 2),
        "us_a_pod": round(sum(cpu_s) / max(1, taking.bound) * 1e6),
        "longest_ms": round(max(cpu_s) * 1e3),
    }


def _waiting(number: int, queue: str) -> Pod:
    made = pod(f"taken-{number:05}", gpus=1)
    return msgspec.structs.replace(
        made, metadata=msgspec.structs.replace(made.metadata, labels={names.QUEUE_LABEL: queue})
    )
