"""Records a simulated run: what an API server in memory has, and every change of it, for ``moorage ui --open``.

The recorder is no client of the server and waits for nothing: each write calls it, and it reads the clock and writes
a line. So a run is the same with it and without, to the last write.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cli.page.following import sinks
from cli.page.runs import Recording
from cli.printable import line
from kube.client.clock import Clock
from kube.client.decoding import Codec, Undecoded
from kube.memory.server import MemoryApiServer
from kube.memory.types import ResourceType


class Recorder:
    """Listens to a server, until it is ended. Without a recording it does nothing."""

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
