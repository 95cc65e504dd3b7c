"""The scheduler's cache: memory, decode rate, and how long it keeps the event loop to itself.

Lists and watches come over HTTP (loopback, no TLS) from bench/feed.py in another process; the cache is in a fresh
process of its own (bench/probe.py), with the client, the reflector and the ledger that the scheduler has.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from bench import feed
from bench.result import Figures
from bench.sizes import Sizes
from kube.client.resources import PODS
from kube.watch.watching import Upserted, WatchDecoder

_WITHIN_S = 600.0

NOTES = (
    "cache_mib: resident memory with everything in the cache, less that of the process before the lists.",
    "peak_mib: of the whole process, interpreter and libraries (start_mib) included, while it took the list.",
    "decode: one event after the other through the watch decoder, nothing else. events_per_s: the same events by HTTP "
    "through client, reflector and ledger, while the process that sends them shares the machine.",
    "pause: the longest time by which a task that wants to run every millisecond was late.",
)


def measure(sizes: Sizes) -> Figures:
    """Memory at full size; pauses and rates at the smaller one."""
    memory = _probe(nodes=sizes.cache_nodes, pods=sizes.cache_pods, events=0)
    pauses = _probe(nodes=sizes.cache_nodes // 10, pods=sizes.pause_pods, events=sizes.events)
    return Figures(
        sizes={
            "memory": {"pods": sizes.cache_pods, "nodes": sizes.cache_nodes},
            "pause": {"pods": sizes.pause_pods, "nodes": sizes.cache_nodes // 10, "events": sizes.events},
            "bytes_per_event": len(_lines(1)[0]),
        },
        notes=NOTES,
        figures={"memory": memory, "pause": pauses, "decode_per_s": _decoded_per_s(sizes.events)},
    )


def _probe(*, nodes: int, pods: int, events: int) -> dict[str, Any]:
    with _feed(nodes=nodes, pods=pods, events=events) as port:
        command = [sys.executable, "-m", "bench.probe", f"http://127.0.0.1:{port}", str(pods), str(events)]
        told = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=_WITHIN_S).stdout  # noqa: S603 - our own module
    figures: dict[str, Any] = msgspec.json.decode(told)
    return figures


@contextmanager
def _feed(*, nodes: int, pods: int, events: int) -> Iterator[int]:
    command = [sys.executable, "-m", "bench.feed", f"--nodes={nodes}", f"--pods={pods}", f"--events={events}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - our own module
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.kill()


def _decoded_per_s(events: int) -> int:
    decoder, lines = WatchDecoder(PODS), _lines(events)
    start = time.perf_counter()
    good = sum(isinstance(decoder.decode(line), Upserted) for line in lines)
    taken_s = time.perf_counter() - start
    if good != events:
        raise AssertionError(f"{good} of {events} events were decoded")
    return round(events / taken_s)


def _lines(events: int) -> list[bytes]:
    return [b'{"type":"MODIFIED","object":' + feed.pod(i, 100, version=i + 1) + b"}" for i in range(events)]
