"""The agent does nothing that its role does not allow, and its role allows nothing that it never does."""

from __future__ import annotations

from pathlib import Path

import anyio

from nodeagent.plugin.ports import Observer
from tests.binder.test_app import Right, granted
from tests.nodeagent.enforcement.test_limiting import BOOK, MINE
from tests.nodeagent.node import AGENT, scene
from tests.nodeagent.played import PlayedEnforcer
from tests.nodeagent.plugin.test_ownplugin import Played


async def test_the_agents_role_is_exactly_what_it_does(tmp_path: Path) -> None:
    async def says(observer: Observer) -> None:
        observer.labelled({"nvidia.com/gpu.count": "2"})
        observer.rival("nvidia.com/gpu", "another answers")
        await anyio.sleep_forever()

    played = Played(tmp_path)
    played.does = says
    async with scene() as it:
        enforcer = PlayedEnforcer("GPU-a")
        await it.reserve("held", **BOOK)
        await it.start(enforcer, plugin=played.part_of)
        enforcer.holds[MINE] = 30_000
        await anyio.sleep(1.0)
        await enforcer.go_on(3, enforcer.kill(MINE, "ended"))
        it.kubelet.given = {"r": ("GPU-a",)}
        await it.reserve()
        await anyio.sleep(600.0)
        allowed = granted("nodeagent/rbac.yaml")
        used: set[Right] = set()
        for entry in it.server.audit:
            if entry.user == AGENT:
                resource = f"{entry.resource}/{entry.subresource}" if entry.subresource else entry.resource
                everywhere, here = ("", entry.verb, resource), (entry.namespace, entry.verb, resource)
                assert everywhere in allowed or here in allowed, entry
                used.add(everywhere if everywhere in allowed else here)
        assert used == allowed
