"""Reviews as a real API server sends them: webhooks that answer yes to everything are registered beside ours, and keep
what they are sent. The mutating one is asked before ours, the validating one sees what ours made of the pod.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

import msgspec
from aiohttp import web

from admission.certificates import tls
from admission.certificates.pair import serving_certificate
from admission.manifests import UrlEndpoint, webhook_manifests
from admission.server import MUTATE_PATH, VALIDATE_PATH
from bench import bench_cluster
from bench.bench_cluster import Stage
from bench.objects import USUAL, Manifest
from kube.client.api import MERGE_PATCH, check
from kube.client.clock import SystemClock
from wire import names

_LOOPBACK: Final = "127.0.0.1"
#: Mutating configurations are asked in the order of their names.
_FIRST: Final = "a-recorder"
_API: Final = "/apis/admissionregistration.k8s.io/v1"
_TIMEOUT_S: Final = 30.0
_CREATED: Final = 201


class Recorded(msgspec.Struct, frozen=True):
    """One request: ``path`` with its query, ``headers`` as they came, and the review."""

    path: str
    headers: dict[str, str]
    body: bytes


async def recorded(scene: Stage, pods: Mapping[str, Manifest]) -> Sequence[Recorded]:
    """Create each pod where our webhooks stand, and change a label of it: three reviews each, as they were sent.

    Raises kube.client.errors.ApiError for a pod that is refused.
    """
    kept: list[Recorded] = []
    async with _recorder(kept) as (port, ca):
        manifests = webhook_manifests(UrlEndpoint(f"https://{_LOOPBACK}:{port}"), ca=ca)
        paths = [f"{_API}/{manifest['kind'].lower()}s" for manifest in manifests]
        for manifest, path in zip(manifests, paths, strict=True):
            manifest["metadata"]["name"] = _FIRST
            manifest["webhooks"][0].pop("reinvocationPolicy", None)
            await scene.send("POST", path, manifest)
        await bench_cluster.until(lambda: _is_asked(scene, kept), "the recorder to be asked", within_s=_TIMEOUT_S)
        kept.clear()
        for number, pod in enumerate(pods.values()):
            await _made_and_changed(scene, f"form-{number}", pod)
        for path in paths:
            await scene.send("DELETE", f"{path}/{_FIRST}", {"kind": "DeleteOptions", "apiVersion": "v1"})
    return kept


@asynccontextmanager
async def _recorder(kept: list[Recorded]) -> AsyncIterator[tuple[int, bytes]]:
    """Serve the recorder: its port, and its CA."""

    async def keep(request: web.Request) -> web.Response:
        body = await request.read()
        kept.append(Recorded(request.path_qs, dict(request.headers), body))
        asked = msgspec.json.decode(body)
        verdict = {"uid": asked["request"]["uid"], "allowed": True}
        answer = {"apiVersion": asked["apiVersion"], "kind": asked["kind"], "response": verdict}
        return web.Response(body=msgspec.json.encode(answer), content_type="application/json")

    made = serving_certificate(addresses=[_LOOPBACK], now_ns=SystemClock().now_ns())
    app = web.Application(client_max_size=8 * 2**20)
    for path in (MUTATE_PATH, VALIDATE_PATH):
        app.router.add_post(path, keep)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, _LOOPBACK, 0, ssl_context=_context(made.certificate, made.key)).start()
        yield runner.addresses[0][1], made.ca
    finally:
        await runner.cleanup()


def _context(certificate: bytes, key: bytes) -> ssl.SSLContext:
    context = tls.server_context()
    tls.load(context, certificate, key)
    return context


async def _is_asked(scene: Stage, kept: list[Recorded]) -> bool:
    """Try whether the API server asks ours and the recorder's by now: it follows configurations a little late."""
    kept.clear()
    pod = _named("trial", USUAL["kai"])
    body = msgspec.json.encode(pod)
    query = {"dryRun": "All"}
    answer = await scene.transport.request("POST", bench_cluster.PODS, query=query, body=body, timeout_s=_TIMEOUT_S)
    is_ours = any(names.ENV_GPU_PORTION.encode() in each.body for each in kept if each.path.startswith(VALIDATE_PATH))
    return answer.status == _CREATED and is_ours and any(each.path.startswith(MUTATE_PATH) for each in kept)


async def _made_and_changed(scene: Stage, name: str, pod: Manifest) -> None:
    await scene.send("POST", bench_cluster.PODS, _named(name, pod))
    changed = msgspec.json.encode({"metadata": {"labels": {"step": "2"}}})
    check(
        await scene.transport.request(
            "PATCH",
            f"{bench_cluster.PODS}/{name}",
            query={},
            body=changed,
            content_type=MERGE_PATCH,
            timeout_s=_TIMEOUT_S,
        )
    )


def _named(name: str, pod: Manifest) -> Manifest:
    """One of ours, under this name."""
    spec = {**pod["spec"], "schedulerName": names.SCHEDULER_NAME}
    return {**pod, "metadata": {**pod["metadata"], "name": name}, "spec": spec}
