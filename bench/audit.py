"""Writes counted from the API server's audit log: who wrote what how often. A line of the log is one request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

#: Requests that can change something, when they are answered. Leases are in the log and counted apart.
POLICY: Final = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
  - level: Metadata
    verbs: [create, update, patch, delete, deletecollection]
  - level: None
"""
_ACCOUNT = "system:serviceaccount:"


class _User(msgspec.Struct, frozen=True):
    username: str = ""


class _Object(msgspec.Struct, frozen=True):
    resource: str = ""
    subresource: str = ""


class _Answer(msgspec.Struct, frozen=True):
    code: int = 0


class Write(msgspec.Struct, frozen=True, rename="camel"):
    """One request."""

    verb: str
    user: _User = _User()
    object_ref: _Object = _Object()
    response_status: _Answer = _Answer()

    @property
    def account(self) -> str:
        """``namespace:name`` of the service account; other users as they are."""
        return self.user.username.removeprefix(_ACCOUNT)

    @property
    def what(self) -> str:
        """``create pods/binding``."""
        resource = "/".join(part for part in (self.object_ref.resource, self.object_ref.subresource) if part)
        return f"{self.verb} {resource}"


_decode: Final = msgspec.json.Decoder(Write).decode


class Log:
    """An audit log from a place in it on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_up_to = path.stat().st_size if path.exists() else 0

    def writes(self) -> list[Write]:
        """What was added since it was opened or read last, whole lines only."""
        with self._path.open("rb") as file:
            file.seek(self._read_up_to)
            lines = file.read()
        whole = lines[: lines.rfind(b"\n") + 1]
        self._read_up_to += len(whole)
        return [_decode(line) for line in whole.splitlines()]


def tally(writes: Iterable[Write], accounts: Iterable[str]) -> dict[str, Counter[str]]:
    """Account -> kind of write -> how many, for the accounts that are asked for. Leases are left out.

    A write that was refused is counted as one, and under its code: ``patch pods (409)``.
    """
    counts: dict[str, Counter[str]] = {account: Counter() for account in accounts}
    for write in writes:
        if write.account in counts and write.object_ref.resource != "leases":
            code = write.response_status.code
            counts[write.account][write.what if code < 400 else f"{write.what} ({code})"] += 1
    return counts
