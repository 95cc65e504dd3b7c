"""The order in which pods of a trace arrive, and the order of nodes: the published procedure for one seed.

All pods of the trace come in random order. Then pods drawn at random follow, until the GPUs asked reach a load, in
percent of those of the nodes; if the trace asks for more than that, pods drawn at random are left out. Nodes get a
random order, in which equals are taken (Weng et al., USENIX ATC 2023, and its simulator).
"""

from __future__ import annotations

from typing import Final

import msgspec

from simulator.traces.go_random import GoRandom
from simulator.traces.trace import Trace, TracePod

#: Draws that the published program spends on time-outs of its watches, between pods and nodes.
_WATCHES: Final = 10


class Arrivals(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Pods in the order of arrival; ``ranks``: of each node of the trace, its place in the order of equals."""

    pods: tuple[TracePod, ...]
    ranks: tuple[int, ...]


def arrivals(trace: Trace, seed: int, *, load_percent: int) -> Arrivals:
    """Draw the arrivals of a seed."""
    rng = GoRandom(seed)
    rng.int63()
    pods = list(trace.pods)
    rng.shuffle(pods)
    asked, target = sum(pod.ask.total_milli for pod in pods), load_percent * trace.capacity_milli
    if asked * 100 > target:
        _leave_out(pods, rng, asked, target)
    elif trace.pods:
        _add(pods, rng, target, drawn_from=trace.pods)
    for _ in range(_WATCHES):
        rng.int63()
    return Arrivals(pods=tuple(pods), ranks=tuple(rng.permutation(len(trace.nodes))))


def _leave_out(pods: list[TracePod], rng: GoRandom, asked: int, target: int) -> None:
    while asked * 100 > target:
        asked -= pods.pop(rng.below(len(pods))).ask.total_milli


def _add(pods: list[TracePod], rng: GoRandom, target: int, *, drawn_from: tuple[TracePod, ...]) -> None:
    """Add pods until the next would be too much; the published program looks at one GPU of it."""
    if not any(pod.ask.gpus for pod in drawn_from):
        return
    asked = sum(pod.ask.total_milli for pod in pods)
    while True:
        pod = drawn_from[rng.below(len(drawn_from))]
        if (asked + pod.ask.gpu_milli) * 100 > target:
            return
        asked += pod.ask.total_milli
        pods.append(pod)
