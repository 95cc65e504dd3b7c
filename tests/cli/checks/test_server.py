from __future__ import annotations

from typing import Any

import pytest

from cli.checks.command import check_leaders, check_version, runtime_class_check
from cli.checks.reader import Level, Reader
from tests.cli.checks.told import Told

VIRTUAL_TIME = True

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kai-scheduler/leases"


@pytest.mark.parametrize(
    ("major", "minor", "level"),
    [
        ("1", "30", Level.OK),
        ("1", "36+", Level.OK),
        ("2", "0", Level.OK),
        ("1", "29", Level.FAILED),
        ("1", "9", Level.FAILED),
        ("1", "", Level.FAILED),
    ],
)
async def test_which_versions_will_do(major: str, minor: str, level: Level) -> None:
    version = {"major": major, "minor": minor, "gitVersion": f"v{major}.{minor}.0"}
    (finding,) = await check_version(Reader(Told({"/version": version})))
    assert finding.level is level
    assert f"v{major}.{minor}.0" in finding.said


async def test_a_lease_that_is_never_renewed_is_waited_for_as_long_as_it_lasts() -> None:
    spec = {"holderIdentity": "one", "leaseDurationSeconds": 15}
    lease = {"metadata": {"resourceVersion": "7"}, "spec": spec}
    given_back = {"metadata": {"resourceVersion": "7"}, "spec": {**spec, "holderIdentity": ""}}
    told = Told({f"{LEASES}/moorage-scheduler": lease, f"{LEASES}/moorage-binder": given_back})
    scheduler, binder = await check_leaders(Reader(told))
    assert (scheduler.level, binder.level) == (Level.FAILED, Level.FAILED)
    assert scheduler.said == "moorage-scheduler: one has not renewed its lease for 15 s"
    assert binder.said == "moorage-binder: nobody leads (or it runs without election)"


@pytest.mark.parametrize(
    ("name", "answers", "level"),
    [
        ("", {}, Level.OK),
        ("nvidia", {}, Level.FAILED),
        ("nvidia", {"/apis/node.k8s.io/v1/runtimeclasses/nvidia": {"handler": "nvidia"}}, Level.OK),
    ],
)
async def test_the_runtime_class_of_shares_is_there_if_there_is_to_be_one(
    name: str, answers: dict[str, Any], level: Level
) -> None:
    (finding,) = await runtime_class_check(name)(Reader(Told(answers)))
    assert finding.level is level


async def test_without_a_lease_nobody_can_tell_whether_it_runs_without_election() -> None:
    for finding in await check_leaders(Reader(Told({}))):
        assert finding.level is Level.WARNING
        assert finding.said.endswith(": nobody has ever held its lease: it runs without election, or not at all")
