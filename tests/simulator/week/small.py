"""Small workloads of tests."""

from __future__ import annotations

from typing import Any

from simulator.week.workload import Workload, workload


def written() -> dict[str, Any]:
    """Return two teams on two nodes: one asks for little, one for more than there is."""
    return {
        "nodes": ["2x4x80GiB"],
        "kinds": {
            "share": {"gpu": 0.5, "minutes": 60, "priority": 100, "when": "day"},
            "gang": {"gpu": 2, "pods": [2, 3], "minutes": 300, "spread": 0.5, "saves_every_min": 20},
        },
        "queues": [
            {"name": "quiet", "quota": 4, "per_day": {"share": 20, "gang": 3}, "swing": 0.5},
            {"name": "busy", "quota": 4, "per_day": {"gang": 12}},
        ],
    }


def two_teams() -> Workload:
    """Return it, read."""
    return workload(written())


def single_gpus() -> Workload:
    """Return two teams with jobs of one GPU and ten hours: one asks for its quota, one for three times as much."""
    return workload(
        {
            "nodes": ["2x4x80GiB"],
            "kinds": {"single": {"gpu": 1, "minutes": 600, "spread": 0.3, "saves_every_min": 60}},
            "queues": [
                {"name": "quiet", "quota": 4, "per_day": {"single": 10}},
                {"name": "busy", "quota": 4, "per_day": {"single": 30}},
            ],
        }
    )


def crowded() -> Workload:
    """Return two teams that both ask for more than there is, in gangs of a quota or more; one has urgent shares too."""
    found = written()
    quiet, busy = found["queues"]
    quiet["per_day"], busy["per_day"] = {"share": 40, "gang": 8}, {"gang": 20}
    return workload(found)
