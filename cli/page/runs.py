"""Writes down what a page is made of, with its times, for a page that is made of it again (cli/page/winding.py).

What containers run and their environment is left out, since secrets are found there, and so is what kubectl keeps of
manifests.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import anyio
import msgspec
from typing_extensions import override

from cli.page.lines import FORM, Line
from cli.page.objects import Key, Objects, unapplied
from cli.page.values import EventLine
from cli.refusing import BadInput
from kube.client.clock import Clock, SystemClock
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
    """Without what may be secret."""
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
