"""ServiceAccounts that pods name: the API server refuses a pod whose account is missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from simulator.seeding import named
from wire import names

#: The account that each namespace has.
_DEFAULT: Final = "default"


def missing(pods: Iterable[tuple[str, Mapping[str, Any]]], present: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the accounts (namespace, name) that pods name and the manifests lack, each once, in order of the pods.

    ``pods``: namespace and object. Accounts of Moorage's own installation are there.
    """
    known = {*present, (names.RESERVATION_NAMESPACE, names.RESERVATION_SERVICE_ACCOUNT)}
    wanted = dict.fromkeys((namespace, account_of(pod)) for namespace, pod in pods)
    return [each for each in wanted if each[1] not in {"", _DEFAULT} and each not in known]


def account_of(pod: Mapping[str, Any]) -> str:
    """Return the account that a pod names, by the current field or the old one; "" for none."""
    spec = pod.get("spec") or {}
    name = spec.get("serviceAccountName") or spec.get("serviceAccount") or ""
    return name if isinstance(name, str) else ""


def account(name: str) -> dict[str, Any]:
    """Return a ServiceAccount."""
    return {"apiVersion": "v1", "kind": "ServiceAccount", **named(name)}
