from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import anyio
import pytest
from aiohttp.test_utils import TestClient, TestServer

from admission.certificates.tls import Files, FilesShown
from admission.review import PodAdmission
from admission.server import ADOPT_PATH, MUTATE_PATH, VALIDATE_PATH, Endpoint, WebhookServer
from admission.settings import Settings
from runtime.metrics.registry import Registry
from runtime.processes.admission import WEBHOOKS, ReviewMetrics
from tests.admission.pods import half, pod, review
from tests.runtime.metrics.exposed import values
from wire import names


@pytest.mark.parametrize(
    ("path", "body", "counted"),
    [
        (MUTATE_PATH, review(half()), ("patched", "mutate")),
        (MUTATE_PATH, review(pod(annotations={names.GPU_FRACTION: "2"})), ("refused", "mutate")),
        (VALIDATE_PATH, review(pod(annotations={names.GPU_FRACTION: "2"})), ("refused", "validate")),
        (VALIDATE_PATH, review(pod()), ("allowed", "validate")),
        (ADOPT_PATH, review(pod()), ("allowed", "adopt")),
        (VALIDATE_PATH, {"kind": "Letter"}, ("malformed", "validate")),
    ],
    ids=lambda given: "" if isinstance(given, dict) else "-".join(given) if isinstance(given, tuple) else given[1:7],
)
async def test_each_review_is_counted_by_its_webhook_and_answer(
    path: str, body: dict[str, Any], counted: tuple[str, str], tmp_path: Path
) -> None:
    registry = Registry()
    shown = FilesShown(Files(certificate=tmp_path / "tls.crt", key=tmp_path / "tls.key"))
    server = WebhookServer(
        PodAdmission(Settings(), rng=random.Random(1)),
        Endpoint(host="127.0.0.1", port=0),
        shown,
        is_ready=lambda: True,
        emit=ReviewMetrics(registry).take,
    )
    with anyio.fail_after(60):
        async with TestClient(TestServer(server.app())) as client:
            await (await client.post(path, json=body)).read()
    # Failures are shown before there are any: an alert needs the step from 0.
    none = {(answer, webhook): 0 for answer in ("failed", "malformed") for webhook in WEBHOOKS}
    assert values(registry, "moorage_webhook_review_duration_seconds_count") == {**none, counted: 1}
