"""What there is for unbound claims: by class, and on which nodes, as looked up and as looked at one by one."""

from __future__ import annotations

import random

import pytest

from scheduler.core.convert import volumes
from scheduler.core.convert.nodes import node_record
from scheduler.core.filters.requirements import holds, meets
from scheduler.core.filters.volume_places import VolumeAffinity, VolumeZone
from scheduler.core.model.pod_class import Requirement, Term, VolumeRule
from scheduler.core.model.records import NodeRecord
from scheduler.core.nodes.volume_offers import NodeIndex
from tests.scheduler.core.objects import (
    claim,
    cluster,
    csi_capacity,
    csi_driver,
    feed,
    free_volume,
    node,
    storage_class,
)
from wire import names

_KEYS = (names.HOSTNAME_LABEL, names.ZONE_LABEL, "disk")
_OPERATORS = ("In", "In", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Unheard")


def _nodes(rng: random.Random) -> list[NodeRecord]:
    made = []
    for number in range(rng.randint(0, 6)):
        labels = {key: rng.choice(["1", "2", "3"]) for key in _KEYS if rng.random() < 0.7}
        made.append(node_record(node(f"n{number}", labels=labels)))
    return made


def _requirements(rng: random.Random, keys: tuple[str, ...]) -> tuple[Requirement, ...]:
    return tuple(
        Requirement(rng.choice(keys), rng.choice(_OPERATORS), tuple(rng.choices(["1", "2", "n0", "n1"], k=2)))
        for _ in range(rng.randint(0, 3))
    )


def _term(rng: random.Random) -> Term:
    return Term(_requirements(rng, _KEYS), _requirements(rng, ("metadata.name",)) if rng.random() < 0.3 else ())


@pytest.mark.parametrize("seed", range(100))
def test_looking_nodes_up_finds_those_that_looking_at_each_finds(seed: int) -> None:
    rng = random.Random(seed)
    nodes = _nodes(rng)
    index = NodeIndex(nodes, {each.name: at for at, each in enumerate(nodes)})
    for _ in range(20):
        terms = tuple(_term(rng) for _ in range(rng.randint(0, 3)))
        zones = ((names.ZONE_LABEL, ("1", "2")),) if rng.random() < 0.5 else ()
        rule = VolumeRule(terms=rng.choice([terms, None]), zones=zones)
        expected = [
            at
            for at, each in enumerate(nodes)
            if VolumeZone().admits(each, (rule,))
            and (rule.terms is None or VolumeAffinity().admits(each, (rule.terms,)))
        ]
        assert index.of_rule(rule) == expected
        assert index.of_terms(terms) == [at for at, each in enumerate(nodes) if any(holds(t, each) for t in terms)]
        selector = _requirements(rng, _KEYS)
        found = [at for at, each in enumerate(nodes) if all(meets(one, each.labels) for one in selector)]
        assert index.of_labels(selector) == found
    assert index.of_rule(None) is None
    assert index.of_labels(None) == []


def test_what_is_gone_is_offered_no_more() -> None:
    storage = cluster(storage_class("slow", "WaitForFirstConsumer")).storage
    need = volumes.claim_record(claim("data", storage_class="slow")).need
    assert need is not None
    one, other = free_volume("pv1"), free_volume("pv2", of="fast")
    for each in (one, other):
        storage.volumes.put(volumes.volume_record(each))
    assert [name for _, name, _ in storage.offers.matching(need)] == ["pv1"]
    storage.volumes.put(volumes.volume_record(free_volume("pv1", phase="Bound")))
    assert storage.offers.matching(need) == []
    storage.volumes.put(volumes.volume_record(free_volume("pv2")))
    assert [name for _, name, _ in storage.offers.matching(need)] == ["pv2"]
    storage.volumes.drop(volumes.volume_record(free_volume("pv2")))
    assert storage.offers.matching(need) == []


def test_capacities_count_only_for_drivers_that_tell_them() -> None:
    made = cluster(storage_class("fast", "WaitForFirstConsumer", provisioner="disk"), csi_capacity("c", "fast", {}))
    offers = made.storage.offers
    assert offers.capacities_of("fast") is None
    feed(made, csi_driver("disk", tells_capacity=False))
    assert offers.capacities_of("fast") is None
    feed(made, csi_driver("disk"))
    assert [each.name for each in offers.capacities_of("fast") or ()] == ["c"]
    feed(made, csi_capacity("c", "other", {}))
    assert list(offers.capacities_of("fast") or ()) == []
