"""Replicas may read and renew the lease that they elect their leader by: its name is in a role of theirs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml

from runtime import replicas, versions
from runtime.processes import binder, podgrouper, scheduler
from runtime.replicas import Own
from tests.cli.given import options

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("process", [binder, podgrouper, scheduler], ids=lambda process: process.__name__)
async def test_the_lease_is_one_that_the_component_may_renew_and_version_looks_for(
    process: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    component = process.__name__.rpartition(".")[2]
    found: list[Own] = []

    async def run_replica(*_: object, own: Own, **__: object) -> None:
        found.append(own)

    monkeypatch.setattr(process, "run_replica", run_replica)
    await process.run(options(component, []), anyio.Event())
    (own,) = found
    assert own.component == component
    roles = yaml.safe_load_all((ROOT / component / "rbac.yaml").read_text())
    named = [rule["resourceNames"] for role in roles for rule in role.get("rules", ()) if "patch" in rule["verbs"]
             and rule["resources"] == ["leases"]]  # fmt: skip
    assert named == [[replicas._lease_name(own)]]
    assert versions._LEASES[replicas._lease_name(own)] == component
