"""The driver of claims against a kubelet and an API server that are not real."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tools.node import cdi, gpus
from tools.node.dradriver import KIND, NAME, REFUSALS, SHARABLE, Claim, Driver, Prepared, resource_slice
from tools.rest import RestError

GPUS = gpus.made_up("node-a", 3)
FIRST, SECOND = Claim("ns", "uid-1", "first"), Claim("ns", "uid-2", "second")


class Cluster:
    """Claims as an API server has them, and the driver that reads them."""

    def __init__(self, machine: Path) -> None:
        self.machine = machine
        self.claims: dict[str, dict[str, Any]] = {}
        self.driver = self.started()

    def started(self) -> Driver:
        return Driver(self.machine, self.machine / "cdi", self._read)

    def allocate(self, claim: Claim, *devices: str, driver: str = NAME) -> None:
        results = [{"driver": driver, "pool": "node-a", "device": device, "request": "gpu"} for device in devices]
        allocation = {"devices": {"results": results}}
        self.claims[claim.name] = {"metadata": {"uid": claim.uid}, "status": {"allocation": allocation}}

    def prepare(self, claim: Claim) -> Sequence[Prepared] | str:
        return self.driver.prepare([claim])[claim.uid]

    def devices(self) -> set[str]:
        return {name for spec in cdi.read(self.machine / "cdi") for name in spec.devices}

    def _read(self, path: str) -> dict[str, Any]:
        name = path.rpartition("/")[2]
        if name not in self.claims:
            raise RestError(404, "not found")
        return self.claims[name]


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    gpus.write_machine(tmp_path, GPUS)
    gpus.write_claimable(tmp_path, [gpu.uuid for gpu in GPUS[1:]])
    return Cluster(tmp_path)


def test_only_devices_for_claims_are_published(cluster: Cluster) -> None:
    spec = resource_slice(cluster.machine, "node-a")["spec"]
    assert [each["name"] for each in spec["devices"]] == ["gpu-1", "gpu-2"]
    assert spec["devices"][0]["attributes"]["uuid"] == {"string": GPUS[1].uuid}
    assert spec["devices"][0]["capacity"] == {"memory": {"value": "81559Mi"}}


def test_a_claim_gets_a_file_with_its_devices_until_it_is_given_back(cluster: Cluster) -> None:
    cluster.allocate(FIRST, "gpu-2", "gpu-1")
    assert cluster.prepare(FIRST) == [
        Prepared(("gpu",), "node-a", device, (f"{KIND}=uid-1.{device}",)) for device in ("gpu-2", "gpu-1")
    ]
    assert cluster.devices() == {"uid-1.gpu-1", "uid-1.gpu-2"}
    assert cluster.driver.unprepare([FIRST, SECOND]) == ["uid-1", "uid-2"]
    assert cluster.devices() == set()


def test_a_claim_is_prepared_again_with_the_same_answer_also_by_the_next_life(cluster: Cluster) -> None:
    cluster.allocate(FIRST, "gpu-1")
    before = cluster.prepare(FIRST)
    assert cluster.prepare(FIRST) == before
    cluster.driver = cluster.started()
    assert cluster.prepare(FIRST) == before


def test_a_device_is_not_prepared_for_two_claims_also_by_the_next_life(cluster: Cluster) -> None:
    cluster.allocate(FIRST, "gpu-1")
    cluster.allocate(SECOND, "gpu-1")
    cluster.prepare(FIRST)
    cluster.driver = cluster.started()
    assert cluster.prepare(SECOND) == "another claim has gpu-1"
    cluster.driver.unprepare([FIRST])
    assert not isinstance(cluster.prepare(SECOND), str)


def _recreated(cluster: Cluster) -> None:
    cluster.allocate(Claim("ns", "uid-9", "first"), "gpu-1")


@pytest.mark.parametrize(
    ("prepare", "why"),
    [
        (lambda cluster: cluster.claims.clear(), "resourceclaims/first: 404: not found"),
        (_recreated, "first is another claim now: uid-9"),
        (lambda cluster: cluster.allocate(FIRST, "gpu-0"), "there is no device gpu-0"),
        (lambda cluster: (cluster.machine / REFUSALS).write_text("1"), "refuses"),
    ],
)
def test_what_cannot_be_prepared_is_told_and_leaves_nothing(
    cluster: Cluster, prepare: Callable[[Cluster], object], why: str
) -> None:
    cluster.allocate(FIRST, "gpu-1")
    prepare(cluster)
    answer = cluster.prepare(FIRST)
    assert isinstance(answer, str)
    assert why in answer
    assert cluster.devices() == set()


def test_it_refuses_as_many_times_as_it_is_told_to(cluster: Cluster) -> None:
    cluster.allocate(FIRST, "gpu-1")
    (cluster.machine / REFUSALS).write_text("2")
    assert [isinstance(cluster.prepare(FIRST), str) for _ in range(4)] == [True, True, False, False]


def test_devices_of_other_drivers_are_not_its_own(cluster: Cluster) -> None:
    cluster.allocate(FIRST, "gpu-1", driver="other.test")
    assert cluster.prepare(FIRST) == []


def test_a_device_that_is_shared_is_prepared_for_several_claims_and_a_whole_one_for_one(cluster: Cluster) -> None:
    (cluster.machine / SHARABLE).touch()
    assert {
        each.get("allowMultipleAllocations") for each in resource_slice(cluster.machine, "a")["spec"]["devices"]
    } == {True}
    for claim in (FIRST, SECOND):
        cluster.allocate(claim, "gpu-1")
        (result,) = cluster.claims[claim.name]["status"]["allocation"]["devices"]["results"]
        result["shareID"] = claim.uid
        assert not isinstance(cluster.prepare(claim), str)
    assert cluster.devices() == {"uid-1.gpu-1", "uid-2.gpu-1"}
