"""A recorded run: what it takes to open it, to go to any moment of it, and to play it; processor time of the server.

The cluster is that of the page's part, full: 16 pods a node, on shared and on whole GPUs. Pods end, others come in
their place, and nodes report.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import msgspec

from bench import procfs
from bench.page import CARDS, node_of, pods_of
from bench.result import Figures
from bench.sizes import Sizes
from cli.page.lines import FORM, Line
from cli.page.winding import Recorded
from wire import names
from wire.core import Node, Pod

_SPEEDS = (1, 10, 60)
_EVERY_MS = 250
_MOST_BETWEEN_MS = 200
#: Of what happens, nodes that report.
_REPORTS = 0.3

NOTES = (
    "A full cluster: 16 pods a node, on shared and on whole GPUs. Pods end, others come in their place, nodes report; "
    "between two moments far from each other every node is another one.",
    "Processor time of the process that serves the page, in one thread: what others do on the machine is not in it. "
    "What is sent is encoded in it, and not packed.",
    "open_s: until the run is read, once. jump_ms: to a moment anywhere in the run, from one anywhere (the median); "
    "jump_most_ms: the longest; back_ms: to 10 s before the moment that was shown before the last one.",
    "step_ms: a quarter of a second of playing at that speed, as pages ask for it.",
    "mib: resident memory, before and after the run is read, and with all four places drawn that it keeps.",
)


def measure(sizes: Sizes) -> Figures:
    """Make a run in a file, and go about in it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.jsonl"
        with path.open("wb") as file:
            for line in _run(sizes.winding_nodes, sizes.winding_lines):
                file.write(msgspec.json.encode(line) + b"\n")
        figures = anyio.run(_measure, path, sizes.winding_jumps)
        told = {
            "nodes": sizes.winding_nodes,
            "gpus per node": CARDS,
            "lines": sizes.winding_lines,
            "file mib": round(path.stat().st_size / 2**20, 1),
            "jumps": sizes.winding_jumps,
        }
    return Figures(sizes=told, notes=NOTES, figures={"recorded run": figures})


async def _measure(path: Path, jumps: int) -> dict[str, Any]:
    rng = random.Random(1)
    memory = [procfs.memory_mib()["resident_mib"]]
    began = time.process_time()
    run = Recorded(path)
    await run.read()
    opened_s = time.process_time() - began
    memory.append(procfs.memory_mib()["resident_mib"])
    taken = [await _go(run, rng.randint(run.from_ms, run.to_ms)) for _ in range(jumps)]
    memory.append(procfs.memory_mib()["resident_mib"])
    back = [await _back(run, rng.randint(run.from_ms, run.to_ms)) for _ in range(jumps // 3)]
    steps = {f"step_ms at {speed} x": await _played(run, speed * _EVERY_MS, jumps) for speed in _SPEEDS}
    run.close()
    return {
        "open_s": round(opened_s, 2),
        "jump_ms": _ms(taken),
        "jump_most_ms": round(max(taken) * 1000, 1),
        "back_ms": _ms(back),
        **steps,
        **dict(zip(("mib before", "mib opened", "mib drawn"), memory, strict=True)),
    }


async def _back(run: Recorded, at_ms: int) -> float:
    """Go there, far away, and return to ten seconds before."""
    await _go(run, at_ms)
    await _go(run, run.to_ms - at_ms, at_ms)
    return await _go(run, at_ms - 10_000, run.to_ms - at_ms)


async def _played(run: Recorded, step_ms: int, steps: int) -> float:
    at_ms = (run.from_ms + run.to_ms) // 2
    await _go(run, at_ms)
    return _ms([await _go(run, at_ms + (step + 1) * step_ms, at_ms + step * step_ms) for step in range(steps)])


async def _go(run: Recorded, at_ms: int, known_ms: int | None = None) -> float:
    began = time.process_time()
    async with run.at(at_ms, known_ms) as moment:
        msgspec.json.encode(moment.frames.whole() if moment.changes is None else moment.changes)
    return time.process_time() - began


def _ms(taken: list[float]) -> float:
    return round(sorted(taken)[len(taken) // 2] * 1000, 1)


def _run(nodes: int, lines: int) -> Iterator[Line]:
    """All nodes and pods, then what happens to them, up to so many lines."""
    rng = random.Random(2)
    there = [_pod(namespace, pod) for number in range(nodes) for namespace, pod in pods_of(number)]
    reports = [msgspec.convert(node_of(number), Node) for number in range(nodes)]
    yield Line(form=FORM, began_ms=1_767_225_600_000)
    yield from (Line(node=node) for node in reports)
    yield from (Line(pod=pod) for pod in there)
    yield Line(is_in_step=True)
    told, at_ms = 2 + nodes + len(there), 0
    while told < lines:
        at_ms += rng.randrange(_MOST_BETWEEN_MS)
        if rng.random() < _REPORTS:
            yield Line(at_ms=at_ms, node=rng.choice(reports))
            told += 1
            continue
        place = rng.randrange(len(there))
        gone = there[place]
        if gone.metadata.namespace == names.RESERVATION_NAMESPACE:
            continue
        there[place] = _again(gone, told)
        yield Line(at_ms=at_ms, gone_pod=gone.metadata.uid)
        yield Line(at_ms=at_ms, pod=_waiting(there[place]))
        yield Line(at_ms=at_ms, pod=there[place])
        told += 3


def _pod(namespace: str, raw: dict[str, Any]) -> Pod:
    meta = {**raw["metadata"], "namespace": namespace, "uid": f"uid-{raw['metadata']['name']}"}
    return msgspec.convert({**raw, "metadata": meta}, Pod)


def _again(pod: Pod, number: int) -> Pod:
    name = f"{pod.metadata.name.partition('.')[0]}.{number}"
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, name=name, uid=f"uid-{name}"))


def _waiting(pod: Pod) -> Pod:
    spec = msgspec.structs.replace(pod.spec, node_name="")
    return msgspec.structs.replace(pod, spec=spec, status=msgspec.structs.replace(pod.status, phase=names.PENDING))
