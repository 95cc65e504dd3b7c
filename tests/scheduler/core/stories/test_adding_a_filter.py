"""A rule that nobody knew, in one class: it places, explains, and wakes who sleeps (docs/contributing.md)."""

from __future__ import annotations

from typing_extensions import override

from scheduler.core.cluster import Cluster
from scheduler.core.filters.filter import Filter
from scheduler.core.filters.registry import FILTERS, Filters
from scheduler.core.model.plan import Bind, Explain
from scheduler.core.model.records import NodeRecord
from scheduler.core.model.verdict import NodeReason
from tests.scheduler.core.objects import cluster, feed, node, pod
from wire.core import Pod

MOST = "example.com/most-noise-db"
NOISE = "example.com/noise-db"


class Quiet(Filter):
    """Pods that stand only so much noise. Nodes that do not say how loud they are take none of them."""

    kind = "noise"
    words = "node(s) are too loud"

    @override
    def read(self, pod: Pod) -> int | None:
        """The loudest that the pod stands."""
        asked = (pod.metadata.annotations or {}).get(MOST, "")
        return int(asked) if asked.isdecimal() else None

    @override
    def admits(self, node: NodeRecord, asked: int) -> bool:
        """Whether the node is no louder."""
        noise = node.labels.get(NOISE, "")
        return noise.isdecimal() and int(noise) <= asked

    @override
    def effort(self, asked: int) -> int:
        """One comparison."""
        return 1

    @override
    def reads(self, node: NodeRecord) -> object:
        """The label."""
        return node.labels.get(NOISE)


WITH_QUIET = Filters([*FILTERS.all, Quiet()])


def _place(made: Cluster) -> dict[str, str]:
    entries = made.decide(0).entries
    return {entry.placement.name: entry.placement.node for entry in entries if isinstance(entry, Bind)}


def _told(made: Cluster) -> tuple[NodeReason, ...]:
    (told,) = (entry for entry in made.decide(0).entries if isinstance(entry, Explain))
    return told.verdict.node_reasons


def test_pods_that_ask_it_go_where_it_lets_them_and_all_others_anywhere() -> None:
    loud, quiet = node("a", labels={NOISE: "90"}), node("b", labels={NOISE: "40"})
    made = cluster(loud, quiet, pod("light", annotations={MOST: "50"}), pod("heavy"), filters=WITH_QUIET)
    assert _place(made) == {"light": "b", "heavy": "a"}
    made = cluster(loud, quiet, pod("light", annotations={MOST: "50"}))
    assert _place(made) == {"light": "a"}


def test_a_pod_that_fits_nowhere_is_told_of_it_beside_other_reasons() -> None:
    nodes = (node("a", labels={NOISE: "90"}), node("b"), node("c", labels={NOISE: "10"}, cordoned=True))
    made = cluster(*nodes, pod(annotations={MOST: "50"}), filters=WITH_QUIET)
    assert _told(made) == (NodeReason("cordoned", "", 1), NodeReason("noise", "", 2))
    assert WITH_QUIET.words()["noise"] == "node(s) are too loud"


def test_a_pod_that_sleeps_for_it_is_woken_by_a_node_that_changes_so_that_it_helps() -> None:
    made = cluster(node("a", labels={NOISE: "90"}), pod(annotations={MOST: "50"}), filters=WITH_QUIET)
    made.decide(0)
    assert not made.scheduling_queue.awake()
    feed(made, node("a", labels={NOISE: "80"}))
    assert _place(made) == {}
    feed(made, node("a", labels={NOISE: "45"}))
    assert _place(made) == {"p": "a"}


def test_what_it_takes_counts_among_the_efforts_of_a_decision() -> None:
    asked = cluster(pod(annotations={MOST: "50"}), filters=WITH_QUIET).pod("uid-p")
    plain = cluster(pod(), filters=WITH_QUIET).pod("uid-p")
    assert asked is not None
    assert plain is not None
    assert WITH_QUIET.effort(asked.cls.constraints) == WITH_QUIET.effort(plain.cls.constraints) + 1
