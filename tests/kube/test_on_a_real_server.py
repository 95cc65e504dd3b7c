"""What only a real API server can tell of this layer: that it understands us, and does what we count on."""

from __future__ import annotations

import base64
import random
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from kube.client import config, errors
from kube.client.api import Api
from kube.client.clock import SystemClock
from kube.client.http import HttpTransport
from kube.client.resources import EVENTS, LEASES, NAMESPACES, PODS
from kube.client.retry import Retry
from kube.events import EventRecorder, EventSettings, about
from kube.lead.lease import LeaderElection, LeaseSettings, incarnation
from tools.cluster.plane import ControlPlane
from wire.core import ObjectMeta

pytestmark = pytest.mark.cluster

NAMESPACE = "kube-layer"


@pytest.fixture
def ca_file(control_plane: ControlPlane, tmp_path: Path) -> str:
    path = tmp_path / "ca.crt"
    path.write_text(control_plane.ca_pem)
    return str(path)


@pytest.fixture
async def api(control_plane: ControlPlane, ca_file: str) -> AsyncIterator[Api]:
    credentials = config.plain(control_plane.url, ca_file=ca_file, token=control_plane.token)
    async with HttpTransport(credentials) as transport:
        api = Api(transport, retry=Retry(random.Random(1)))
        with suppress(errors.AlreadyExists):
            await api.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        yield api


@pytest.fixture
async def pod_name(api: Api) -> AsyncIterator[str]:
    spec = {"containers": [{"name": "main", "image": "none"}], "serviceAccountName": "default"}
    body = {"metadata": {"generateName": "p-"}, "spec": {**spec, "schedulerName": "nobody"}}
    pod = await eventually(lambda: api.create(PODS, body, namespace=NAMESPACE), but=errors.Forbidden)
    yield pod.metadata.name
    with suppress(errors.NotFound):
        await api.delete(PODS, pod.metadata.name, namespace=NAMESPACE, grace_s=0)


async def eventually(ask: Callable[[], Any], *, but: type[Exception] = AssertionError) -> Any:
    """Ask until the cluster has come so far; ``but`` is what it answers before."""
    with anyio.fail_after(120.0):
        while True:
            try:
                return await ask()
            except but:
                await anyio.sleep(0.05)


async def test_a_lease_is_taken_renewed_and_given_back(api: Api) -> None:
    rng = random.Random()
    election = LeaderElection(
        api,
        namespace=NAMESPACE,
        name="election",
        identity=incarnation("a", rng),
        clock=SystemClock(),
        rng=rng,
        settings=LeaseSettings(duration_s=3, renew_deadline_s=2.0, retry_s=0.2),
    )

    async def work() -> None:
        assert election.is_leading
        await anyio.sleep(0.7)

    await election.run(work)
    first = await api.get(LEASES, "election", namespace=NAMESPACE)
    assert not first.spec.holder_identity
    assert first.spec.lease_duration_seconds is None  # given back clean: the next one works at once
    assert first.spec.renew_time is not None
    assert first.spec.acquire_time is not None
    assert first.spec.renew_time > first.spec.acquire_time
    await election.run(work)
    assert (await api.get(LEASES, "election", namespace=NAMESPACE)).spec.lease_transitions == 1


async def test_events_are_accepted_and_counted(api: Api) -> None:
    recorder = EventRecorder(
        api, clock=SystemClock(), controller="kai-scheduler", instance="test", settings=EventSettings(bundle_s=0.2)
    )
    namespace = await api.get(NAMESPACES, NAMESPACE)
    regarding = about(NAMESPACES, namespace.metadata)

    def say() -> None:
        recorder.record(regarding, reason="Tested", action="Testing", note="ä" * 600)

    async def have_written(count: int) -> None:
        assert recorder.counts.written == count

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(recorder.run)
        say()
        await eventually(lambda: have_written(1))
        say()
        say()
        await eventually(lambda: have_written(2))
        tasks.cancel_scope.cancel()
    assert recorder.counts.refused == 0
    listing = await api.list(EVENTS, namespace="default", field_selector="reason=Tested")
    assert [event.series.count for event in listing.items if event.series] == [3]


async def test_a_token_that_nobody_knows_is_unauthorized(control_plane: ControlPlane, ca_file: str) -> None:
    async with HttpTransport(config.plain(control_plane.url, ca_file=ca_file, token="wrong")) as transport:
        with pytest.raises(errors.Unauthorized):
            await Api(transport, retry=Retry(random.Random(1))).list(PODS)


async def test_the_administrators_kubeconfig_works(control_plane: ControlPlane) -> None:
    credentials = await config.from_kubeconfig(path=str(control_plane.kubeconfig_path))
    async with HttpTransport(credentials) as transport:
        api = Api(transport, retry=Retry(random.Random(1)))
        assert (await api.get(NAMESPACES, "default")).metadata.name == "default"


async def test_a_token_bound_to_a_pod_says_which_and_dies_with_it(
    api: Api, control_plane: ControlPlane, ca_file: str
) -> None:
    plain = {"metadata": {"name": "holder"}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
    pod = await api.create(PODS, plain, namespace=NAMESPACE)
    token = await api.token(NAMESPACE, "default", pod=pod.metadata, lifetime_s=600)
    assert token.lifetime_s == 600
    claims = msgspec.json.decode(_payload(token.value))["kubernetes.io"]
    assert claims["pod"] == {"name": "holder", "uid": pod.metadata.uid}
    with pytest.raises(errors.Conflict):
        await api.token(NAMESPACE, "default", pod=ObjectMeta(name="holder", uid="another"), lifetime_s=600)
    own = config.plain(control_plane.url, ca_file=ca_file, token=token.value)
    async with HttpTransport(own) as transport:
        inside = Api(transport, retry=Retry(random.Random(3)))
        with pytest.raises(errors.Forbidden):  # known, and without rights
            await inside.get(PODS, "holder", namespace=NAMESPACE)
        await api.delete(PODS, "holder", namespace=NAMESPACE, grace_s=0)
        with anyio.fail_after(120):
            while True:  # the server remembers a token that it has judged for ten seconds
                with suppress(errors.Forbidden):
                    with pytest.raises(errors.Unauthorized):
                        await inside.get(PODS, "holder", namespace=NAMESPACE)
                    break
                await anyio.sleep(0.5)


def _payload(token: str) -> bytes:
    part = token.split(".")[1]
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


async def test_what_anybody_may_nest_a_thousand_levels_deep_is_read(api: Api, pod_name: str) -> None:
    """The server stores such managed fields, and shows them to everybody who lists pods."""
    fields: dict[str, Any] = {}
    for _ in range(400):
        fields = {"f:a": fields}
    body = msgspec.json.encode(fields)
    for _ in range(3):  # json can't be written deeper than Python goes, so it is put together
        body = body.replace(b"{}", msgspec.json.encode(fields))
    entry = {"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1"}
    patch = {"metadata": {"managedFields": [{**entry, "fieldsV1": msgspec.Raw(b'{"f:metadata":%s}' % body)}]}}
    await api.patch(PODS, pod_name, patch, namespace=NAMESPACE)
    assert (await api.get(PODS, pod_name, namespace=NAMESPACE)).metadata.name == pod_name
    assert pod_name in [pod.metadata.name for pod in (await api.list(PODS, namespace=NAMESPACE)).items]
