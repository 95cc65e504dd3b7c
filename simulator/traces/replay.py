"""A trace replayed on records, pod by pod: each is placed if any node fits, else it is lost; none ends."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Final

from scheduler.core.model.pod_kind import WHOLE_MILLI, Kind
from scheduler.core.scores.prices import Arrivals, Prices, prices_of, typical_of
from simulator.traces.arrivals import Arrivals as Order
from simulator.traces.records import Records
from simulator.traces.tally import Run, Strategies, Tally
from simulator.traces.trace import Trace

#: The most arrivals between two looks at the mix. A young cluster is looked at more often, as its mix moves fast.
LEARNED_EVERY: Final = 500


class PricesFrom(enum.StrEnum):
    """What prices are made from: all pods of the trace, as published, or those that have come so far."""

    TRACE = "trace"
    ARRIVALS = "arrivals"


def replay(
    trace: Trace,
    order: Order,
    strategies: Strategies,
    *,
    seed: int,
    prices_from: PricesFrom = PricesFrom.TRACE,
    told: Callable[[int, str], None] = lambda _number, _node: None,
) -> Run:
    """Replay the arrivals of a seed. ``told``: of each pod by its number the node, "" if it is lost."""
    records = Records(trace.nodes, order.ranks, gpu_strategy=strategies.gpu, cpu_strategy=strategies.cpu)
    learns = prices_from is PricesFrom.ARRIVALS
    if records.cluster.settings.uses_prices:
        records.cluster.note_prices(records.prices() if learns else known_prices(trace))
    tally = Tally()
    look_at = 1
    for number, pod in enumerate(order.pods, 1):
        placed = records.place(f"p{number:07d}", pod.ask)
        tally.count(pod.ask, is_placed=placed is not None)
        told(number - 1, placed.node if placed else "")
        if records.cluster.settings.uses_prices and learns and number == look_at:
            records.cluster.note_prices(records.prices())
            look_at += min(number, LEARNED_EVERY)
    return tally.run(strategies, seed, capacity_milli=trace.capacity_milli, differences=records.validate())


def known_prices(trace: Trace) -> Prices | None:
    """Return prices by all pods of a trace, as if a cluster had got them before."""
    known = Arrivals()
    for pod in trace.pods:
        ask = pod.ask
        if ask.gpus:
            known.add(Kind(ask.gpus, min(ask.gpu_milli, WHOLE_MILLI), ask.cpu_milli, ask.mem_mib))
    return prices_of(typical_of(known.counts()))
