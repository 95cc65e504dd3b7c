"""Work and memory that one tenant's objects cost: slow selectors of claims, pods with thousands of labels."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

import anyio
import pytest
from kubernetes_asyncio import client

from tests.e2e.cluster import Pod, pod, scheduled_message, share
from tests.e2e.crowd import Crowd
from tools.cluster.deployment import SCHEDULER

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

_CLAIMS: Final = ("resource.k8s.io", "v1")
#: An honest pod runs within a second; the tests' machine may be busy.
_HONEST_WITHIN_S: Final = 60.0
_SLICES, _DEVICES_A_SLICE = 4, 128
_DRIVER: Final = "slow.example.com"
_DOMAIN: Final = f"device.attributes['{_DRIVER}']"


def _long(letter: str) -> str:
    """A selector that takes no device, and for each of them makes a text of 27 MB: a quarter of a second."""
    made = f"cel.bind(b, a.replace('{letter}', a), b.replace('{letter}', a).size() == 0)"
    return f"cel.bind(a, '{letter * 300}', {made}) && {_DOMAIN}.uuid == 'none'"


#: By how each is slow; the API server takes all of them.
SELECTORS: Final = {
    **{f"long-{letter}": _long(letter) for letter in "xyz"},
    "loops": f"'{'x' * 100}'.split('').all(i, '{'x' * 60}'.split('').all(j, i != {_DOMAIN}.uuid && j != 'y'))"
    f" && {_DOMAIN}.uuid == 'none'",
}


@pytest.fixture
async def devices(crowd: Crowd) -> AsyncIterator[client.CustomObjectsApi]:
    """A class of devices of which each has another UUID, on the first node."""
    api = client.CustomObjectsApi(crowd.scene.core.api_client)
    selector = {"cel": {"expression": f"device.driver == '{_DRIVER}'"}}
    device_class = {"metadata": {"name": "slow"}, "spec": {"selectors": [selector]}}
    await _create(api, "deviceclasses", "DeviceClass", device_class)
    node = next(iter(crowd.scene.nodes.kubelets))
    for number in range(_SLICES):
        pool = {"name": node, "generation": 1, "resourceSliceCount": _SLICES}
        names_of = [f"d{number}-{n}" for n in range(_DEVICES_A_SLICE)]
        found = [{"name": name, "attributes": {"uuid": {"string": name}}} for name in names_of]
        spec = {"driver": _DRIVER, "nodeName": node, "pool": pool, "devices": found}
        body = {"metadata": {"name": f"slow-{number}"}, "spec": spec}
        await _create(api, "resourceslices", "ResourceSlice", body)
    yield api
    await api.delete_cluster_custom_object(*_CLAIMS, "deviceclasses", "slow")
    for number in range(_SLICES):
        await api.delete_cluster_custom_object(*_CLAIMS, "resourceslices", f"slow-{number}")


async def _create(api: client.CustomObjectsApi, plural: str, kind: str, body: dict[str, Any]) -> None:
    written = {"apiVersion": "/".join(_CLAIMS), "kind": kind, **body}
    await api.create_cluster_custom_object(*_CLAIMS, plural, written)


async def _claims(crowd: Crowd, name: str, expression: str) -> Pod:
    """Create a claim, and a pod that uses it, as the tenant."""
    exactly = {"deviceClassName": "slow", "selectors": [{"cel": {"expression": expression}}]}
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
    claim = {"apiVersion": "/".join(_CLAIMS), "kind": "ResourceClaim", "metadata": {"name": name}, "spec": spec}
    namespace = crowd.tenant.namespace
    await crowd.tenant.custom.create_namespaced_custom_object(*_CLAIMS, namespace, "resourceclaims", claim)
    wanted = pod(name)
    wanted["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": name}]
    return await crowd.tenant.create(wanted)


async def test_slow_selectors_of_claims_keep_no_other_pod_waiting(
    crowd: Crowd, devices: client.CustomObjectsApi
) -> None:
    for name, expression in SELECTORS.items():
        await _claims(crowd, name, expression)
    for number in range(3):
        await crowd.runs(await crowd.tenant.create(share(f"honest-{number}", "0.1")), within_s=_HONEST_WITHIN_S)
    for name in SELECTORS:
        waits = await crowd.waits(crowd.tenant.namespace, name)
        assert not waits["spec"].get("nodeName"), scheduled_message(waits)


def _labels(pod_number: int) -> dict[str, str]:
    """9,000 labels that no other pod has, of 0.9 MB together."""
    return {f"{pod_number:x}-{number:x}.{'x' * 20}/k": f"{number:x}{'v' * 55}" for number in range(9_000)}


_FLOOD: Final = 16
#: What a pod may add to a component: without a bound the scheduler keeps 2.9 MiB of each.
_MOST_KIB_A_POD: Final = 512


@pytest.mark.parametrize("scheduler", ["mine"])
async def test_pods_with_thousands_of_labels_take_no_memory_that_counts(crowd: Crowd, scheduler: str) -> None:
    before = crowd.moorage.resident_kib()
    limiter = anyio.CapacityLimiter(4)

    async def create(number: int) -> None:
        wanted = pod(f"labelled-{number}", labels=_labels(number))
        wanted["spec"] |= {"schedulerName": scheduler}
        async with limiter:
            await crowd.tenant.create(wanted)

    async with anyio.create_task_group() as tasks:
        for number in range(_FLOOD):
            tasks.start_soon(create, number)
    await crowd.runs(await crowd.tenant.create(share("honest", "0.1")))
    after = crowd.moorage.resident_kib()
    assert after[SCHEDULER] - before[SCHEDULER] < _FLOOD * _MOST_KIB_A_POD
