"""What only a real API server can tell of this layer: that it understands us, and does what we count on."""

from __future__ import annotations

import base64
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from kube.client import config, errors
from kube.client.api import Api
from kube.client.clock import SystemClock
from kube.client.http import HttpTransport
from kube.client.resources import CONFIG_MAPS, EVENTS, LEASES, NAMESPACES, PODS
from kube.client.retry import Retry
from kube.events import EventRecorder, EventSettings, about
from kube.lead.lease import LeaderElection, LeaseSettings, incarnation
from kube.watch.reflector import Reflector
from tools.cluster.plane import ControlPlane
from wire.core import Binding, ConfigMap, ObjectMeta, ObjectReference

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


async def test_a_patch_with_another_uid_or_version_is_a_conflict(api: Api, pod_name: str) -> None:
    pod = await api.get(PODS, pod_name, namespace=NAMESPACE)
    patch = {"metadata": {"annotations": {"a": "b"}}}
    with pytest.raises(errors.Conflict):
        await api.patch(PODS, pod_name, patch, namespace=NAMESPACE, uid="0b6ac1d8-0000-4000-8000-000000000000")
    with pytest.raises(errors.Conflict):
        await api.patch(PODS, pod_name, patch, namespace=NAMESPACE, resource_version="1")
    stored = await api.patch(
        PODS,
        pod_name,
        patch,
        namespace=NAMESPACE,
        uid=pod.metadata.uid,
        resource_version=pod.metadata.resource_version,
    )
    assert stored.metadata.annotations == {"a": "b"}


async def test_a_delete_of_another_pod_of_that_name_is_a_conflict(api: Api, pod_name: str) -> None:
    with pytest.raises(errors.Conflict):
        await api.delete(PODS, pod_name, namespace=NAMESPACE, uid="0b6ac1d8-0000-4000-8000-000000000000")
    assert (await api.get(PODS, pod_name, namespace=NAMESPACE)).metadata.deletion_timestamp is None


async def test_a_binding_merges_its_annotations_and_a_second_one_is_a_conflict(api: Api, pod_name: str) -> None:
    pod = await api.get(PODS, pod_name, namespace=NAMESPACE)
    metadata = ObjectMeta(name=pod_name, uid=pod.metadata.uid, resource_version=pod.metadata.resource_version)
    target = ObjectReference(kind="Node", name="n1")
    with_annotation = ObjectMeta(
        name=pod_name,
        uid=pod.metadata.uid,
        resource_version=pod.metadata.resource_version,
        annotations={"moorage.test/k": "v"},
    )
    await api.bind(NAMESPACE, pod_name, Binding(metadata=with_annotation, target=target))
    bound = await api.get(PODS, pod_name, namespace=NAMESPACE)
    assert bound.spec.node_name == "n1"
    assert bound.metadata.annotations == {"moorage.test/k": "v"}
    with pytest.raises(errors.Conflict):
        await api.bind(NAMESPACE, pod_name, Binding(metadata=metadata, target=target))


async def test_an_eviction_with_another_uid_is_refused(api: Api, pod_name: str) -> None:
    hasty = Api(api._transport, retry=Retry(random.Random(1)), timeout_s=1.0)
    with pytest.raises((errors.Conflict, errors.ServerError, errors.Unreachable)):
        await hasty.evict(NAMESPACE, pod_name, uid="0b6ac1d8-0000-4000-8000-000000000000")
    pod = await api.get(PODS, pod_name, namespace=NAMESPACE)
    assert pod.metadata.deletion_timestamp is None
    await api.evict(NAMESPACE, pod_name, uid=pod.metadata.uid, grace_s=0)
    with pytest.raises(errors.NotFound):
        await api.get(PODS, pod_name, namespace=NAMESPACE)


async def test_a_list_in_pages_is_whole(api: Api) -> None:
    async with AsyncExitStack() as cleaning:
        for number in range(7):
            name = f"page-{number}"
            body = ConfigMap(metadata=ObjectMeta(name=name, labels={"test": "pages"}), data={"n": str(number)})
            await api.create(CONFIG_MAPS, body, namespace=NAMESPACE)
            cleaning.push_async_callback(api.delete, CONFIG_MAPS, name, namespace=NAMESPACE)
        listing = await api.list(CONFIG_MAPS, namespace=NAMESPACE, label_selector="test=pages")
    assert [item.metadata.name for item in listing.items] == [f"page-{number}" for number in range(7)]
    assert int(listing.resource_version) > 0


class Seen:
    """A sink that remembers."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def keep(self, obj: ConfigMap) -> ConfigMap:
        return obj

    async def replace(self, kept: Sequence[ConfigMap]) -> None:
        self.log.append(f"replace {len(kept)}")

    def upsert(self, obj: ConfigMap) -> None:
        self.log.append(f"upsert {obj.metadata.name}")

    def delete(self, obj: ConfigMap) -> None:
        self.log.append(f"delete {obj.metadata.name}")


def reflecting(api: Api, seen: Seen) -> Reflector[ConfigMap]:
    return Reflector(api, CONFIG_MAPS, seen, namespace=NAMESPACE, label_selector="test=watch", rng=random.Random(2))


async def test_a_reflector_follows(api: Api) -> None:
    seen = Seen()

    async def has_seen(line: str) -> None:
        assert line in seen.log

    async with anyio.create_task_group() as tasks:
        reflector = reflecting(api, seen)
        await tasks.start(reflector.run)
        body = ConfigMap(metadata=ObjectMeta(name="watched", labels={"test": "watch"}))
        await api.create(CONFIG_MAPS, body, namespace=NAMESPACE)
        await eventually(lambda: has_seen("upsert watched"))
        await api.delete(CONFIG_MAPS, "watched", namespace=NAMESPACE)
        await eventually(lambda: has_seen("delete watched"))
        tasks.cancel_scope.cancel()
    assert seen.log == ["replace 0", "upsert watched", "delete watched"]
    assert reflector.undecodable == {}


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
        api,
        clock=SystemClock(),
        controller="kai-scheduler",
        instance="test",
        settings=EventSettings(bundle_s=0.2),
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
