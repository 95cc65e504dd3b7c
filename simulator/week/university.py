"""The built-in workload: a university's cluster of 500 nodes with 8 GPUs, and 20 queues.

Made up, not measured on a real cluster: teams differ in size and in what they run, people work by day, and what is
long is submitted in the evening. Together they ask for somewhat more than there is.
"""

from __future__ import annotations

from typing import Final

from simulator.week.workload import JobKind, QueueLoad, When, Workload

_HOURS: Final = 24
#: GPU-hours that jobs ask for, of those that there are, in percent.
LOAD_PERCENT: Final = 105

KINDS: Final = {
    "notebook": JobKind(gpu=0.25, minutes=120, spread=0.7, priority=100, when=When.DAY),
    "debug": JobKind(gpu=1, minutes=30, spread=0.7, priority=100, when=When.DAY),
    "sweep": JobKind(gpu=1, minutes=90, spread=0.7),
    "single": JobKind(gpu=1, minutes=300, spread=1.0, saves_every_min=30),
    "train": JobKind(gpu=8, pods=(1, 2), minutes=480, spread=0.7, saves_every_min=30, when=When.NIGHT),
    "large": JobKind(gpu=8, pods=(4, 8), minutes=720, spread=0.5, saves_every_min=60, when=When.NIGHT),
}
#: Of the GPU-hours of a queue, percent by kind.
_MODELS: Final = {"notebook": 1, "debug": 1, "sweep": 4, "single": 14, "train": 35, "large": 45}
_MIXED: Final = {"notebook": 2, "debug": 2, "sweep": 11, "single": 30, "train": 55}
_TEACHING: Final = {"notebook": 15, "debug": 10, "sweep": 40, "single": 35}
#: Teams: name, how many, quota of each in GPUs, mix, percent of their quota that they ask for on average.
_TEAMS: Final = (
    ("models", 4, 440, _MODELS, 115),
    ("lab", 6, 240, _MIXED, 105),
    ("group", 8, 80, _MIXED, 95),
    ("course", 2, 80, _TEACHING, 60),
)


def university() -> Workload:
    """Return it."""
    queues = [
        QueueLoad(name=f"{name}-{number + 1}", quota=quota, swing=0.5, per_day=_per_day(quota, mix, percent))
        for name, count, quota, mix, percent in _TEAMS
        for number in range(count)
    ]
    return Workload(nodes=("500x8x80GiB",), kinds=KINDS, queues=tuple(queues))


def _per_day(quota: int, mix: dict[str, int], percent: int) -> dict[str, float]:
    """Return jobs a day, so that they ask for this part of the quota."""
    asks = quota * _HOURS * percent / 100 * _SCALE
    return {kind: asks * part / 100 / KINDS[kind].mean_gpu_hours for kind, part in mix.items()}


def _asked() -> int:
    return sum(count * quota * percent for _, count, quota, _, percent in _TEAMS)


#: So that all teams together ask for LOAD_PERCENT of all GPUs.
_SCALE: Final = LOAD_PERCENT * sum(count * quota for _, count, quota, _, _ in _TEAMS) / _asked()
