"""docs/migrating/kai-step-by-step.md on a real API server: from KAI to Moorage and back, with tenants that run.

There is no KAI here. Its objects are as it leaves them (tests/kai/left.py), and what it would read of ours when it
starts again is judged by what is known of it (tests/kai/reading.py).
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest
import yaml
from kubernetes_asyncio import client

from cli.main import main
from simulator.nodes.shape import ReservationFault
from tests.docs.test_migrating import PAGES, STEPS_OF_KAI, Shown, shown
from tests.e2e.cluster import PATIENCE_S, Pod, Scene, eventually, scene
from tests.e2e.release import COMPONENTS, Release
from tests.kai import left, reading
from tests.kai.left import GROUP
from tools.chart import CHART, ROOT
from tools.cluster.plane import ControlPlane
from wire import names

pytestmark = [pytest.mark.cluster, pytest.mark.helm, pytest.mark.timeout(600)]

#: The names on the page.
NAMESPACE, NODE = "team", "gpu-1"
CARD_MIB = 80 * 1024
DEPLOYMENTS = (
    *("admission", "binder", "kai-operator", "kai-scheduler-default", "pod-grouper", "podgroup-controller"),
    "queue-controller",
)
ASKED = {"trainer": {"gpu_fraction": "0.25"}, "notebook": {"gpu_memory": "20000"}}
OLD = tuple(ASKED)
#: What the API server says while it still has an admission policy that was deleted.
_DENIED = b"ValidatingAdmissionPolicy 'moorage-reservations'"


@pytest.fixture
def plane() -> Iterator[ControlPlane]:
    with ControlPlane() as started:
        yield started


@pytest.fixture
def release(plane: ControlPlane, tmp_path: Path) -> Iterator[Release]:
    made = Release(plane, tmp_path)
    yield made
    made.stop()


async def test_there_and_back_with_tenants_that_run_as_the_page_says(
    plane: ControlPlane, release: Release, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(plane.kubeconfig_path))
    _prepare(plane)
    async with scene(plane, NAMESPACE, ["1x2x80GiB"]) as it:
        device = await _left_by_kai(plane, it)
        before = await it.pods()
        walk = _Walk(plane, release, it, capsys)
        there, back = walk.halves()
        for step in there:
            await walk.take(step)
        await _went_on(it, before, OLD)
        (adopted,) = [one for one in await it.reservations() if reading.groups(one) == {GROUP}]
        await eventually(lambda: _book(it, {*OLD, "joins"}), "the book of KAI's reservation", within_s=PATIENCE_S)
        assert it.sharers(await it.pods())[device] == ["joins", *sorted(OLD)]

        before = await it.pods()
        for step in back:
            await walk.take(step)
        await _went_on(it, before, (*OLD, "joins", "opens"))
        pods = await _as_kai_reads(it)
        assert reading.deleted_at_its_start(pods) == []
        assert reading.overbooked(pods, CARD_MIB) == []
        for pod in (pod for pod in pods if not reading.is_reservation(pod)):
            (group,) = reading.groups(pod)
            assert pod["metadata"]["annotations"]["received-resource-type"] == "Fraction"
            assert [(reading.device(pods, group),)] == list(it.seen(pod).values())
        held = [pod["metadata"] for pod in pods if reading.is_reservation(pod)]
        assert len(held) == 2
        assert not any(meta.get("finalizers") for meta in held)
        assert adopted["metadata"]["uid"] in {meta["uid"] for meta in held}
        for meta in held:  # as KAI would when their tenants have gone
            await it.core.delete_namespaced_pod(meta["name"], names.RESERVATION_NAMESPACE)


# --- what KAI left -----------------------------------------------------------------------------------------------


def _prepare(plane: ControlPlane) -> None:
    """What a cluster has before, and KAI's kinds."""
    runtime = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "nvidia"}}
    system = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": names.SYSTEM_NAMESPACE}}
    kinds = (left.definition("Config", "configs"), left.definition("SchedulingShard", "schedulingshards"))
    plane.apply(yaml.safe_dump_all([{**runtime, "handler": "nvidia"}, system, *kinds]))
    plane.apply("\n---\n".join(path.read_text() for path in sorted((CHART / "crds").glob("*.yaml"))))
    plane.apply(left.RESERVATION_NAMESPACE)
    plane.apply((ROOT / "simulator" / "rbac.yaml").read_text())


async def _left_by_kai(plane: ControlPlane, it: Scene) -> str:
    """Two shares that run on one GPU, and a KAI with its operator. Returns the GPU."""
    (node,) = it.nodes.kubelets
    # The process in KAI's reservation pod is not ours: it tells the UUID, and neither index nor memory.
    it.nodes.kubelets[node].faults.reservation = ReservationFault(silent=True)
    made = await _created(it, left.reservation(node, GROUP, uuid=""), names.RESERVATION_NAMESPACE)
    device: str = await eventually(lambda: _given(it, made), "KAI's reservation to run", within_s=PATIENCE_S)
    told = {"metadata": {"annotations": {"run.ai/reserve_for_gpu_index": device}}}
    await it.core.patch_namespaced_pod(made["metadata"]["name"], names.RESERVATION_NAMESPACE, told)
    for name, asked in ASKED.items():
        pod = await _created(it, left.share(name, GROUP, node=node, **asked), it.namespace)
        for config_map in left.config_maps(name, pod["metadata"]["uid"], devices=device):
            await it.core.create_namespaced_config_map(it.namespace, config_map)
    await it.running(2)
    plane.apply(yaml.safe_dump_all(_of_kai()))
    await eventually(lambda: _kais_pods(it, len(DEPLOYMENTS)), "KAI's own pods", within_s=PATIENCE_S)
    it.nodes.kubelets[node].faults.reservation = ReservationFault()
    return device


def _of_kai() -> list[left.Object]:
    mutating, validating = "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"
    unlimited = {"quota": 0, "limit": -1, "overQuotaWeight": 1}
    plain = dict.fromkeys(("gpu", "cpu", "memory"), unlimited)
    limited = {**plain, "gpu": {**unlimited, "quota": 4, "limit": 8}}
    objects = [
        left.custom("Queue", "default-parent-queue", {"resources": plain}),
        left.custom("Queue", "team-a", {"parentQueue": "default-parent-queue", "resources": limited}),
        left.custom("Config", "kai-config", {"admission": {"gpuSharing": True}, "binder": {"metricsPort": 8080}}),
        left.custom("SchedulingShard", "default", {"args": {"default-staleness-grace-period": "2m"}}),
        *(left.pod_group(name) for name in OLD),
        left.pod_group("llm", "PyTorchJob", "kubeflow.org", minMember=8),
        *(left.deployment(name) for name in DEPLOYMENTS),
        left.webhook(mutating, "mutating-kai-admission"),
        left.webhook(validating, "validating-kai-admission"),
        left.webhook(validating, "kai-queue-validation-v2", "queue-controller"),
        left.webhook(validating, "kai-podgroup-validation-v2alpha2", "podgroup-controller"),
    ]
    for made in objects:
        if made["kind"] in {"PodGroup", "Deployment"}:
            made["metadata"]["namespace"] = NAMESPACE if made["kind"] == "PodGroup" else names.SYSTEM_NAMESPACE
    return objects


async def _created(it: Scene, manifest: Pod, namespace: str) -> Pod:
    made = await it.core.create_namespaced_pod(namespace, manifest, _preload_content=False)
    created: Pod = json.loads(await made.read())
    return created


async def _given(it: Scene, made: Pod) -> str | None:
    seen = it.seen(made).get("resource-reservation")
    return seen[0] if seen else None


async def _kais_pods(it: Scene, count: int) -> bool | None:
    listed = await it.core.list_namespaced_pod(names.SYSTEM_NAMESPACE, label_selector="app")
    return len(listed.items) == count or None


# --- the walk ----------------------------------------------------------------------------------------------------


class _Walk:
    """Takes the steps of the page, waits between them for what a person would wait for, and compares what is told."""

    def __init__(self, plane: ControlPlane, release: Release, it: Scene, capsys: pytest.CaptureFixture[str]) -> None:
        self._plane = plane
        self._release = release
        self._it = it
        self._capsys = capsys

    def halves(self) -> tuple[list[Shown], list[Shown]]:
        """The steps there, and those back."""
        (page,) = (page for page in PAGES if page.name == STEPS_OF_KAI)
        steps = list(shown(page))
        first_back = next(i for i, step in enumerate(steps) if "uninstall" in step.command)
        assert len(steps) >= 12
        return steps[:first_back], steps[first_back:]

    async def take(self, step: Shown) -> None:
        printed = await self._run(step)
        (node,) = self._it.nodes.kubelets
        told, expected = _cells(printed.replace(node, NODE)), _cells(step.printed)
        if "xargs" in step.command:  # in the order of names that differ from run to run
            told, expected = sorted(told), sorted(expected)
        if ["..."] in expected:
            at = expected.index(["..."])
            told[at : len(told) - (len(expected) - at - 1)] = [["..."]]
        assert told == expected, f"{step.command}\n{printed}"
        await self._wait_after(step.command)

    async def _run(self, step: Shown) -> str:
        words = shlex.split(step.command)
        if words[0] == "helm":
            await anyio.to_thread.run_sync(self._helm, words[1:])
            return step.printed  # notes of the release: tests/helm has them
        if "moorage" in words[:2]:
            code = await anyio.to_thread.run_sync(main, words[words.index("moorage") + 1 :])
            is_in_the_way = re.search(r"^[1-9]\d* do-first", step.printed, re.MULTILINE) is not None
            assert code == int(is_in_the_way)
            return self._capsys.readouterr().out
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path}
        with anyio.fail_after(PATIENCE_S):
            while True:
                ended = await anyio.run_process(["bash", "-c", step.command], env=environment, check=False)
                if not (ended.returncode and _DENIED in ended.stderr):
                    break
                await anyio.sleep(1)  # as the page says: the API server has yet to forget the policy
        assert ended.returncode == 0, ended.stderr.decode()
        return ended.stdout.decode()

    def _helm(self, words: list[str]) -> None:
        if words[0] == "install":
            given = [word.replace("helm/moorage", str(CHART)) for word in words if word != "-n"]
            self._release.changed(*(word for word in given if word != "kai-scheduler"))
            self._release.run()
        else:
            self._release.uninstall()

    async def _wait_after(self, command: str) -> None:
        if "--all --replicas=0" in command:
            await eventually(lambda: _kais_pods(self._it, 0), "KAI's own pods to go", within_s=PATIENCE_S)
        elif command.startswith("helm install"):
            await eventually(self._is_ready, "Moorage to be ready", within_s=PATIENCE_S)
            await eventually(lambda: _book(self._it, {*OLD}), "KAI's reservation to be adopted", within_s=PATIENCE_S)
            await eventually(self._lets_in, "the webhooks to answer", within_s=PATIENCE_S)
        elif command.startswith("kubectl run"):
            await self._it.running(len(await self._it.pods()))

    async def _is_ready(self) -> bool | None:
        waited_for = (component for component in COMPONENTS if component != "admission")
        return all([await anyio.to_thread.run_sync(self._release.is_ready, each) for each in waited_for]) or None

    async def _lets_in(self) -> bool | None:
        probe = {"metadata": {"name": "probe"}, "spec": {"schedulerName": "kai-scheduler", "containers": [{}]}}
        probe["spec"]["containers"] = [{"name": "main", "image": "work"}]  # type: ignore[index]
        try:
            await self._it.core.create_namespaced_pod(NAMESPACE, probe, dry_run="All")
        except client.ApiException as refused:
            if "webhook" not in str(refused):
                raise
            return None
        return True


#: Names and ids that differ from run to run, in the order of what replaces them.
_VARYING = (
    (re.compile(r"\b([a-z]+(?:-[a-z]+)*)-[0-9a-f]{7,10}-[0-9a-z]{5}\b"), r"\1-POD"),
    (re.compile(r"\bGPU-[0-9a-f-]{36}\b"), "GPU-UUID"),
    # Ours tell an index, KAI's a UUID only.
    (re.compile(rf"^({NODE} +)(?:GPU-UUID|\d) +(?=\d+ MiB)", re.MULTILINE), r"\1GPU "),
    (re.compile(r"\bgpu-reservation-[0-9a-f]{16}\b"), "gpu-reservation-ID"),
)


def _cells(text: str) -> list[list[str]]:
    """Lines as words: how wide a column is follows from what stands in it."""
    for pattern, instead in _VARYING:
        text = pattern.sub(instead, text)
    return [line.split() for line in text.splitlines()]


# --- what is to be true ------------------------------------------------------------------------------------------


async def _went_on(it: Scene, before: dict[str, Pod], wanted: tuple[str, ...]) -> None:
    """The same pods with the same containers, never started anew."""
    now = await it.pods()
    for name in wanted:
        assert now[name]["metadata"]["uid"] == before[name]["metadata"]["uid"]
        (status,) = now[name]["status"]["containerStatuses"]
        (then,) = before[name]["status"]["containerStatuses"]
        assert (status["restartCount"], status["state"]) == (0, then["state"])
        assert now[name]["status"]["phase"] == "Running"


async def _book(it: Scene, wanted: set[str]) -> bool | None:
    for held in await it.reservations():
        book = json.loads(held["metadata"]["annotations"].get(names.TENANTS, "{}"))
        if {entry["pod"].removeprefix(f"{NAMESPACE}/") for entry in book.values()} == wanted:
            return True
    return None


async def _as_kai_reads(it: Scene) -> list[Any]:
    return [*(await it.pods()).values(), *await it.reservations()]
