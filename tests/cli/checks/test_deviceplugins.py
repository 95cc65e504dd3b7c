from __future__ import annotations

from typing import Any

import pytest

from cli.checks.nodes import check_device_plugins
from cli.checks.reader import Finding, Level, Reader
from tests.cli.checks.told import Told

PATH = "/apis/moorage.dev/v1alpha1/gpunodes"


def _node(name: str, mode: str = "", *missing: str) -> dict[str, Any]:
    agent = {"pluginMode": mode, "missing": [{"what": each, "why": "x"} for each in missing]}
    return {"metadata": {"name": name}, "status": {"agent": agent}}


async def _found(*nodes: dict[str, Any]) -> list[Finding]:
    return await check_device_plugins(Reader(Told({PATH: {"items": list(nodes)}})))


@pytest.mark.parametrize(
    "nodes", [(), (_node("a", "off", "devices"), _node("b"), {"metadata": {"name": "c"}})], ids=["none", "off"]
)
async def test_where_no_agent_is_a_device_plugin_nothing_is_told(nodes: tuple[dict[str, Any], ...]) -> None:
    assert await _found(*nodes) == []


async def test_where_the_kind_is_not_served_nothing_is_told() -> None:
    assert await check_device_plugins(Reader(Told({}))) == []


async def test_it_tells_who_serves_the_nodes_and_what_is_not_served() -> None:
    found = await _found(_node("a", "own"), _node("b", "own", "nvidia.com/gpu"), _node("c", "off", "devices"))
    assert [(each.level, each.said) for each in found] == [
        (Level.OK, "off on 1 node(s), own on 2 node(s)"),
        (Level.WARNING, "something is not served on b (nvidia.com/gpu)"),
    ]
