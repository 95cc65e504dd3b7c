"""Admission, scheduler and binder as processes of their own, on a real API server, tell one trace of a pod.

The picture in docs/tracing.md is drawn of it: MOORAGE_TRACE_PICTURE=docs/trace.svg.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager

import anyio
import pytest

from tests.e2e.cluster import PATIENCE_S, eventually, share
from tests.e2e.conftest import SetScene
from tests.tracing import reading
from tests.tracing.collector import Collector, collecting
from tests.tracing.picture import drawn
from tests.tracing.reading import assert_sound, names_of, the
from tools.cluster.deployment import ADMISSION, BINDER, SCHEDULER, Deployment

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


@contextmanager
def traced(moorage: Deployment) -> Iterator[Collector]:
    """Have the components send their traces to a collector, for as long as this lasts."""
    with collecting() as collector:
        _start_anew(moorage, "--traces-endpoint", collector.url, "--traces-ratio", "1")
        try:
            yield collector
        finally:
            _start_anew(moorage)


def _start_anew(moorage: Deployment, *further: str) -> None:
    for component in (SCHEDULER, BINDER):
        moorage.stop(component)
    moorage.kill(ADMISSION)
    for component in (ADMISSION, SCHEDULER, BINDER):
        moorage.start(component, *further)
    moorage.wait_for_webhooks()


async def test_three_processes_tell_one_trace_of_a_first_share(set_scene: SetScene, moorage: Deployment) -> None:
    with traced(moorage) as collector:
        async with set_scene(["1x1x80GiB"]) as scene:
            await scene.create(share("traced", "0.5"))
            await scene.running(1)

            async def is_told() -> bool | None:
                told = {span.name for span in collector.spans}
                return {"admit", "pod", "attempt"} <= told or None

            await eventually(is_told, "the collector to be told", within_s=PATIENCE_S)
            uid = (await scene.pods())["traced"]["metadata"]["uid"]
            lines = [json.loads(line) for line in moorage.log(BINDER).splitlines() if line.startswith("{")]
    spans = collector.of("traced")
    assert_sound(spans)
    assert {span.service for span in spans} == {reading.ADMISSION, reading.SCHEDULER, reading.BINDER}
    assert names_of(spans, reading.ADMISSION) == ["admit"]
    assert the(spans, "pod").attributes["pod_uid"] == uid
    assert the(spans, "attempt").service == reading.BINDER
    assert {"reserve", "verify", "bind"} <= {s.name for s in spans if s.parent == the(spans, "attempt").span}
    if path := os.environ.get("MOORAGE_TRACE_PICTURE"):
        await anyio.Path(path).write_text(drawn(spans))
    bound = [line for line in lines if line.get("event") == "pod.bound" and line["pod"].endswith("/traced")]
    assert [line["trace_id"] for line in bound] == [spans[0].trace]
