from __future__ import annotations

from typing import Any

import pytest

from cli.checks.nodes import check_agents
from cli.checks.reader import Level, Reader
from tests.cli.checks.told import Told

PATH = "/apis/apps/v1/namespaces/kai-scheduler-node/daemonsets/moorage-node-agent"


def _status(wanted: int, ready: int) -> dict[str, Any]:
    return {"status": {"desiredNumberScheduled": wanted, "numberReady": ready}}


@pytest.mark.parametrize(
    ("found", "level", "said"),
    [
        ({}, Level.OK, "not installed; the processes of reservations report their GPUs"),
        ({PATH: _status(3, 3)}, Level.OK, "3 of 3 are ready"),
        ({PATH: _status(3, 2)}, Level.WARNING, "2 of 3 are ready"),
        ({PATH: _status(0, 0)}, Level.WARNING, "installed, and no node is selected for one"),
        ({PATH: {}}, Level.WARNING, "installed, and no node is selected for one"),
    ],
)
async def test_agents_that_are_installed_are_counted(found: dict[str, Any], level: Level, said: str) -> None:
    (finding,) = await check_agents(Reader(Told(found)))
    assert (finding.level, finding.said, bool(finding.do)) == (level, said, level is Level.WARNING)
