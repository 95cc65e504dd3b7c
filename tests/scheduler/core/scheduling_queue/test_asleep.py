"""Which verdicts are kept, and for how long."""

from __future__ import annotations

from msgspec.structs import replace

from gpu.request import FractionAsk
from scheduler.core.cluster import Cluster
from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.verdict import Code, Verdict
from tests.scheduler.core.objects import cluster, feed, node, pod

_NOWHERE = Verdict(code=Code.NO_NODE_FITS)


def _class(made: Cluster, name: str) -> PodClass:
    record = made.pod(f"uid-{name}")
    assert record is not None
    return record.cls


def test_a_verdict_that_is_kept_again_is_the_newest() -> None:
    made = cluster(node(), pod("a", cpu="100"), pod("b", cpu="101"))
    asleep, first, second = made.backlog.asleep, _class(made, "a"), _class(made, "b")
    for cls in (first, second, first):
        asleep.put(cls, asleep.kept(cls, _NOWHERE, charged=(), generation=made.generation))
    assert asleep.oldest(1) == []  # no count has changed since
    feed(made, node("n2"))
    made.refresh()
    assert asleep.oldest(1) == [second]


def test_a_class_that_names_the_first_device_of_a_node_is_judged_again_after_any_change() -> None:
    made = cluster(node(), pod("a", fraction="0.5"))
    asleep, anywhere = made.backlog.asleep, _class(made, "a")
    (container,) = anywhere.request.containers
    (ask,) = container.asks
    assert isinstance(ask, FractionAsk)
    for index, is_sure in ((-1, True), (0, False), (1, False)):
        named = replace(container, asks=(replace(ask, index=index),))
        cls = replace(anywhere, request=replace(anywhere.request, containers=(named,)))
        asleep.put(cls, asleep.kept(cls, _NOWHERE, charged=(), generation=made.generation))
        kept = asleep.get(cls)
        assert kept is not None
        assert asleep.is_sure(cls, kept, made.generation + 1) is is_sure
