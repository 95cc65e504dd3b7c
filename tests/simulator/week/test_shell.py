"""Jobs on records."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gpu.share import NANO_PER_DEVICE
from scheduler.core.cluster import Cluster
from scheduler.core.model.settings import Settings
from simulator.traces.records import node_record
from simulator.week import jobs
from simulator.week.jobs import Job
from simulator.week.tally import Tally
from simulator.week.week import Shell
from tests.simulator.week.small import two_teams

pytestmark = pytest.mark.thorough


def test_a_shared_device_has_a_book_of_its_tenants_until_the_last_one_ends() -> None:
    cluster, later = Cluster(Settings(preemption=False)), list[Callable[[], None]]()
    nodes = [node_record(node, rank) for rank, node in enumerate(jobs.nodes(two_teams()))]
    cluster.replace_nodes(nodes)
    cluster.queues.records.replace([jobs.queue(each) for each in two_teams().queues])
    shell = Shell(cluster, nodes, Tally(1_000), lambda _, call: later.append(call))
    for number in range(2):
        shell.come(
            Job(
                number=number, queue="quiet", kind="share", at_s=0, pods=1, gpu_milli=500, lasts_s=60, priority=100,
                saves_every_s=0,
            )
        )  # fmt: skip
    shell.carry_out(cluster.decide(1, wall_s=jobs.wall_s(0)))
    shell.carry_out(cluster.decide(2, wall_s=jobs.wall_s(0)))

    def tenants() -> list[dict[str, int]]:
        books = (held.book for held in cluster.snapshot().pods.reservations.values())
        return [{uid: entry.nano for uid, entry in book.entries.items()} for book in books if book is not None]

    half = NANO_PER_DEVICE // 2
    assert tenants() == [{"j0-0-0": half, "j1-0-0": half}]
    later[0]()
    assert tenants() == [{"j1-0-0": half}]
    later[1]()
    assert not tenants()
    assert not cluster.validate()
