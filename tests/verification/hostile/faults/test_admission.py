"""Admission that is away, slow or asked twice: whom that concerns, and that work goes on afterwards."""

from __future__ import annotations

import pytest

from kube.client import errors
from kube.client.resources import PODS
from tests.verification.hostile.faults.grounds import NAMESPACE, Stage, stage
from verification.hostile.faults.components import AdmissionDown, AdmissionSlow, AdmissionTwice


async def another_schedulers_pod(on: Stage, name: str) -> None:
    container = {"name": "main", "image": "work"}
    body = {"metadata": {"name": name}, "spec": {"schedulerName": "default-scheduler", "containers": [container]}}
    await on.world.api.create(PODS, body, namespace=NAMESPACE)


async def test_while_admission_is_down_our_pods_are_refused_and_others_are_not() -> None:
    async with stage() as on:
        on.strike(AdmissionDown(at_s=1, for_s=10))
        await on.until(2)
        with pytest.raises(errors.ServerError, match=r'failed calling webhook "mutate.moorage.dev": .*refused'):
            await on.pod("p", gpu_fraction="0.5")
        began = on.now_s
        await another_schedulers_pod(on, "other")
        assert on.now_s == began
        await on.until(12)
        await on.pod("p", gpu_fraction="0.5")
        await on.until(40)
        assert await on.phase("p") == "Running"


async def test_a_pod_that_is_there_is_bound_without_admission_and_changes_of_it_are_refused() -> None:
    async with stage() as on:
        await on.pod("p", gpu_fraction="0.5")
        on.strike(AdmissionDown(at_s=0, for_s=30))
        await on.until(29)
        assert await on.phase("p") == "Running"
        with pytest.raises(errors.ServerError, match=r'failed calling webhook "validate.moorage.dev"'):
            await on.world.api.patch(PODS, "p", {"metadata": {"labels": {"a": "b"}}}, namespace=NAMESPACE)


@pytest.mark.parametrize(("slow_s", "refused"), [(4.0, False), (400.0, True)])
async def test_a_slow_admission_is_waited_for_as_long_as_its_configuration_says(slow_s: float, refused: bool) -> None:
    async with stage() as on:
        on.strike(AdmissionSlow(at_s=0, for_s=60, slow_s=slow_s))
        await on.until(1)
        said = ""
        try:
            await on.pod("p", gpu_fraction="0.5")
        except errors.ServerError as error:
            said = str(error)
        assert ("context deadline exceeded" in said) is refused
        assert (1.4 < on.now_s < 6, on.now_s == 6) == (not refused, refused)
        await on.until(61)
        began = on.now_s
        await on.pod("q", gpu_fraction="0.5")
        assert on.now_s == began


async def test_asked_twice_admission_makes_of_a_pod_what_it_makes_asked_once() -> None:
    async with stage() as on:
        once = await on.pod("p", gpu_fraction="0.5")
        on.strike(AdmissionTwice(at_s=1, for_s=10))
        await on.until(2)
        assert on.world.server.faults.of_review("mutate.moorage.dev").twice
        twice = await on.pod("q", gpu_fraction="0.5")
        assert twice.spec == once.spec
        assert twice.metadata.annotations == once.metadata.annotations
        await on.until(40)
        assert [await on.phase(name) for name in "pq"] == ["Running", "Running"]
