"""Which rights were used on a control plane, read from its audit log when it ends.

Where the environment names a folder (``MOORAGE_RIGHTS``; ``make test-all`` does), every control plane of a test run
audits the requests of the components' service accounts, and leaves a file there: one line
for each right that was used. What
the API server itself says of a request, by which binding it was allowed, is taken for it. ``python -m tools.rights``
compares the files with the roles.

Only requests of our own programs count, which tests that act by hand under a component's identity are not: these have
another User-Agent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from wire import names

#: Names the folder into which control planes write what was used on them.
FOLDER: Final = "MOORAGE_RIGHTS"

ACCOUNT: Final = "system:serviceaccount:"
COMPONENTS: Final = ("scheduler", "binder", "workloads", "admission", "simulator", "crds", "page")
ACCOUNTS: Final = (
    *(f"{ACCOUNT}{names.SYSTEM_NAMESPACE}:moorage-{component}" for component in COMPONENTS),
    f"{ACCOUNT}{names.RESERVATION_NAMESPACE}:{names.RESERVATION_SERVICE_ACCOUNT}",
    f"{ACCOUNT}{names.NODE_NAMESPACE}:{names.NODE_AGENT_SERVICE_ACCOUNT}",
)

#: A watch is logged when it begins: it may never end.
POLICY: Final = json.dumps(
    {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [{"level": "Metadata", "users": list(ACCOUNTS)}, {"level": "None"}],
    }
)

_PROGRAMS: Final = "moorage"
#: Objects that roles name one by one; other names are many, and in no role.
_NAMED: Final = frozenset(
    {
        "configmaps",
        "leases",
        "serviceaccounts",
        "secrets",
        "customresourcedefinitions",
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
    }
)
_REASON: Final = re.compile(r'allowed by (ClusterRoleBinding|RoleBinding) "([^"]+)"')


class Use(msgspec.Struct, frozen=True, order=True, kw_only=True):
    """A right that was used. ``binding`` is as the API server names it, and "" if the request was refused."""

    account: str
    binding: str
    verb: str
    group: str
    #: With its sub-resource: ``pods/status``.
    resource: str
    #: "" for a request across namespaces, and for what is in none.
    namespace: str
    name: str


class _User(msgspec.Struct, frozen=True):
    username: str = ""


class _Object(msgspec.Struct, frozen=True, rename="camel"):
    resource: str = ""
    subresource: str = ""
    api_group: str = ""
    namespace: str = ""
    name: str = ""


class _Request(msgspec.Struct, frozen=True, rename="camel"):
    verb: str
    user: _User = _User()
    user_agent: str = ""
    object_ref: _Object | None = None
    annotations: dict[str, str] = {}


_decode: Final = msgspec.json.Decoder(_Request).decode
_encode: Final = msgspec.json.Encoder().encode
_decode_use: Final = msgspec.json.Decoder(Use).decode


def keep(logs: Iterable[Path], folder: Path, *, name: str) -> None:
    """Write what these audit logs say was used into the folder, in a file of that name."""
    used = sorted({use for log in logs for use in uses(log)})
    if used:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.jsonl").write_bytes(b"".join(_encode(use) + b"\n" for use in used))


def kept(folder: Path) -> set[Use]:
    """Read what all control planes have left in a folder."""
    return {_decode_use(line) for file in folder.glob("*.jsonl") for line in file.read_bytes().splitlines()}


def uses(log: Path) -> Iterator[Use]:
    """Read one audit log. A last line that is not whole (the server was killed) is left out."""
    with log.open("rb") as lines:
        for line in lines:
            if line.endswith(b"\n") and (use := _use(_decode(line))) is not None:
                yield use


def _use(request: _Request) -> Use | None:
    target = request.object_ref
    if target is None or request.user.username not in ACCOUNTS or not request.user_agent.startswith(_PROGRAMS):
        return None
    binding = _REASON.search(request.annotations.get("authorization.k8s.io/reason", ""))
    return Use(
        account=request.user.username.removeprefix(ACCOUNT),
        binding=" ".join(binding.groups()) if binding else "",
        verb=request.verb,
        group=target.api_group,
        resource="/".join(part for part in (target.resource, target.subresource) if part),
        namespace=target.namespace,
        name=target.name if target.resource in _NAMED else "",
    )
