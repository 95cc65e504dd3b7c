"""Rows about what of KAI still runs, and about what would go with its release."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cli.checks.reader import Raw
from cli.migration.found import Found
from cli.migration.rows import Code, Row, row
from wire import names

#: KAI's Deployments (kai-contract 6.1); a shard's scheduler has the shard's name behind it.
_DEPLOYMENTS: Final = frozenset(
    {
        "kai-operator",
        "binder",
        "admission",
        "pod-grouper",
        "podgroup-controller",
        "queue-controller",
        "node-scale-adjuster",
    }
)
_SHARDS: Final = "kai-scheduler-"
#: Its webhook configurations, and how those begin whose names have a version (2.1, 2.2, errata 6).
_WEBHOOKS: Final = frozenset({"mutating-kai-admission", "validating-kai-admission"})
_WEBHOOK_PREFIXES: Final = ("kai-queue-validation-", "kai-podgroup-validation-")
_RELEASE: Final = "meta.helm.sh/release-name"
OURS: Final = "moorage"


def is_kais_webhook(configuration: Raw) -> bool:
    """Whether a registration is KAI's: by its name, or by the Service that it asks."""
    name: str = configuration["metadata"]["name"]
    if name in _WEBHOOKS or name.startswith(_WEBHOOK_PREFIXES):
        return True
    if name.startswith(OURS):
        return False
    clients = ((hook.get("clientConfig") or {}).get("service") or {} for hook in configuration.get("webhooks") or ())
    return any(
        service.get("namespace") == names.SYSTEM_NAMESPACE and not str(service.get("name", "")).startswith(OURS)
        for service in clients
    )


def is_lenient(configuration: Raw) -> bool:
    """Whether none of its webhooks refuses anything when it can't be asked. Without a policy it is Fail."""
    return all(hook.get("failurePolicy") == "Ignore" for hook in configuration.get("webhooks") or ())


def running_rows(found: Found) -> Iterator[Row]:
    """What has to be stopped, in the order in which to do it."""
    for deployment in sorted(found.deployments, key=lambda each: each["metadata"]["name"] != "kai-operator"):
        replicas = (deployment.get("spec") or {}).get("replicas", 1)
        name = deployment["metadata"]["name"]
        if (name in _DEPLOYMENTS or name.startswith(_SHARDS)) and replicas:
            yield row(Code.DEPLOYMENT_AT_WORK, f"Deployment {names.SYSTEM_NAMESPACE}/{name}", replicas=replicas)
    for what in found.at_work:
        yield row(Code.KAI_AT_WORK, what)
    for what in found.elsewhere:
        yield row(Code.KAI_ELSEWHERE, what)
    for webhook in found.webhooks:
        yield row(Code.WEBHOOK_LENIENT if webhook in found.lenient_webhooks else Code.WEBHOOK, webhook)
    release = (found.reservation_namespace.get("metadata") or {}).get("annotations", {}).get(_RELEASE, "")
    if release and release != OURS:
        yield row(Code.OWNED_NAMESPACE, f"Namespace {names.RESERVATION_NAMESPACE}", release=release)
