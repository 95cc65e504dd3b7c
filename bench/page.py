"""The page at a few and at many nodes: until the map is drawn, what an update costs, and memory, in a real browser.

Every second device is shared, by two pods and with a reservation and its book; every other one is handed out whole.
"""

from __future__ import annotations

import gzip
import random
import socket
import time
from collections.abc import Iterator
from typing import Any

import anyio
import msgspec

from bench.processes import memory_mib
from bench.result import Figures, Sizes
from gpu import book as books
from gpu.book import Book, Entry
from kube.client.api import Api
from kube.client.clock import SystemClock
from kube.client.resources import NODES, PODS
from kube.client.retry import Retry
from simulator.apiserver.server import MemoryApiServer
from tools.browser.chromium import Chromium, Tab
from ui.page.auth import Open
from ui.page.server import Answering, Door
from ui.page.values import State
from ui.page.watch import Following, Publishing
from wire import names

CARDS = 8
_MIB = 81920
_HALF = 500_000_000
_QUIET_S = 3.0
_BETWEEN_S = 0.5
_TEAMS = 6
_NAMESPACE = "team-{}"

NOTES = (
    "Headless Chromium without a GPU, window of 1280 by 800, on the machine that also serves the page. The page is "
    "asked for again each time, nothing is cached.",
    "map_drawn_ms: from the request until the screen shows every device; first_paint_ms: the bar at the top.",
    "update_ms: processor time of the browser's main thread for a change of one node: script, style, layout, paint.",
    "The heap is measured after a collection; resident memory is that of the tab's process.",
    "whole_ms, node_ms: what the server takes to draw all of it, and one node that changed. state_kib: sent, packed.",
)

#: Notes when the map was there: when its state was put in, and the screen has been painted after it.
_WATCH = """
new MutationObserver((_, me) => {
  if (!document.documentElement.dataset.shown) return;
  me.disconnect();
  requestAnimationFrame(() => requestAnimationFrame(() => { window.drawnAt = performance.now(); }));
}).observe(document, { subtree: true, attributes: true, attributeFilter: ["data-shown"] });
window.draws = 0;
new MutationObserver((changes) => { window.draws += changes.length; })
  .observe(document, { subtree: true, attributes: true, attributeFilter: ["data-shown"] });
"""
_PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime"


def measure(sizes: Sizes) -> Figures:
    """Each size on its own API server, in memory, with a browser of its own."""
    figures = {f"{nodes} nodes of {CARDS} GPUs": anyio.run(_measure, nodes, sizes) for nodes in sizes.page_nodes}
    return Figures(sizes={"rounds": sizes.page_rounds, "updates": sizes.page_updates}, notes=NOTES, figures=figures)


async def _measure(nodes: int, sizes: Sizes) -> dict[str, Any]:
    server = MemoryApiServer(clock=SystemClock(), rng=random.Random(1), auto_namespaces=True)
    api = Api(server.transport("bench"), retry=Retry(random.Random(2)))
    publishing = Publishing("bench")
    transport = server.transport("page")
    following = Following(Api(transport, retry=Retry(random.Random(3))), publishing.objects, rng=random.Random(4))
    answering = Answering(publishing, following, Open(), source="bench", hosts=None)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        door = Door(listener)
        async with anyio.create_task_group() as tasks:
            await tasks.start(server.run)
            pods = 0
            for number in range(nodes):
                await api.create(NODES, node_of(number))
                for namespace, pod in pods_of(number):
                    await api.create(PODS, pod, namespace=namespace)
                    pods += 1
            await tasks.start(following.run)
            told = _drawing(publishing)
            await tasks.start(door.let_in, answering)
            tasks.start_soon(publishing.run)
            seen = await _look(door.address, api, sizes)
            tasks.cancel_scope.cancel()
    return {"pods": pods, **seen, **told}


def _drawing(publishing: Publishing) -> dict[str, float]:
    """The server's part: all of it, then one node."""
    began = time.perf_counter()
    for _ in publishing.frames.draw():
        pass
    whole_s = time.perf_counter() - began
    taken = []
    for name in list(publishing.objects.nodes)[:50]:
        publishing.objects.marks.nodes[name] = None
        began = time.perf_counter()
        for _ in publishing.frames.draw():
            pass
        taken.append(time.perf_counter() - began)
    state = msgspec.json.encode(State(id="bench-1", source="bench", changes=publishing.frames.whole()))
    return {
        "whole_ms": round(whole_s * 1000, 1),
        "node_ms": round(sorted(taken)[len(taken) // 2] * 1000, 2),
        "state_kib": round(len(gzip.compress(state, 5)) / 1024, 1),
    }


async def _look(address: str, api: Api, sizes: Sizes) -> dict[str, Any]:
    """The browser's part."""
    async with Chromium() as browser:
        paints, draws = [], []
        for _ in range(sizes.page_rounds):
            async with browser.tab() as tab:
                await _open(tab, address)
                paints.append(await tab.evaluate(_PAINT))
                draws.append(await tab.evaluate("window.drawnAt"))
        async with browser.tab() as tab:
            await _open(tab, address)
            await anyio.sleep(_QUIET_S)
            update = await _updates(tab, api, sizes.page_updates)
            await tab.call("HeapProfiler.collectGarbage")
            told = await _metrics(tab)
            elements = await tab.evaluate("document.querySelectorAll('*').length")
            resident = await _resident_mib(browser)
    return {
        "first_paint_ms": round(sorted(paints)[len(paints) // 2]),
        "map_drawn_ms": round(sorted(draws)[len(draws) // 2]),
        **update,
        "elements": elements,
        "heap_mib": round(told["JSHeapUsedSize"] / 2**20, 1),
        "resident_mib": resident,
    }


async def _open(tab: Tab, address: str) -> None:
    await tab.call("Page.addScriptToEvaluateOnNewDocument", source=_WATCH)
    # Time of the thread, not of the clock: others use the machine, too.
    await tab.call("Performance.enable", timeDomain="threadTicks")
    await tab.open(address)
    await tab.until("window.drawnAt && document.documentElement.dataset.connection === 'live'")


async def _updates(tab: Tab, api: Api, count: int) -> dict[str, float]:
    """Milliseconds of the main thread for a change of one node, over those for as long without one."""
    before = await _metrics(tab)
    await anyio.sleep(count * _BETWEEN_S)
    idle = await _metrics(tab)
    drawn = int(await tab.evaluate("window.draws"))
    for number in range(count):
        await api.patch(NODES, "node-0", {"spec": {"unschedulable": number % 2 == 0}})
        await anyio.sleep(_BETWEEN_S)
    after = await _metrics(tab)
    drawn = int(await tab.evaluate("window.draws")) - drawn

    def each_ms(kind: str) -> float:
        return round((after[kind] - 2 * idle[kind] + before[kind]) * 1000 / drawn, 1)

    parts = {"update_ms": "TaskDuration", "script_ms": "ScriptDuration", "style_ms": "RecalcStyleDuration"}
    return {name: each_ms(kind) for name, kind in {**parts, "layout_ms": "LayoutDuration"}.items()}


async def _metrics(tab: Tab) -> dict[str, float]:
    told = (await tab.call("Performance.getMetrics"))["metrics"]
    return {one["name"]: one["value"] for one in told}


async def _resident_mib(browser: Chromium) -> float:
    """Of the largest process that shows a tab."""
    processes = (await browser.call("SystemInfo.getProcessInfo"))["processInfo"]
    return max(memory_mib(one["id"])["resident_mib"] for one in processes if one["type"] == "renderer")


def node_of(number: int) -> dict[str, Any]:
    """A node of eight cards."""
    amounts = {"cpu": "128", "memory": "1Ti", "pods": "256", names.GPU_RESOURCE: str(CARDS)}
    ready = [{"type": "Ready", "status": "True"}]
    status = {"capacity": amounts, "allocatable": amounts, "conditions": ready}
    return {"metadata": {"name": f"node-{number}", "labels": {names.NODE_GPU_MEMORY: str(_MIB)}}, "status": status}


def pods_of(number: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Those of a node, with their namespaces."""
    for card in range(CARDS):
        if card % 2:
            limits = {names.GPU_RESOURCE: "1"}
            yield _NAMESPACE.format((number + card) % _TEAMS), _pod(f"whole-{number}-{card}", number, limits=limits)
            continue
        group = f"g-{number}-{card}"
        entry = Entry(_HALF, "attempt", "1", 0, "ns/p")
        held = {
            names.RESERVE_FOR_GPU_INDEX: f"GPU-{number}-{card}",
            names.DEVICE_INDEX: str(card),
            names.DEVICE_MEMORY: str(_MIB),
            names.TENANTS: books.render(Book({f"uid-{number}-{card}": entry})),
        }
        yield (
            names.RESERVATION_NAMESPACE,
            _pod(
                f"gpu-reservation-{number}-{card}",
                number,
                limits={names.GPU_RESOURCE: "1"},
                labels={names.APP_LABEL: names.RESERVATION_APP, names.GPU_GROUP_LABEL: group},
                annotations=held,
                scheduler="default-scheduler",
            ),
        )
        for half in "ab":
            yield (
                _NAMESPACE.format((number + card + (half == "b")) % _TEAMS),
                _pod(
                    f"half-{number}-{card}-{half}",
                    number,
                    labels={names.GPU_GROUP_LABEL: group, names.QUEUE_LABEL: f"queue-{card % 3}"},
                    annotations={names.GPU_FRACTION: "0.5"},
                ),
            )


def _pod(
    name: str,
    number: int,
    *,
    limits: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    scheduler: str = names.SCHEDULER_NAME,
) -> dict[str, Any]:
    container = {"name": "main", "image": "train:1", "resources": {"limits": limits or {}, "requests": limits or {}}}
    return {
        "metadata": {"name": name, "labels": labels or {}, "annotations": annotations or {}},
        "spec": {"schedulerName": scheduler, "nodeName": f"node-{number}", "containers": [container]},
        "status": {"phase": names.RUNNING},
    }
