"""What a decision on a changed snapshot costs: ``python -m bench.as_if``. Nothing here is a test.

The nodes are full, with 8 GPUs each, used by 100 queues; 200 gangs of 4 pods of 2 GPUs and 2,000 shares wait. One gang
is decided on alone after each change. CPU time of the process, median and longest of 15: ``with_ms`` of
``Snapshot.with_`` alone, ``all_ms`` with the decision. ``preemption``: whether it searches which pods would go as well.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from scheduler.core.cluster import Cluster
from scheduler.core.convert.nodes import node_record
from scheduler.core.convert.queues import queue_record
from scheduler.core.decide.changes import (
    AnotherAsk,
    AnotherMinimum,
    AnotherNode,
    AnotherQueue,
    Change,
    Cordoned,
    Drained,
    OnlyThese,
    WithoutPods,
)
from scheduler.core.decide.decide import decide_as_if
from scheduler.core.model.settings import Settings
from tests.scheduler.core.objects import feed, node, pod, pod_group, queue
from wire import names

_QUEUES: Final = 100
_GANGS: Final = 200
_SHARES: Final = 2_000
_TIMES: Final = 15
_WALL_S: Final = 1_000_000_000
_MEMBERS: Final = tuple(f"uid-w7-{number}" for number in range(4))


def _cluster(nodes: int, *, preemption: bool) -> Cluster:
    """A cluster that has decided on all that waits."""
    made = Cluster(Settings(preemption=preemption))
    feed(made, *(queue(f"d{number}", gpu=(0, 1, -1)) for number in range(10)))
    feed(made, *(queue(f"q{number}", f"d{number % 10}", gpu=(8, 1, -1)) for number in range(_QUEUES)))
    feed(made, *(node(_name(number), 8, mem_mib=80_000) for number in range(nodes)))
    feed(made, *(pod_group(f"g{number}", 4, queue=f"q{number % _QUEUES}") for number in range(_GANGS)))
    for number in range(8 * nodes):
        feed(made, pod(f"t{number}", gpus=1, bound_to=_name(number // 8), labels=_in_queue(number), priority=50))
    for number in range(_GANGS):
        feed(made, *(pod(f"w{number}-{member}", gpus=2, group=f"g{number}") for member in range(4)))
    for number in range(_SHARES):
        feed(made, pod(f"s{number}", fraction="0.5", cpu=str(1 + number % 40), labels=_in_queue(number)))
    while made.decide(0, wall_s=_WALL_S).wake_at_ns == 0:
        pass
    return made


def _name(number: int) -> str:
    return f"n{number:05}"


def _in_queue(number: int) -> dict[str, str]:
    return {names.QUEUE_LABEL: f"q{number % _QUEUES}"}


def _changes(made: Cluster) -> dict[str, Change]:
    waiting = made.pod(_MEMBERS[0])
    if waiting is None:
        raise LookupError(_MEMBERS[0])
    less = msgspec.structs.replace(waiting.cls, demand=msgspec.structs.replace(waiting.cls.demand, gpus=1))
    return {
        "another node": AnotherNode(node_record(node("new", 8, mem_mib=80_000))),
        "cordoned": Cordoned(_name(5)),
        "drained": Drained(_name(5)),
        "without 8 pods": WithoutPods(tuple(f"uid-t{number}" for number in range(8))),
        "another quota": AnotherQueue(queue_record(queue("q7", "d7", gpu=(20, 1, -1)))),
        "another ask": AnotherAsk(_MEMBERS, less),
        "another minimum": AnotherMinimum("ns", "g7", 1),
    }


def _cpu_ms(step: Callable[[], object]) -> tuple[float, float]:
    """CPU time of a step, median and longest."""
    taken = []
    for _ in range(_TIMES):
        began = time.process_time()
        step()
        taken.append((time.process_time() - began) * 1e3)
    return round(statistics.median(taken), 2), round(max(taken), 2)


def measure(nodes: int, *, preemption: bool) -> list[dict[str, object]]:
    """One row for each change."""
    made = _cluster(nodes, preemption=preemption)
    snapshot, only, found = made.snapshot(), OnlyThese(frozenset(_MEMBERS)), list[dict[str, object]]()
    for name, change in _changes(made).items():
        changes = (change, only)
        alone = _cpu_ms(lambda changes=changes: snapshot.with_(*changes))  # type: ignore[misc] # bound in the loop
        both = _cpu_ms(
            lambda changes=changes: decide_as_if(snapshot, *changes, now_ns=0, wall_s=_WALL_S)  # type: ignore[misc]
        )
        row = {"nodes": nodes, "preemption": preemption, "change": name}
        found.append({**row, "with_ms": alone[0], "all_ms": both[0], "longest_ms": both[1]})
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Print one JSON line a change."""
    parser = argparse.ArgumentParser(description="Measure what a decision on a changed snapshot costs.")
    parser.add_argument("--nodes", type=int, default=1_000)
    nodes = parser.parse_args(arguments).nodes
    for preemption in (False, True):
        for row in measure(nodes, preemption=preemption):
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
