"""A trace of the openb form that nobody measured: a few shapes of nodes, and pods of every kind."""

from __future__ import annotations

import random

from simulator.traces.trace import Ask, Trace, TraceNode, TracePod

_NODES = (
    (96_000, 393_216, 8, "G2"),
    (104_000, 262_144, 2, "T4"),
    (32_000, 131_072, 4, "V100"),
    (16_000, 65_536, 2, "T4"),
)
_SHARES = (100, 190, 250, 333, 500, 810)


def trace(nodes: int, pods: int, *, seed: int = 1, has_models: bool = False) -> Trace:
    """The same for the same seed."""
    rng = random.Random(seed)
    made = []
    for number in range(nodes):
        cpu_milli, mem_mib, gpus, model = rng.choice(_NODES)
        made.append(TraceNode(name=f"n{number:04d}", cpu_milli=cpu_milli, mem_mib=mem_mib, gpus=gpus, model=model))
    asks = [_ask(rng, has_models=has_models) for _ in range(pods)]
    return Trace(nodes=tuple(made), pods=tuple(TracePod(name=f"p{i:05d}", ask=ask) for i, ask in enumerate(asks)))


def _ask(rng: random.Random, *, has_models: bool) -> Ask:
    cpu_milli, mem_mib = rng.choice((1_000, 4_000, 8_000, 12_000)), rng.choice((2_048, 16_384, 49_152))
    kind = rng.choice(("cpu", "share", "share", "whole", "whole", "many"))
    if kind == "cpu":
        return Ask(cpu_milli=cpu_milli, mem_mib=mem_mib)
    models = ("T4", "G2") if has_models and rng.random() < 0.3 else ()
    gpus = rng.choice((2, 4, 8)) if kind == "many" else 1
    milli = rng.choice(_SHARES) if kind == "share" else 1_000
    return Ask(cpu_milli=cpu_milli, mem_mib=mem_mib, gpus=gpus, gpu_milli=milli, models=models)
