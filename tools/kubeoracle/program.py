"""The oracle: kube-scheduler's plug-ins as a program that reads snapshots and says what each plug-in answers.

It is a Go program (tools/controlplane/kubeoracle) of the module that the control plane is built from, so its plug-ins
are of the same version and its build shares the compiled packages of kube-scheduler. ``python -m
tools.kubeoracle.program`` builds it and prints its path.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from tools import controlplane, goprogram
from tools.goprogram import cache_root

SOURCE: Final = controlplane.MODULE / "kubeoracle"
_LABEL: Final = "oracle"
#: Part of the key: raise it when the way of building changes.
_RECIPE: Final = "1"


def ensure(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the oracle's path, building it if the cache has none. Raises Unavailable."""
    folder = cache_root(environ) / "kubeoracle" / key()
    return goprogram.ensure(folder / "kubeoracle", controlplane.MODULE, "./kubeoracle", ldflags="-s -w", label=_LABEL)


def key(source: Path = SOURCE) -> str:
    """Name the cache folder: the module, and the program's own text."""
    digest = hashlib.sha256(_RECIPE.encode())
    for path in sorted(source.glob("*.go")):
        digest.update(path.read_bytes())
    return goprogram.key(controlplane.MODULE, controlplane.version(), recipe=digest.hexdigest())


if __name__ == "__main__":
    sys.exit(goprogram.told(ensure))


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

    def __exit__(self, *_error: object) -> None:
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
