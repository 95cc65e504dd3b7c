"""The webhooks under a steady load: the real process, pinned to one core, asked from the other as the API server asks.

What is asked was recorded on a real API server: pods of many forms, each reviewed by the mutating webhook, by the
validating one as it was made of that, and once more when a label of it changed (bench/reviews.py).
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from typing import Any, Final

import anyio
import msgspec

from bench import bench_cluster, processes
from bench.load_generator import GIVE_UP_S, Order, Told
from bench.objects import USUAL
from bench.result import Figures, Sizes, quantile, spread_ms
from bench.reviews import Recorded, recorded
from tools.cluster.deployment import ADMISSION, Deployment, Options
from tools.cluster.plane import ControlPlane

#: A rate is held if no review failed and none waited longer.
_HELD_WITHIN_S: Final = 1.0
_FLAT_OUT: Final = 0.0

NOTES: Final = (
    "The process is pinned to one core, the one that asks to the other; an idle control plane shares both.",
    "Requests as a real API server sent them (HTTP/1.1, TLS, connections kept alive): pods of "
    f"{len(USUAL)} forms ({', '.join(USUAL)}), in turn created (mutating, validating) and relabelled (validating).",
    "Waits count from when a review was due, not from when it was sent: late_p99_ms is the caller's own share of them.",
    "cost: two reviews at a time, as fast as they are answered: the least of the rounds holds on a busy machine too; "
    "reviews_per_cpu_s is what a core that does nothing else does at most.",
    "held: every review was answered within a second of when it was due, for as long as the row says.",
    "cpu_us_per_review is what the process used in all, TLS and HTTP included.",
    f"Reviews that are not answered within {GIVE_UP_S:g} s of when they were due are given up, and failed; their waits "
    "count as well.",
)


def measure(sizes: Sizes) -> Figures:
    """One control plane, one process of admission, all rates one after the other. Raises ValueError with one core."""
    cores = processes.cores()
    if len(cores) < 2:
        raise ValueError("admission and who asks it need a core each, and there is one")
    with ControlPlane(node_lifecycle=False) as plane, Deployment(plane, Options(components=(ADMISSION,))) as moorage:
        reviews = anyio.run(_recorded, plane)
        processes.pin(moorage.pid(ADMISSION), cores[-1])
        figures = _Rig(moorage, reviews, core=cores[0]).figures(sizes)
        figures["memory"] = processes.memory_mib(moorage.pid(ADMISSION))
        moorage.check()
    rates = {"rates": sizes.admission, "to_find_the_highest": sizes.admission_rates, "seconds_each": sizes.admission_s}
    return Figures(sizes={"reviews": len(reviews), **rates}, notes=NOTES, figures=figures)


async def _recorded(plane: ControlPlane) -> Sequence[Recorded]:
    async with bench_cluster.stage(plane, nodes=0) as scene:
        return await recorded(scene, USUAL)


class _Rig:
    def __init__(self, moorage: Deployment, reviews: Sequence[Recorded], *, core: int) -> None:
        self._moorage = moorage
        self._reviews = reviews
        self._core = core

    def figures(self, sizes: Sizes) -> dict[str, Any]:
        """Cost of a review, then waits at the rates that are asked for, then the highest rate that is held."""
        for_s, rounds = sizes.admission_cost
        us = sorted(_cpu_us(self._asked(_FLAT_OUT, for_s)) for _ in range(rounds))
        figures: dict[str, Any] = {
            "cost": {"cpu_us_per_review": us[0], "of_rounds": us, "reviews_per_cpu_s": round(1e6 / us[0])}
        }
        for per_s, rate_for_s in sizes.admission:
            figures[f"{per_s:g} per s for {rate_for_s:g} s"] = _row(self._asked(per_s, rate_for_s))
        return figures | self._highest(sizes)

    def _highest(self, sizes: Sizes) -> dict[str, Any]:
        """Rates that were held for a short time, and the highest that was held for the whole time."""
        rows = {}
        for per_s in sizes.admission_rates:
            told = self._asked(per_s, sizes.admission_s)
            if not _is_held(told):
                break
            rows[per_s] = told
        for per_s in sorted(rows, reverse=True):
            told = self._asked(per_s, sizes.admission_held_s)
            if _is_held(told):
                return {f"highest held, {per_s:g} per s for {sizes.admission_held_s:g} s": _row(told)}
        return {}

    def _asked(self, per_s: float, for_s: float) -> Told:
        """Ask at a rate, from a process of its own. Raises subprocess.CalledProcessError."""
        order = Order(
            port=self._moorage.webhooks_port,
            ca=self._moorage.webhooks_ca(),
            pid=self._moorage.pid(ADMISSION),
            core=self._core,
            per_s=per_s,
            for_s=for_s,
            reviews=self._reviews,
        )
        command = [sys.executable, "-m", "bench.load_generator"]
        told = subprocess.run(
            command, input=msgspec.json.encode(order), check=True, stdout=subprocess.PIPE, timeout=for_s + 120
        ).stdout
        return msgspec.json.decode(told, type=Told)


def _is_held(told: Told) -> bool:
    return not told.failed and max(told.waits_s) <= _HELD_WITHIN_S


def _cpu_us(told: Told) -> float:
    return round(told.cpu_s / len(told.late_s) * 1e6, 1)


def _row(told: Told) -> dict[str, Any]:
    return {
        **spread_ms(told.waits_s),
        "late_p99_ms": round(quantile(told.late_s, 0.99) * 1e3, 1),
        "cpu_us_per_review": _cpu_us(told),
        "reviews": len(told.late_s),
        "failed": told.failed,
        "connections": told.connections,
    }
