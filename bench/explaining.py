"""``python -m bench.explaining``: what ``explain pod`` costs that reads the cluster itself. Nothing here is a test.

Full nodes of 8 GPUs, pods that wait in 100 queues, from 100 templates, each with a token's volume as the API server
writes it. CPU time of the process, least of all rounds; the ways of reading take turns in one process:

``alone``     each pod is read by itself
``list``      pods of equal content are read once (core/convert/pod_lists.py)
``start``     the scheduler's first list of pods, read and taken, by either way of reading
``cluster``   the command reads lists of a cluster that are in memory, without a network
``answer``    it explains one pod, with the changes that would help
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Final

import anyio
import msgspec

from kube.client.api import Api
from kube.client.listing import PAGE_SIZE
from kube.client.retry import Retry
from kube.client.transport import OBJECT_BYTES, Response
from scheduler.core.cluster import Cluster
from scheduler.core.convert.nodes import node_record
from scheduler.core.model.settings import Settings
from scheduler.watch.cache import Cache
from scheduler.watch.sinks import NodeSink, PodSink
from tests.scheduler.core.objects import node, pod, queue
from ui.explain import explanation
from ui.queues import reader
from ui.queues.count import Known
from ui.queues.pools import About
from wire import names
from wire.core import Node, Pod, Volume

_TEMPLATES: Final = 100
_GPUS: Final = 8
_WALL_S: Final = 1_767_225_700
_ASKED: Final = About(kind="pod", name="w5", namespace="ns")


def nodes(count: int) -> list[Node]:
    """Nodes that will be full."""
    return [node(f"n{number:04}", _GPUS, mem_mib=81_920) for number in range(count)]


def pods(count: int, waiting: int) -> list[Pod]:
    """Pods that fill ``count`` nodes, and ``waiting`` pods that wait."""
    rng = random.Random(1)
    shapes = [(rng.choice((1, 2, 4, 8)), str(rng.choice((1, 4, 8)))) for _ in range(_TEMPLATES)]
    made = [
        _of_template(pod(f"r{number}", gpus=1, cpu="8", bound_to=f"n{number // _GPUS:04}", labels=_labels(number)))
        for number in range(count * _GPUS)
    ]
    for number in range(waiting):
        gpus, cpu = shapes[number % _TEMPLATES]
        minute, second = divmod(number, 60)
        created = f"2026-01-01T{minute // 60:02}:{minute % 60:02}:{second:02}Z"
        made.append(_of_template(pod(f"w{number}", gpus=gpus, cpu=cpu, labels=_labels(number), created=created)))
    return made


def _labels(number: int) -> dict[str, str]:
    return {names.QUEUE_LABEL: f"t{number % _TEMPLATES}", "app": f"job-{number % _TEMPLATES}"}


def _of_template(made: Pod) -> Pod:
    token = Volume(name=f"kube-api-access-{made.metadata.name}")
    return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, volumes=[token]))


class _Lists:
    """A transport that answers lists from memory."""

    def __init__(self, listed: Mapping[str, Sequence[msgspec.Struct]]) -> None:
        self._pages = {plural: list(_pages(items)) for plural, items in listed.items()}

    async def request(
        self, method: str, path: str, *, query: Mapping[str, str], body: bytes | None = None,
        content_type: str = "", timeout_s: float, most_bytes: int = OBJECT_BYTES
    ) -> Response:  # fmt: skip
        """Answer with a page."""
        plural = path.rpartition("/")[2]
        if "configmaps" in path:
            return Response(404, {}, b'{"kind":"Status","status":"Failure","reason":"NotFound","code":404}')
        pages = self._pages.get(plural) or list(_pages(()))
        return Response(200, {}, pages[int(query.get("continue") or 0)])

    def stream(self, *_: Any, **__: Any) -> AbstractAsyncContextManager[tuple[Response, Any]]:
        """Nobody watches."""
        raise NotImplementedError


def _pages(items: Sequence[msgspec.Struct]) -> Sequence[bytes]:
    pages = []
    for at in range(0, max(1, len(items)), PAGE_SIZE):
        token = {"continue": str(at // PAGE_SIZE + 1)} if at + PAGE_SIZE < len(items) else {}
        page = {"metadata": {"resourceVersion": "1", **token}, "items": items[at : at + PAGE_SIZE]}
        pages.append(msgspec.json.encode(page))
    return pages


def _start(listed: Sequence[Pod], of: Sequence[Node], *, is_alone: bool) -> None:
    """Take a first list as the scheduler does."""

    async def take() -> None:
        cache = Cache(Cluster(Settings()))
        sink = PodSink(cache)
        await NodeSink(cache).replace([node_record(each) for each in of])
        keep: Callable[[Pod], Any] = cache.read_pod if is_alone else sink.keep
        await sink.replace([keep(each) for each in listed])

    anyio.run(take)


def _cpu_s(work: Callable[[], Any]) -> float:
    gc.collect()
    began = time.process_time()
    work()
    return time.process_time() - began


def figures(count: int, waiting: int, rounds: int) -> dict[str, object]:
    """Measure."""
    of, listed = nodes(count), pods(count, waiting)
    queues = [queue("org", gpu=(-1, 1, -1)), *(queue(f"t{n}", "org", gpu=(8, 1, -1)) for n in range(_TEMPLATES))]
    api = Api(_Lists({"nodes": of, "pods": listed, "queues": queues}), retry=Retry(random.Random(1)))
    known: list[Known] = []

    def read() -> None:
        known[:] = [anyio.run(partial(reader.read, api, wall_s=_WALL_S, about=_ASKED))]

    def answer() -> None:
        subject = explanation.subject(known[0], _ASKED.kind, _ASKED.namespace, _ASKED.name)
        explanation.explained(known[0], subject, [], _WALL_S)

    def alone() -> None:
        cluster = Cluster(Settings(preemption=True))
        list(map(cluster.read_pod, listed))

    def as_list() -> None:
        list(map(Cluster(Settings(preemption=True)).list_reader(), listed))

    ways: dict[str, Callable[[], None]] = {
        "alone": alone,
        "list": as_list,
        "start_alone": partial(_start, listed, of, is_alone=True),
        "start": partial(_start, listed, of, is_alone=False),
        "cluster": read,
        "answer": answer,
    }
    taken = [{name: _cpu_s(work) for name, work in ways.items()} for _ in range(rounds)]
    least = {f"{name}_s": round(min(each[name] for each in taken), 3) for name in ways}
    return {"bench": "explaining", "nodes": count, "pods": len(listed), "waiting": waiting, **least}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--waiting", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    told = parser.parse_args(arguments)
    print(json.dumps(figures(told.nodes, told.waiting, told.rounds)))


if __name__ == "__main__":
    main()
