"""A PodGroup of which nothing but the version changed, as by a write of its status."""

from __future__ import annotations

from scheduler.core.model.plan import Explain, Gang, placements
from tests.scheduler.core.objects import cluster, feed, node, pod, pod_group
from wire import names
from wire.core import Pod


def member(name: str) -> Pod:
    return pod(name, gpus=4, annotations={names.POD_GROUP_NAME: "g"})


def test_it_wakes_nobody_and_the_gang_starts_at_the_newest_version() -> None:
    """The plan of a gang is written at exactly the version that it names."""
    made = cluster(node("n1", 4), pod_group("g", 2), member("a"), member("b"))
    first = made.decide(0)
    made.told([entry for entry in first.entries if isinstance(entry, Explain)])
    generation = made.generation
    newer = pod_group("g", 2)
    feed(made, newer)
    made.decide(1)
    assert made.generation == generation
    feed(made, node("n2", 4))
    (gang,) = [entry for entry in made.decide(2).entries if isinstance(entry, Gang)]
    assert gang.rv == newer.metadata.resource_version


def test_a_gang_that_was_just_decided_on_is_decided_on_again_at_the_new_version() -> None:
    made = cluster(node("n1", 8), pod_group("g", 2), member("a"), member("b"))
    assert len([*placements(made.decide(0).entries)]) == 2
    newer = pod_group("g", 2)
    feed(made, newer)
    (gang,) = [entry for entry in made.decide(0).entries if isinstance(entry, Gang)]
    assert gang.rv == newer.metadata.resource_version
