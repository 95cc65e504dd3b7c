"""Asking the oracle: snapshots in, what kube-scheduler's plug-ins say of each out."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

#: A snapshot, as JSON has it.
Question = Mapping[str, Any]


class Reason(msgspec.Struct, frozen=True, rename="camel"):
    """What the first plug-in that is against a node says. ``unresolvable``: taking pods away can't help."""

    plugin: str
    reasons: tuple[str, ...] | None = None
    unresolvable: bool = False


class Answer(msgspec.Struct, frozen=True, rename="camel"):
    """Every node is in one of ``feasible`` and ``why``, unless ``pre`` says something about all of them."""

    feasible: tuple[str, ...] | None
    why: dict[str, Reason] | None
    pre: Reason | None = None
    scores: dict[str, dict[str, int]] = {}
    error: str = ""


class OracleFailed(Exception):
    """Raised when the oracle can't answer: it ended, or a snapshot is not one that Kubernetes could have."""


class Oracle:
    """The program at work. It answers one line with one line."""

    def __init__(self, program: Path) -> None:
        self._process = subprocess.Popen(
            [program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )

    def __enter__(self) -> Oracle:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the program."""
        self._process.kill()
        self._process.communicate()

    def ask(self, questions: Iterable[Question]) -> Iterator[Answer]:
        """Ask at once, and read the answers as they are taken. A pipe has to hold the answers. Raises OracleFailed."""
        asked = list(questions)
        if self._process.stdin is None or self._process.stdout is None:
            raise OracleFailed("the oracle has no pipes")
        self._process.stdin.write(b"".join(msgspec.json.encode(question) + b"\n" for question in asked) + b"\n")
        self._process.stdin.flush()
        out = self._process.stdout
        return (self._read(out.readline()) for _ in asked)

    def _read(self, line: bytes) -> Answer:
        if not line:
            raise OracleFailed(f"the oracle ended with {self._process.wait()}")
        answer = msgspec.json.decode(line, type=Answer)
        if answer.error:
            raise OracleFailed(answer.error)
        return answer
