"""The webhooks behind a real API server: what they make of pods must be what the server takes and stores."""

from __future__ import annotations

import functools
import random
import re
import ssl
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest

from admission.app import run
from admission.certificates.pair import serving_certificate
from admission.certificates.tls import Files, FilesShown
from admission.manifests import UrlEndpoint, webhook_manifests
from admission.server import Endpoint
from admission.settings import HandOver, Settings
from kube.client.api import Api
from kube.client.clock import SystemClock
from kube.client.config import plain
from kube.client.http import HttpTransport
from kube.client.retry import Retry
from tests.admission.pods import container, env, half, pod
from tools.cluster.plane import ControlPlane
from wire import names

pytestmark = pytest.mark.cluster

Object = dict[str, Any]

_PATHS = {
    kind: f"/apis/admissionregistration.k8s.io/v1/{kind.lower()}s"
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
}
_RUNTIME_CLASS = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "nvidia"},
    "handler": "nvidia",
}


class Cluster:
    """One namespace whose pods pass our webhooks."""

    def __init__(self, session: aiohttp.ClientSession, url: str, namespace: str) -> None:
        self._session = session
        self._url = url
        self.pods = f"/api/v1/namespaces/{namespace}/pods"

    async def call(
        self, method: str, path: str, body: Object | None = None, *, content_type: str = "application/json"
    ) -> tuple[int, Object]:
        async with self._session.request(
            method, self._url + path, json=body, headers={"Content-Type": content_type}
        ) as response:
            return response.status, await response.json()

    async def stored(self, raw: Object) -> Object:
        raw = {**raw, "metadata": {key: value for key, value in raw["metadata"].items() if key != "namespace"}}
        raw["spec"] = {**raw["spec"], "automountServiceAccountToken": False}
        status, answer = await self.call("POST", self.pods, raw)
        assert status == 201, answer
        return answer

    async def message(self, raw: Object) -> str:
        raw = {**raw, "metadata": {key: value for key, value in raw["metadata"].items() if key != "namespace"}}
        status, answer = await self.call("POST", self.pods, raw)
        assert status == 403, answer
        return str(answer["message"])


@pytest.fixture(scope="module")
def least_rights(control_plane: ControlPlane) -> ControlPlane:
    """A control plane that knows the component's service account and role."""
    namespace = f"{{apiVersion: v1, kind: Namespace, metadata: {{name: {names.SYSTEM_NAMESPACE}}}}}"
    control_plane.apply(namespace)
    control_plane.apply((Path(__file__).parents[2] / "admission" / "rbac.yaml").read_text())
    return control_plane


@pytest.fixture(params=HandOver, ids=lambda mode: mode.value)
async def cluster(least_rights: ControlPlane, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    """A namespace guarded by a webhook server of its own, in each way to hand over."""
    mark = uuid.uuid4().hex[:8]
    async with AsyncExitStack() as stack:
        tls = ssl.create_default_context(cadata=least_rights.ca_pem)
        session = await stack.enter_async_context(
            aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=tls),
                headers={"Authorization": f"Bearer {least_rights.token}"},
                timeout=aiohttp.ClientTimeout(total=120),
            )
        )
        world = Cluster(session, least_rights.url, f"door-{mark}")
        # Taken down last: by then the loop has also seen the component's cut watch say goodbye.
        stack.push_async_callback(_take_down, world, mark)
        manifests = await stack.enter_async_context(_serving(Settings(hand_over=request.param), tmp_path, least_rights))
        await _set_up(world, manifests, mark)
        await _in_force(world)
        yield world


@asynccontextmanager
async def _serving(settings: Settings, folder: Path, plane: ControlPlane) -> AsyncIterator[list[Object]]:
    """The component as it is deployed: under its own service account, with the rights of its rbac.yaml."""
    made = serving_certificate(addresses=["127.0.0.1"], now_ns=SystemClock().now_ns())
    (folder / "tls.crt").write_bytes(made.certificate)
    (folder / "tls.key").write_bytes(made.key)
    (folder / "ca.crt").write_text(plane.ca_pem)
    token = plane.service_account_token(names.SYSTEM_NAMESPACE, "moorage-admission")
    shown = FilesShown(Files(certificate=folder / "tls.crt", key=folder / "tls.key"))
    endpoint = Endpoint(host="127.0.0.1", port=0, drain_s=0.1)
    rng, stop = random.Random(1), anyio.Event()
    async with HttpTransport(plain(plane.url, ca_file=str(folder / "ca.crt"), token=token)) as transport:
        component = functools.partial(
            run, Api(transport, retry=Retry(rng)), settings=settings, endpoint=endpoint, shown=shown, rng=rng, stop=stop
        )
        async with anyio.create_task_group() as tasks:
            port = await tasks.start(component)
            yield webhook_manifests(UrlEndpoint(f"https://127.0.0.1:{port}"), ca=made.ca)
            stop.set()


async def _set_up(world: Cluster, manifests: list[Object], mark: str) -> None:
    """Register the webhooks for the one namespace only: other tests share the server."""
    namespace = world.pods.split("/")[4]
    assert (await world.call("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}}))[0] == 201
    for path, body in (
        (f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "default"}}),
        ("/apis/node.k8s.io/v1/runtimeclasses", _RUNTIME_CLASS),
    ):
        assert (await world.call("POST", path, body))[0] in {201, 409}
    only = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": [namespace]}
    for manifest in manifests:
        manifest["metadata"]["name"] += f"-{mark}"
        manifest["webhooks"][0]["namespaceSelector"]["matchExpressions"].append(only)
        status, answer = await world.call("POST", _PATHS[manifest["kind"]], manifest)
        assert status == 201, answer


async def _take_down(world: Cluster, mark: str) -> None:
    for path in _PATHS.values():
        await world.call("DELETE", f"{path}/moorage-pods-{mark}")


async def _in_force(world: Cluster) -> None:
    """Wait until the API server asks both webhooks: the refusal of each is needed for a pod to be refused by both."""
    raw = {key: value for key, value in pod().items() if key != "metadata"} | {"metadata": {"name": "probe"}}
    changed = {"metadata": {"annotations": {names.GPU_FRACTION: "7"}}}
    await world.stored({**pod(scheduler=names.SCHEDULER_NAME), "metadata": {"name": "probe"}})
    with anyio.fail_after(120):
        while True:
            malformed = {**raw, "metadata": {"name": "probe-2", "annotations": {names.GPU_FRACTION: "7"}}}
            first = await world.call("POST", world.pods + "?dryRun=All", malformed)
            second = await world.call(
                "PATCH", world.pods + "/probe?dryRun=All", changed, content_type="application/merge-patch+json"
            )
            clean = (await world.call("POST", world.pods + "?dryRun=All", raw | {"metadata": {"name": "probe-3"}}))[1]
            if first[0] == second[0] == 403 and clean.get("spec", {}).get("containers", [{}])[0].get("env"):
                return
            await anyio.sleep(0.1)


def _owned(name: str) -> Object:
    owner = {"apiVersion": "example.com/v1", "kind": "Thing", "name": name, "uid": str(uuid.UUID(int=1))}
    return {"generateName": "p-", "ownerReferences": [owner]}


HOSTILE_NAMES = {
    "plain": {"name": "trainer"},
    "longest": {"name": "a" * 253},
    "dotted": {"name": "a.b-c.d"},
    "long and dotted": {"name": ".".join(["x" * 40] * 6)},
    "generated": {"generateName": "train-"},
    "generated, dotted": {"generateName": "a.b-"},
    "owner ends in a dash": _owned("job-"),
    "owner is no DNS name": _owned("system:Node_1."),
    "owner is not ASCII": _owned("Größe-日本"),
    "owner is longer than a name": _owned("x" * 300),
}


@pytest.mark.parametrize("metadata", HOSTILE_NAMES.values(), ids=HOSTILE_NAMES)
@pytest.mark.parametrize("named", [False, True], ids=["first container", "init container"])
async def test_every_pod_that_the_server_takes_is_made_one_that_it_takes(
    cluster: Cluster, metadata: Object, named: bool
) -> None:
    annotations = {names.GPU_FRACTION_CONTAINER_NAME: "fetch"} if named else {}
    raw = half(container(), container("side"), initContainers=[container("fetch")], annotations=annotations)
    raw["metadata"] |= metadata
    if "generateName" in metadata:
        del raw["metadata"]["name"]
    stored = await cluster.stored(raw)
    kind = "initContainers" if named else "containers"
    assert "void" not in env(stored, kind=kind).values()
    assert env(stored, index=1) == {names.ENV_VISIBLE_DEVICES: "void"}
    assert stored["spec"]["runtimeClassName"] == "nvidia"


async def test_a_copy_of_a_stored_pod_is_a_new_pod(cluster: Cluster) -> None:
    stored = await cluster.stored(half())
    copied = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "copy",
            "annotations": {**stored["metadata"]["annotations"], names.GRANT: "{}"},
            "labels": {names.GPU_GROUP_LABEL: "g"},
        },
        "spec": stored["spec"],
    }
    again = await cluster.stored(copied)
    assert names.GRANT not in again["metadata"]["annotations"]
    assert again["metadata"].get("labels") is None
    assert len(again["spec"].get("volumes") or ()) == len(stored["spec"].get("volumes") or ())
    assert set(env(again)) == set(env(stored))


async def test_a_malformed_ask_is_refused_with_kais_words_and_what_is_allowed(cluster: Cluster) -> None:
    raw = pod(annotations={names.GPU_FRACTION: "0,5"}, metadata={"name": "bad"})
    message = await cluster.message(raw)
    assert re.search(r'denied the request: gpu-fraction annotation value must be .*is "0,5"; allowed: ', message)


async def test_a_debug_container_sees_no_device(cluster: Cluster) -> None:
    stored = await cluster.stored(half())
    debug = {"name": "debug", "image": "cuda", "env": [{"name": names.ENV_VISIBLE_DEVICES, "value": "all"}]}
    status, answer = await cluster.call(
        "PATCH",
        f"{cluster.pods}/{stored['metadata']['name']}/ephemeralcontainers",
        {"spec": {"ephemeralContainers": [debug]}},
        content_type="application/merge-patch+json",
    )
    assert status == 200, answer
    assert env(answer, kind="ephemeralContainers") == {names.ENV_VISIBLE_DEVICES: "void"}


async def test_a_gated_pod_can_be_ungated_and_its_ask_changed_only_to_a_good_one(cluster: Cluster) -> None:
    stored = await cluster.stored(half(schedulingGates=[{"name": "kueue.x-k8s.io/admission"}]))
    path = f"{cluster.pods}/{stored['metadata']['name']}"
    for patch, expected in (
        ({"metadata": {"annotations": {names.GPU_FRACTION: "0"}}}, 403),
        ({"metadata": {"annotations": {names.GPU_FRACTION: "0.25"}}}, 200),
        ({"spec": {"schedulingGates": []}}, 200),
    ):
        status, answer = await cluster.call("PATCH", path, patch, content_type="application/merge-patch+json")
        assert status == expected, answer


async def test_a_namespace_says_by_its_label_that_it_is_not_guarded(cluster: Cluster) -> None:
    namespace = cluster.pods.removesuffix("/pods")
    label = {"metadata": {"labels": {names.VISIBLE_DEVICES_GUARD: "off"}}}
    assert (await cluster.call("PATCH", namespace, label, content_type="application/merge-patch+json"))[0] == 200
    own = [{"name": names.ENV_VISIBLE_DEVICES, "value": "all"}]
    raw = {**pod(container(env=own)), "metadata": {"name": "free"}}
    with anyio.fail_after(120):
        while True:
            status, answer = await cluster.call("POST", cluster.pods + "?dryRun=All", raw)
            assert status == 201, answer
            if env(answer) == {names.ENV_VISIBLE_DEVICES: "all"}:
                return
            await anyio.sleep(0.1)


async def test_a_namespace_says_by_its_annotation_how_dialects_are_read(cluster: Cluster) -> None:
    namespace = cluster.pods.removesuffix("/pods")
    said = {"metadata": {"annotations": {names.DIALECTS: '{"aliyun": {"unit_mib": 1}}'}}}
    assert (await cluster.call("PATCH", namespace, said, content_type="application/merge-patch+json"))[0] == 200
    raw = {**pod(container(resources={"limits": {"aliyun.com/gpu-mem": "500"}})), "metadata": {"name": "counted"}}
    with anyio.fail_after(120):
        while True:
            status, answer = await cluster.call("POST", cluster.pods + "?dryRun=All", raw)
            assert status == 201, answer
            if '"memMib":500}' in answer["metadata"]["annotations"][names.GPU_RECORD]:
                return
            await anyio.sleep(0.1)
