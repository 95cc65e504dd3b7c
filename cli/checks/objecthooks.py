"""The webhooks for Queues and PodGroups: registered as this version wants them. Without one objects go unchecked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from admission.manifests import POD_GROUPS, QUEUES, ServiceEndpoint, queue_manifest
from cli.checks.finding import Finding, Level
from cli.checks.reader import Raw
from cli.checks.trustedca import of_ca
from kube.client.clock import Clock

_CHECK: Final = "webhooks"
_APPLY: Final = "register the webhooks of this version (admission/manifests.py)"
_COMPARED: Final = ("failurePolicy", "matchConditions", "objectSelector")
_CALLED: Final = {QUEUES: "Queues", POD_GROUPS: "PodGroups"}


def of_objects(configurations: Iterable[Raw], clock: Clock) -> list[Finding]:
    """Judge what validating configurations say of both webhooks."""
    found = {hook["name"]: hook for one in configurations for hook in one.get("webhooks") or ()}
    ours = {hook["name"]: hook for hook in queue_manifest(ServiceEndpoint(), ca=b"")["webhooks"]}
    return [each for name, hook in ours.items() for each in _judged(name, found.get(name), hook, clock)]


def _judged(name: str, hook: Raw | None, ours: Raw, clock: Clock) -> list[Finding]:
    kind = _CALLED[name]
    if hook is None:
        said = f"no validatingwebhookconfigurations has {name}: {kind} are stored unchecked"
        return [Finding(Level.WARNING, _CHECK, said, _APPLY)]
    # The API server stores an absent selector as an empty one.
    differing = [key for key in _COMPARED if (hook.get(key) or None) != (ours.get(key) or None)]
    if missing := [f"{operation} {plural}" for plural, operation in sorted(_asked(ours) - _asked(hook))]:
        differing.append(f"rules: not asked about {', '.join(missing)}")
    if differing:
        said = f"{name} differs from this version's in {'; '.join(differing)}: {kind} may be stored unchecked"
        return [Finding(Level.WARNING, _CHECK, said, _APPLY)]
    return of_ca(name, hook, clock) or [Finding(Level.OK, _CHECK, f"{name} is asked about {kind}")]


def _asked(hook: Raw) -> set[tuple[str, str]]:
    """Plural and operation of each rule."""
    rules = hook.get("rules") or ()
    return {(plural, each) for rule in rules for plural in rule["resources"] for each in rule["operations"]}
