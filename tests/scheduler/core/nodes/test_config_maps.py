"""Pods wait for ConfigMaps that they name as required, where these are read."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.core.cluster import Cluster
from scheduler.core.convert.config_maps import ConfigMapRecord
from scheduler.core.model.plan import Gang
from scheduler.core.model.verdict import Code
from scheduler.core.nodes.config_maps import MOST_KEPT
from tests.scheduler.core.nodes.mounting import places, told
from tests.scheduler.core.objects import changed, cluster, feed, node, pod, pod_group
from wire.core import Pod


def _reading(name: str, *maps: str, **more: Any) -> Pod:
    volumes = [{"name": each, "configMap": {"name": each}} for each in maps]
    return pod(name, gpus=1, spec={"volumes": volumes}, **more)


def _read(*maps: str) -> Cluster:
    made = cluster(node("n1", 4))
    made.config_maps.there.replace([ConfigMapRecord("ns", each) for each in maps])
    made.config_maps.there.note_in_step(is_in_step=True)
    return made


def test_a_pod_waits_until_all_of_them_are_there() -> None:
    made = _read("a")
    feed(made, _reading("p", "a", "b", "c"), _reading("q", "a"))
    assert places(made.decide(0)) == {"q": "n1"}
    assert told(made) == (Code.CONFIG_MAP_NOT_FOUND, "b c")
    made.config_maps.there.put(ConfigMapRecord("other", "b"))
    assert told(made) == (Code.CONFIG_MAP_NOT_FOUND, "b c")
    made.config_maps.there.put(ConfigMapRecord("ns", "b"))
    assert told(made) == (Code.CONFIG_MAP_NOT_FOUND, "c")
    made.config_maps.there.put(ConfigMapRecord("ns", "c"))
    assert places(made.decide(0)) == {"p": "n1", "q": "n1"}
    made.config_maps.there.drop(ConfigMapRecord("ns", "a"))
    assert places(made.decide(0)) == {}


def test_nobody_waits_where_they_are_not_read() -> None:
    made = cluster(node("n1", 4), _reading("p", "a"))
    assert places(made.decide(0)) == {"p": "n1"}
    made.config_maps.there.note_in_step(is_in_step=True)
    assert places(made.decide(0)) == {}
    made.config_maps.there.note_in_step(is_in_step=False)
    assert places(made.decide(0)) == {"p": "n1"}


def test_in_a_namespace_with_more_than_are_kept_nobody_waits_and_others_keep_theirs() -> None:
    made = _read()
    feed(made, _reading("p", "a"), _reading("q", "a", namespace="other"))
    there = made.config_maps.there
    for number in range(MOST_KEPT + 50):
        there.put(ConfigMapRecord("ns", f"m{number}"))
        there.put(ConfigMapRecord("ns", f"m{number}"))
    assert len(there.all()) == MOST_KEPT
    assert places(made.decide(0)) == {"p": "n1"}
    there.put(ConfigMapRecord("other", "b"))
    there.drop(ConfigMapRecord("ns", "m0"))
    there.drop(ConfigMapRecord("ns", "m0"))
    there.put(ConfigMapRecord("ns", "again"))
    assert len(there.all()) == MOST_KEPT + 1
    there.replace([ConfigMapRecord("ns", f"m{number}") for number in range(MOST_KEPT)])
    assert places(made.decide(0)) == {}, "a list without too many makes all known again"


def test_a_gang_waits_with_its_member() -> None:
    made = _read()
    feed(made, pod_group("g", 2), _reading("p", "a", group="g"), pod("q", gpus=1, group="g"))
    assert told(made, "uid-q") == (Code.CONFIG_MAP_NOT_FOUND, "a")
    made.config_maps.there.put(ConfigMapRecord("ns", "a"))
    (gang,) = made.decide(0).entries
    assert isinstance(gang, Gang)
    assert [each.name for each in gang.placements] == ["p", "q"]


@pytest.mark.parametrize("name", ["other", "a"])
def test_one_that_no_waiting_pod_names_changes_no_decision(name: str) -> None:
    made = _read("a")
    feed(made, _reading("runs", "a", bound_to="n1"), _reading("p", "b"))
    made.decide(0)
    before = made.generation
    made.config_maps.there.drop(ConfigMapRecord("ns", name))
    made.config_maps.there.put(ConfigMapRecord("ns", name))
    assert made.generation == before


def test_of_pods_that_are_gone_nothing_is_kept() -> None:
    made = _read()
    first = _reading("p", "a", "b")
    feed(made, first, changed(first, labels={"new": "label"}))
    made.remove_pod("uid-p")
    before = made.generation
    made.config_maps.there.put(ConfigMapRecord("ns", "a"))
    assert made.generation == before
