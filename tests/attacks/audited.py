"""What a component asked of the API server, by the server's own audit log: what no answer of ours can hide."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import msgspec

from tools.cluster.plane import ControlPlane
from tools.rights import ACCOUNTS
from wire import names

_GROUPS: Final = {"group": names.SCHEDULING_GROUP, "resources": ["podgroups"]}
#: For ``ControlPlane(audit_policy=...)``: all requests of the components' accounts, of PodGroups with what they write.
AUDITED: Final = json.dumps(
    {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            {"level": "Request", "users": list(ACCOUNTS), "verbs": ["create", "patch"], "resources": [_GROUPS]},
            {"level": "Metadata", "users": list(ACCOUNTS)},
            {"level": "None"},
        ],
    }
)


class Request(msgspec.Struct, frozen=True, order=True):
    """A request by its verb, path, and the names of its parameters."""

    verb: str
    path: str
    parameters: tuple[str, ...] = ()


class _User(msgspec.Struct, frozen=True):
    username: str


class _Event(msgspec.Struct, frozen=True, rename="camel"):
    verb: str
    user: _User
    request_uri: str = msgspec.field(name="requestURI")
    request_object: dict[str, Any] | None = None


_decode: Final = msgspec.json.Decoder(_Event).decode


def requests(plane: ControlPlane, component: str) -> list[Request]:
    """All requests of a component so far. A last line that is not whole is left out."""
    return [_request(event) for event in _events(plane, component)]


def groups_written(plane: ControlPlane, component: str, namespace: str) -> list[dict[str, Any]]:
    """All PodGroups, and changes of them, that a component has sent for a namespace, also where they are gone."""
    of_namespace = (each for each in _events(plane, component) if f"/namespaces/{namespace}/" in each.request_uri)
    return [each.request_object for each in of_namespace if each.request_object is not None]


def _events(plane: ControlPlane, component: str) -> Iterator[_Event]:
    account = f"system:serviceaccount:{names.SYSTEM_NAMESPACE}:moorage-{component}"
    with plane.audit_log_path.open("rb") as lines:
        events = (_decode(line) for line in lines if line.endswith(b"\n"))
        yield from (each for each in events if each.user.username == account)


def _request(event: _Event) -> Request:
    target = urlsplit(event.request_uri)
    return Request(event.verb, target.path, tuple(sorted(parse_qs(target.query, keep_blank_values=True))))
