"""Domains that running pods keep others off."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from scheduler.core.convert.nodes import node_record
from scheduler.core.filters.others_anti_affinity import OthersAntiAffinity
from scheduler.core.model.records import Domains
from tests.scheduler.core.objects import cluster, node, pod


@pytest.mark.parametrize(
    ("domains", "admits"),
    [
        (frozenset(), True),
        (frozenset({("zone", "a")}), False),
        (frozenset({("zone", "b"), ("rack", "1")}), True),
        (frozenset({("zone", "b"), ("rack", "7")}), False),
    ],
)
def test_a_node_is_out_that_is_in_one_of_the_domains(domains: Domains, admits: bool) -> None:
    on = node_record(node(labels={"zone": "a", "rack": "7"}))
    assert OthersAntiAffinity().admits(on, domains) is admits


@pytest.mark.parametrize("key", ["zone", "rack"])
@pytest.mark.parametrize("value", ["a", "b"])
def test_the_ledger_takes_out_the_very_nodes_that_the_filter_does_not_admit(key: str, value: str) -> None:
    nodes = [node(f"n{i}", labels={"zone": "ab"[i % 2], "rack": "abc"[i % 3]}) for i in range(6)]
    made = cluster(*nodes, node("plain"), pod())
    record, ledger, domains = made.pod("uid-p"), made.refresh(), frozenset({(key, value)})
    assert record is not None
    found, filter_ = ledger.admitting(replace(record.cls, avoids=domains)), OthersAntiAffinity()
    out = {name for name, row in ledger.row_of.items() if found[row] == ledger.filters.number(OthersAntiAffinity)}
    assert out == {of.name for of in ledger.nodes if of is not None and not filter_.admits(of, domains)}
