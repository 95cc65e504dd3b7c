"""What a tenant is shown of its own shares, from inside its containers: share, cap and use. Pure.

It is asked as HTTP, so that any program can ask: ``curl --unix-socket /run/moorage/view/share.sock http://x/share``.
Nothing of another tenant is in an answer, and nothing that a tenant sends is in it either.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from nodeagent.core.caps import Tenancy
from nodeagent.core.measures import TenantMeasures
from nodeagent.core.samples import MIB

#: Of a question with its headers.
MOST_BYTES: Final = 2_048
_PATH: Final = "/share"
_REASONS: Final = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 431: "Too Large"}


@dataclass(frozen=True, slots=True)
class OwnShare:
    """One of a tenant's shares. ``measured``: None where its use is not known now. ``enforced``: by what its cap is."""

    tenancy: Tenancy
    measured: TenantMeasures | None = None
    enforced: str = ""


def refused(question: bytes) -> int | None:
    """Return why a question is not answered, as an HTTP status; None: it is asked well.

    ``question``: what was read up to the empty line, or MOST_BYTES without one.
    """
    if len(question) >= MOST_BYTES:
        return 431
    words = question.partition(b"\r\n")[0].split(b" ")
    if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
        return 400
    if words[0] != b"GET":
        return 405
    return None if words[1] == _PATH.encode() else 404


def answer(shares: Sequence[OwnShare]) -> bytes:
    """Return the whole response to a question about these shares."""
    return _response(200, {"shares": [_told(one) for one in shares]})


def refusal(status: int) -> bytes:
    """Return the whole response to a question that is not answered."""
    return _response(status, {"error": _REASONS[status].lower(), "allowed": f"GET {_PATH}"})


def _told(share: OwnShare) -> dict[str, Any]:
    tenancy, measured = share.tenancy, share.measured
    used_bytes = None if measured is None else measured.used_bytes
    return {
        "device": tenancy.device,
        "shareNano": tenancy.nano,
        "shareMiB": tenancy.asked_mib or None,
        "capMiB": tenancy.cap_mib or None,
        "enforced": share.enforced,
        "mode": tenancy.mode,
        # Rounded up: the least use is some.
        "usedMiB": None if used_bytes is None else -(-used_bytes // MIB),
        "smPercent": None if measured is None else measured.sm_percent,
        "processes": None if measured is None else measured.processes,
    }


def _response(status: int, said: dict[str, Any]) -> bytes:
    body = json.dumps(said, separators=(",", ":")).encode() + b"\n"
    head = f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Connection: close\r\n\r\n".encode() + body
