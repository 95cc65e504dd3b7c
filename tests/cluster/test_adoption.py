"""Adoption on a real API server: webhooks are asked in the order of their configurations' names, each by its condition
at that time."""

from __future__ import annotations

import random
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from admission.certificates.pair import serving_certificate
from admission.manifests import UrlEndpoint, adoption_manifest, webhook_manifests
from admission.review import PodAdmission
from admission.settings import Settings
from kube.client.clock import SystemClock
from tests.cluster.doors import Door, Object, opened, registered, served
from tools.cluster.plane import ControlPlane
from wire import names

pytestmark = pytest.mark.cluster


class Spaces:
    """A namespace that adopts, and one that does not."""

    def __init__(self, door: Door, adopting: str, other: str) -> None:
        self._door = door
        self.adopting = adopting
        self.other = other

    async def tried(
        self, namespace: str, limits: Object, scheduler: str = "", **metadata: Object
    ) -> tuple[int, Object]:
        spec = {
            "automountServiceAccountToken": False,
            "containers": [{"name": "main", "image": "cuda", "resources": {"limits": limits}}],
        }
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p", **metadata},
            "spec": spec | ({"schedulerName": scheduler} if scheduler else {}),
        }
        status, answer, _ = await self._door.call("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", body)
        return status, answer


@asynccontextmanager
async def _spaces(plane: ControlPlane, folder: Path, adoption_name: str = "") -> AsyncIterator[Spaces]:
    mark = uuid.uuid4().hex[:8]
    spaces = {f"adopting-{mark}": {names.ADOPT: "true"}, f"other-{mark}": {names.ADOPT: "false"}}
    admission = PodAdmission(Settings(), rng=random.Random(1))
    async with opened(plane, spaces) as door, served(admission, folder) as (endpoint, ca):
        manifests = _manifests(endpoint, ca, adoption_name)
        async with registered(door, manifests, list(spaces)):
            there = Spaces(door, *spaces)
            await _in_force(there)
            yield there


def _manifests(endpoint: UrlEndpoint, ca: bytes, adoption_name: str) -> list[Object]:
    adoption = adoption_manifest(endpoint, ca=ca)
    if adoption_name:
        adoption["metadata"]["name"] = adoption_name
    return [adoption, *webhook_manifests(endpoint, ca=ca)]


async def _in_force(spaces: Spaces) -> None:
    """Wait until the server asks each of them: a pod is adopted, and one of ours is guarded."""
    with anyio.fail_after(120):
        while True:
            adopted = (await spaces.tried(spaces.adopting, {names.GPU_RESOURCE: "1"}))[1]
            ours = (await spaces.tried(spaces.other, {}, names.SCHEDULER_NAME))[1]
            if _scheduler(adopted) == names.SCHEDULER_NAME and ours["spec"]["containers"][0].get("env"):
                return
            await anyio.sleep(0.1)


def _scheduler(pod: Object) -> str:
    return str(pod["spec"]["schedulerName"])


@pytest.fixture(scope="module")
async def spaces(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Spaces]:
    async with _spaces(control_plane, tmp_path_factory.mktemp("door")) as there:
        yield there


@pytest.mark.parametrize(
    ("limits", "scheduler"),
    [
        ({"aliyun.com/gpu-mem": "5"}, ""),
        ({"nvidia.com/gpumem": "3000"}, "hami-scheduler"),
        ({"koordinator.sh/gpu": "50"}, "koord-scheduler"),
        ({"volcano.sh/vgpu-memory": "3000"}, "volcano"),
    ],
)
async def test_an_unchanged_manifest_is_adopted_and_then_admitted(
    spaces: Spaces, limits: Object, scheduler: str
) -> None:
    status, pod = await spaces.tried(spaces.adopting, limits, scheduler)
    assert status == 201, pod
    assert _scheduler(pod) == names.SCHEDULER_NAME
    assert names.GPU_RECORD in pod["metadata"]["annotations"]
    assert pod["spec"]["containers"][0]["resources"] == {}


async def test_whole_gpus_are_adopted_as_they_are(spaces: Spaces) -> None:
    status, pod = await spaces.tried(spaces.adopting, {names.GPU_RESOURCE: "1"})
    assert (status, _scheduler(pod)) == (201, names.SCHEDULER_NAME)
    assert names.GPU_RECORD not in (pod["metadata"].get("annotations") or {})


async def test_who_asks_wrongly_is_told(spaces: Spaces) -> None:
    status, answer = await spaces.tried(spaces.adopting, {}, labels={"clearml-injector/fraction": "7.5"})
    assert status == 403
    assert "label clearml-injector/fraction" in answer["message"]


@pytest.mark.parametrize(
    ("limits", "scheduler"),
    [({"cpu": "1"}, "default-scheduler"), ({"nvidia.com/gpu": "1"}, "a-stranger")],
    ids=["asks for none", "of a stranger"],
)
async def test_other_pods_stay_where_they_are(spaces: Spaces, limits: Object, scheduler: str) -> None:
    status, pod = await spaces.tried(spaces.adopting, limits, scheduler)
    assert (status, _scheduler(pod)) == (201, scheduler)


async def test_a_namespace_that_does_not_say_so_keeps_its_scheduler(spaces: Spaces) -> None:
    status, pod = await spaces.tried(spaces.other, {"aliyun.com/gpu-mem": "5"})
    assert (status, _scheduler(pod)) == (201, "default-scheduler")


async def test_a_webhook_whose_turn_was_before_the_change_is_not_asked_again(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    """Why adoption has to come first by its name: registered last, the pod is ours and nobody has admitted it."""
    async with _spaces(control_plane, tmp_path, adoption_name="zz-last") as late:
        status, pod = await late.tried(late.adopting, {names.GPU_RESOURCE: "1"})
        assert (status, _scheduler(pod)) == (201, names.SCHEDULER_NAME)
        shared, refused = await late.tried(late.adopting, {}, annotations={names.GPU_FRACTION: "0.5"})
        assert shared == 201, refused
        assert "env" not in refused["spec"]["containers"][0]


@pytest.mark.parametrize(
    ("adopts", "scheduler", "is_made"),
    [(False, "default-scheduler", True), (False, names.SCHEDULER_NAME, False), (True, "default-scheduler", False)],
)
async def test_while_nobody_answers_pods_of_others_are_made_and_ours_are_not(
    control_plane: ControlPlane, adopts: bool, scheduler: str, is_made: bool
) -> None:
    mark = uuid.uuid4().hex[:8]
    spaces = {f"adopting-{mark}": {names.ADOPT: "true"}, f"other-{mark}": {names.ADOPT: "false"}}
    nobody = UrlEndpoint("https://127.0.0.1:1")
    ca = serving_certificate(addresses=["127.0.0.1"], now_ns=SystemClock().now_ns()).ca
    async with opened(control_plane, spaces) as door, registered(door, _manifests(nobody, ca, ""), list(spaces)):
        there = Spaces(door, *spaces)
        await _refuses(there)
        namespace = there.adopting if adopts else there.other
        status, answer = await there.tried(namespace, {names.GPU_RESOURCE: "1"}, scheduler)
        assert status == (201 if is_made else 500), answer
        assert is_made or "failed calling webhook" in answer["message"]


async def _refuses(spaces: Spaces) -> None:
    """Wait until the server asks them all."""
    with anyio.fail_after(120):
        while True:
            ours = await spaces.tried(spaces.other, {}, names.SCHEDULER_NAME)
            adopted = await spaces.tried(spaces.adopting, {})
            if ours[0] != 201 and adopted[0] != 201:
                return
            await anyio.sleep(0.1)
