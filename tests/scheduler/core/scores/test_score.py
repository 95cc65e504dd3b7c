"""A score of one's own: one object in a registry, at work on nodes and on their devices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from scheduler.core.cluster import Cluster
from scheduler.core.decide.placer import Placer
from scheduler.core.model.plan import Alone
from scheduler.core.model.settings import Settings
from scheduler.core.nodes.table import GPUS, Int64s
from scheduler.core.scores.registry import SCORES
from scheduler.core.scores.score import KEY_END, Look, Score, Wanted
from tests.scheduler.core.objects import NANO, feed, node, pod, reservation


class MostGpus:
    """The node with the most GPUs, and the device with the second most free: no other score does that."""

    name = "most-gpus"
    opens_last = False

    def keys(self, look: Look) -> Int64s:
        keys: Int64s = 1_000_000 - look.total(GPUS)
        return keys

    def device_key(self, free_nano: int, nano: int) -> int:
        return abs(free_nano - nano - NANO // 10)

    def opens_rather(self, free_nano: int, nano: int) -> bool:
        return False


SCORES_HERE = {**SCORES, MostGpus.name: MostGpus()}
CHOSEN = Settings(gpu_strategy=MostGpus.name, cpu_strategy=MostGpus.name)


def _placed(*objects: Any, settings: Settings = CHOSEN) -> dict[str, tuple[str, list[str]]]:
    made = Cluster(settings, scores=SCORES_HERE)
    feed(made, *objects)
    plan = made.decide(0)
    alone = [entry.placement for entry in plan.entries if isinstance(entry, Alone)]
    return {each.name: (each.node, [device.group for device in each.devices]) for each in alone}


@pytest.mark.parametrize("asked", [{"fraction": "0.5"}, {"gpus": 1}, {}], ids=["share", "whole GPU", "CPU only"])
def test_nodes_are_chosen_by_a_score_of_ones_own(asked: dict[str, Any]) -> None:
    nodes = [node("n1", gpus=2), node("n2", gpus=8), node("n3", gpus=4)]
    assert _placed(*nodes, pod("p", **asked))["p"][0] == "n2"
    assert _placed(*nodes, pod("p", **asked), settings=Settings())["p"][0] != "n2"


def test_devices_are_chosen_by_the_same_score() -> None:
    held = [
        reservation(name, "n1", book={f"of-{name}": (10 - free) * NANO // 10}, uuid=f"GPU-{name}")
        for name, free in (("a", 3), ("b", 4), ("c", 9))
    ]
    assert _placed(node("n1", gpus=3), *held, pod("p", fraction="0.3"))["p"][1] == ["b"]
    assert _placed(node("n1", gpus=3), *held, pod("p", fraction="0.3"), settings=Settings())["p"][1] == ["a"]


def test_a_name_that_is_no_scores_is_refused() -> None:
    with pytest.raises(LookupError, match="fullest"):
        _placed(node("n1", gpus=1), pod("p", gpus=1), settings=Settings(gpu_strategy="fullest"))


@pytest.mark.parametrize("score", SCORES.values(), ids=SCORES)
@pytest.mark.parametrize("wanted", Wanted)
def test_keys_of_the_largest_nodes_stay_in_their_bits(score: Score, wanted: Wanted) -> None:
    made = Cluster(Settings())
    full = [f"g{number}" for number in range(120)]
    feed(made, node("empty", gpus=0), node("large", gpus=65536, cpu="9E"), node("shared", gpus=127))
    feed(made, *(reservation(name, "shared", book={f"of-{name}": 1}, uuid=f"GPU-{name}") for name in full))
    look = Look(Placer(made.snapshot()).statement.table, slice(None), wanted, ())
    look.opened, look.tightest = np.zeros(3, np.int64), np.full(3, 127 * NANO)
    keys = score.keys(look)
    assert keys.min() >= 0
    assert keys.max() < KEY_END


# Binpack keeps KAI's outcomes (contract 4.4): its bands, its resource by kind of pod, equals by name.


def _busy(name: str, on: str, **asked: Any) -> Any:
    return pod(name, bound_to=on, **asked)


def _used(group: str, on: str, tenths: int) -> Any:
    return reservation(group, on, book={f"of-{group}": tenths * NANO // 10}, uuid=f"GPU-{group}")


_TWO = (node("n1"), node("n2"))


@pytest.mark.parametrize(
    ("objects", "asked", "expected"),
    [
        # nodeplacement: GPU pods by GPUs alone, the fullest node, with any CPU left
        ([*_TWO, _busy("x", "n2", gpus=1), _busy("y", "n1", cpu="60")], {"gpus": 1, "cpu": "1"}, "n2"),
        ([node("n1", 8), node("n2", 4)], {"gpus": 1}, "n2"),
        # gpusharingorder: a device in use that the share fits, before the fullest node
        ([*_TWO, _used("a", "n1", 3), _busy("x", "n2", gpus=7)], {"fraction": "0.5"}, "n1"),
        ([*_TWO, _used("a", "n1", 6), _busy("x", "n2", gpus=7)], {"fraction": "0.5"}, "n2"),
        # gpupack: the device that is used most
        ([*_TWO, _used("a", "n1", 2), _used("b", "n2", 4)], {"fraction": "0.5"}, "n2"),
        # pods without GPUs by CPU alone, with any GPUs left ...
        ([*_TWO, _busy("x", "n2", cpu="8"), _busy("y", "n1", gpus=8)], {"cpu": "1"}, "n2"),
        # resourcetype: ... but on nodes without GPUs first
        ([*_TWO, node("n3", 0), _busy("x", "n2", cpu="8")], {"cpu": "1"}, "n3"),
        # equals by name
        ([node("n2"), node("n1"), node("n3")], {"gpus": 1}, "n1"),
        ([node("n2"), node("n1"), node("n3")], {"cpu": "1"}, "n1"),
    ],
)
def test_a_pod_goes_where_kai_puts_it(objects: list[Any], asked: dict[str, Any], expected: str) -> None:
    made = Cluster(Settings())
    feed(made, *objects, pod("p", **asked))
    assert [entry.placement.node for entry in made.decide(0).entries if isinstance(entry, Alone)] == [expected]
