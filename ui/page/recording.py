"""Records a page, or a simulated run with every change of its API server in memory, for ``moorage ui --open``.

A page is made of the record again, with its times (ui/page/timeline.py).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import msgspec
from typing_extensions import override

from kube.client.clock import Clock, SystemClock
from kube.client.decoding import Codec, Undecoded
from runtime.text import BadInput, line
from simulator.apiserver.server import MemoryApiServer
from simulator.apiserver.types import ResourceType
from ui.page.index import FORM, Line
from ui.page.objects import Key, Objects, unapplied
from ui.page.values import EventLine
from ui.page.watch import sinks
from wire.core import Container, Node, Pod
from wire.crds.bindrequest import BindRequest
from wire.crds.podgroup import PodGroup
from wire.crds.queue import Queue


class Recording(Objects):
    """Objects that write down what they are told, on the event loop. Raises BadInput for a file that can't be written.

    ``clock``: the wall clock of what is recorded, which ages in it are told by; None: today's.
    """

    def __init__(self, path: Path, on_change: Callable[[], None], *, clock: Clock | None = None) -> None:
        super().__init__(on_change)
        try:
            # Names of pods, and what was reported of them, are for the user who records.
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError as error:
            raise BadInput(f"--record {path}: {error.strerror}") from error
        self._began = anyio.current_time()
        self._write(Line(form=FORM, began_ms=(clock or SystemClock()).now_ns() // 1_000_000))

    def close(self) -> None:
        """Nothing more is written."""
        os.close(self._file)

    def note_in_step(self) -> None:
        """All is there that was there when the recording began."""
        self._write(Line(at_ms=self._now_ms(), is_in_step=True))

    @override
    def put_node(self, node: Node) -> None:
        super().put_node(node)
        self._write(Line(at_ms=self._now_ms(), node=unapplied(node)))

    @override
    def drop_node(self, name: str) -> None:
        super().drop_node(name)
        self._write(Line(at_ms=self._now_ms(), gone_node=name))

    @override
    def put_pod(self, pod: Pod) -> None:
        super().put_pod(pod)
        self._write(Line(at_ms=self._now_ms(), pod=_bare(pod)))

    @override
    def drop_pod(self, uid: str) -> None:
        super().drop_pod(uid)
        self._write(Line(at_ms=self._now_ms(), gone_pod=uid))

    @override
    def put_request(self, request: BindRequest) -> None:
        super().put_request(request)
        self._write(Line(at_ms=self._now_ms(), request=unapplied(request)))

    @override
    def drop_request(self, key: Key) -> None:
        super().drop_request(key)
        self._write(Line(at_ms=self._now_ms(), gone_request=key))

    @override
    def put_group(self, group: PodGroup) -> None:
        super().put_group(group)
        self._write(Line(at_ms=self._now_ms(), group=unapplied(group)))

    @override
    def drop_group(self, key: Key) -> None:
        super().drop_group(key)
        self._write(Line(at_ms=self._now_ms(), gone_group=key))

    @override
    def put_event(self, event: EventLine) -> None:
        super().put_event(event)
        self._write(Line(at_ms=self._now_ms(), event=event))

    @override
    def drop_event(self, key: str) -> None:
        super().drop_event(key)
        self._write(Line(at_ms=self._now_ms(), gone_event=key))

    @override
    def put_queue(self, queue: Queue) -> None:
        is_news = self.queues.get(queue.metadata.name) != queue
        super().put_queue(queue)
        if is_news:
            self._write(Line(at_ms=self._now_ms(), written_queue=queue))

    @override
    def drop_queue(self, name: str) -> None:
        super().drop_queue(name)
        self._write(Line(at_ms=self._now_ms(), gone_queue=name))

    def _now_ms(self) -> int:
        return round((anyio.current_time() - self._began) * 1000)

    def _write(self, line: Line) -> None:
        """Write a line whole. Where that can't be the run ends with the line before, and the page goes on."""
        if self.trouble:
            return
        text = memoryview(msgspec.json.encode(line) + b"\n")
        try:
            while text:
                text = text[os.write(self._file, text) :]
        except OSError as error:
            self.trouble = f"the recording has ended: {error.strerror}"


def _bare(pod: Pod) -> Pod:
    """Without what may be secret: what containers run and their environment, and what kubectl keeps of manifests."""
    spec = msgspec.structs.replace(
        pod.spec,
        containers=[_bare_container(one) for one in pod.spec.containers],
        init_containers=[_bare_container(one) for one in pod.spec.init_containers or ()] or None,
        ephemeral_containers=None,
        volumes=None,
    )
    return msgspec.structs.replace(unapplied(pod), spec=spec)


def _bare_container(container: Container) -> Container:
    """Of the environment there stays what names a field of the pod: so admission tells containers their devices."""
    env = [one for one in container.env or () if one.value_from is not None and one.value_from.field_ref is not None]
    return msgspec.structs.replace(container, env=env or None, env_from=None, command=None, args=None)


class Recorder:
    """Listens to a server, until it is ended. Without a recording it does nothing.

    It is no client of the server and waits for nothing: each write calls it, and it reads the clock and writes a line.
    So a run is the same with it and without, to the last write.
    """

    def __init__(self, recording: Recording | None = None) -> None:
        self._recording = recording
        taken = sinks(recording) if recording else ()
        self._sinks = {(kind.group, kind.version, kind.plural): (Codec(kind), sink) for kind, sink in taken}

    def take(self, kind: ResourceType, raw: bytes, is_gone: bool) -> None:
        """Take an object as it is now, or as it was at its end."""
        if kind.root not in self._sinks:
            return
        codec, sink = self._sinks[kind.root]
        obj = codec.one(raw)
        if isinstance(obj, Undecoded):
            return  # nobody who reads it by a watch sees it either
        if is_gone:
            sink.delete(obj)
        else:
            sink.upsert(obj)

    def found(self) -> None:
        """All before this is how the run found its cluster."""
        if self._recording:
            self._recording.note_in_step()

    def end(self) -> None:
        """Write nothing more, and say so where it could not be written to here."""
        self._sinks = {}
        recording, self._recording = self._recording, None
        if recording:
            recording.close()
        if recording and recording.trouble:
            sys.stderr.write(f"moorage: {line(recording.trouble)}\n")


@contextmanager
def recorded(path: str | None, server: MemoryApiServer, clock: Clock) -> Iterator[Recorder]:
    """Record a server, if a file is named, by the clock of its world. Raises BadInput for one that can't be written."""
    recorder = Recorder(Recording(Path(path), lambda: None, clock=clock) if path else None)
    try:
        if path:
            server.listen(recorder.take)
        yield recorder
    finally:
        recorder.end()
