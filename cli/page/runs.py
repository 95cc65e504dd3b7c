"""Recorded runs: what a page is made of, with its times, in a file; and a page made of that file again.

A line is an object as a watch brought it, or the name of one that is gone, as JSON; the first says what file this is.
What containers run and their environment is left out, since secrets are found there, and so is what kubectl keeps of
manifests.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeVar

import anyio
import anyio.lowlevel
import msgspec
from anyio.abc import TaskStatus
from typing_extensions import override

from cli.page.objects import Key, Objects, unapplied
from cli.page.values import EventLine
from cli.refusing import BadInput
from wire.core import Container, Node, Pod
from wire.crds.bindrequest import BindRequest
from wire.crds.podgroup import PodGroup

_T = TypeVar("_T")

FORM: Final = "moorage-run-1"
#: Lines that are taken in before other tasks get a turn.
_LINES_PER_TURN: Final = 64


class Line(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One thing that happened, ``at_ms`` after the beginning. ``is_in_step``: all before it is how it was found."""

    at_ms: int = 0
    form: str = ""
    is_in_step: bool = False
    node: Node | None = None
    pod: Pod | None = None
    request: BindRequest | None = None
    group: PodGroup | None = None
    event: EventLine | None = None
    gone_node: str = ""
    gone_pod: str = ""
    gone_request: Key | None = None
    gone_group: Key | None = None
    gone_event: str = ""


_decode: Final = msgspec.json.Decoder(Line).decode


class Recording(Objects):
    """Objects that write down what they are told. Raises BadInput for a file that can't be written."""

    def __init__(self, path: Path, on_change: Callable[[], None]) -> None:
        super().__init__(on_change)
        try:
            # Names of pods, and what was reported of them, are for whoever records.
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError as error:
            raise BadInput(f"--record {path}: {error.strerror}") from error
        self._began: float | None = None
        self._write(Line(form=FORM))

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

    def _now_ms(self) -> int:
        now = anyio.current_time()
        self._began = now if self._began is None else self._began
        return round((now - self._began) * 1000)

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


class Replay:
    """Plays a recorded run, ``speed`` times as fast. Raises BadInput for a file that is none."""

    def __init__(self, path: Path, objects: Objects, *, speed: float) -> None:
        self._path = path
        self._objects = objects
        self._speed = speed
        self._trouble = ""
        self.is_in_step = False
        try:
            with path.open("rb") as lines:
                first = _decode(next(lines, b"{}"))
        except (OSError, msgspec.DecodeError) as error:
            raise BadInput(f"--open {path}: {error}") from error
        if first.form != FORM:
            raise BadInput(f"--open {path}: not a recorded run; allowed: a file that moorage ui --record made")

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Play it to its end, and return; what was there at the end stays. Started when it is in step."""
        began = anyio.current_time()
        for number, line in enumerate(self._lines(), 1):
            if self.is_in_step:
                await anyio.sleep_until(began + line.at_ms / 1000 / self._speed)
            elif number % _LINES_PER_TURN == 0:
                await anyio.lowlevel.checkpoint()
            self._take(line)
            if line.is_in_step and not self.is_in_step:
                self.is_in_step = True
                began = anyio.current_time() - line.at_ms / 1000 / self._speed
                task_status.started()
        if not self.is_in_step:
            self.is_in_step = True
            task_status.started()

    def troubles(self) -> tuple[str, ...]:
        """What of the file can't be read."""
        return (self._trouble,) if self._trouble else ()

    def silent_s(self) -> int:
        """A file is never late."""
        return 0

    def _lines(self) -> Iterator[Line]:
        """Up to the end, or to the first line that can't be read: the last one may have been cut."""
        with self._path.open("rb") as lines:
            for number, text in enumerate(lines, 1):
                try:
                    yield _decode(text)
                except msgspec.DecodeError as error:
                    self._trouble = f"the recording from line {number} on: {error}"
                    return

    def _take(self, line: Line) -> None:
        objects = self._objects
        _if(line.node, objects.put_node)
        _if(line.pod, objects.put_pod)
        _if(line.request, objects.put_request)
        _if(line.group, objects.put_group)
        _if(line.event, objects.put_event)
        _if(line.gone_node, objects.drop_node)
        _if(line.gone_pod, objects.drop_pod)
        _if(line.gone_request, objects.drop_request)
        _if(line.gone_group, objects.drop_group)
        _if(line.gone_event, objects.drop_event)


def _if(there: _T | None, take: Callable[[_T], None]) -> None:
    if there:
        take(there)


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
