"""Admission webhooks, called as the API server calls them: AdmissionReview v1 in, AdmissionReview v1 out.

Mutating hooks run in the order in which they were added, each on what the one before it made. Validating ones run
later, on the object as it would be stored. The failure policy is Fail, but for hooks that are optional. A mutating hook
is asked a second time only where a fault says so (simulator/apiserver/faults.py).
"""

from __future__ import annotations

import base64
import random
import uuid
from typing import Any, Protocol

import anyio
import msgspec

from simulator.apiserver.calls import Refusal
from simulator.apiserver.faults import Faults, ReviewFault
from simulator.apiserver.patches import PatchFailed, json_patch
from simulator.apiserver.types import ResourceType

Object = dict[str, Any]


class Webhook(Protocol):
    """One webhook: which requests it sees, and what it says to them."""

    #: Its name, for messages (``pods.example.com``).
    name: str
    #: Mutating (its patch counts) or validating.
    mutating: bool
    #: ``pods``, or with a sub-resource ``pods/binding``, ``pods/status``.
    resource: str
    #: Of CREATE, UPDATE, DELETE.
    operations: tuple[str, ...]
    #: Whether a request goes on where it does not answer (failure policy Ignore).
    is_optional: bool

    def matches(self, obj: Object, namespace_labels: dict[str, str]) -> bool:
        """Apply the object and namespace selectors."""
        ...

    async def review(self, admission_review: Object) -> Object:
        """Answer an AdmissionReview."""
        ...


class Attributes(msgspec.Struct, frozen=True, kw_only=True):
    """What admission knows about a request besides the object."""

    kind: ResourceType
    operation: str
    subresource: str
    namespace: str
    name: str
    user: str
    groups: tuple[str, ...]
    old: Object | None
    namespace_labels: dict[str, str]


class Admission:
    """The registered webhooks."""

    def __init__(self, rng: random.Random, faults: Faults) -> None:
        self._rng = rng
        self._faults = faults
        self._hooks: list[Webhook] = []

    def add(self, hook: Webhook) -> None:
        """Register a webhook."""
        self._hooks.append(hook)

    def concerns(self, kind: ResourceType, subresource: str, operation: str) -> bool:
        """Say whether any hook sees such requests: the others need not wait."""
        resource = f"{kind.plural}/{subresource}" if subresource else kind.plural
        return any(hook.resource == resource and operation in hook.operations for hook in self._hooks)

    async def mutate(self, obj: Object, attributes: Attributes) -> Object:
        """Return the object as the mutating hooks leave it. Raises Refusal if one of them refuses."""
        again = []
        for hook in self._of(attributes, mutating=True):
            if hook.matches(obj, attributes.namespace_labels):
                fault = self._faults.of_review(hook.name)
                obj = await self._ask(hook, obj, attributes, fault)
                again += [hook] if fault.twice else []
        for hook in again:
            if hook.matches(obj, attributes.namespace_labels):
                obj = await self._ask(hook, obj, attributes, self._faults.of_review(hook.name))
        return obj

    async def validate(self, obj: Object, attributes: Attributes) -> None:
        """Ask the validating hooks. Raises Refusal if one of them refuses."""
        for hook in self._of(attributes, mutating=False):
            if hook.matches(obj, attributes.namespace_labels):
                await self._ask(hook, obj, attributes, self._faults.of_review(hook.name))

    def _of(self, attributes: Attributes, *, mutating: bool) -> list[Webhook]:
        """The hooks for such requests. Each looks at the object when its turn has come, as on a real server."""
        kind, sub = attributes.kind, attributes.subresource
        resource = f"{kind.plural}/{sub}" if sub else kind.plural
        return [
            hook
            for hook in self._hooks
            if hook.mutating is mutating and hook.resource == resource and attributes.operation in hook.operations
        ]

    async def _ask(self, hook: Webhook, obj: Object, attributes: Attributes, fault: ReviewFault) -> Object:
        review = self._review(obj, attributes)
        try:
            await _travel(fault)
            answer = await hook.review(review)
            response = answer["response"]
            if not response.get("allowed"):
                raise _denied(hook, response.get("status") or {})
            return _patched(obj, response) if hook.mutating else obj
        except (KeyError, TypeError, ValueError, PatchFailed) as error:
            if hook.is_optional:
                return obj
            why = f'Internal error occurred: failed calling webhook "{hook.name}": {error}'
            raise Refusal(500, "InternalError", why, details={"causes": [{"message": why}]}) from error

    def _review(self, obj: Object, attributes: Attributes) -> Object:
        kind = attributes.kind
        gvk = {"group": kind.group, "version": kind.version, "kind": _kind_of(kind, attributes.subresource)}
        gvr = {"group": kind.group, "version": kind.version, "resource": kind.plural}
        request: Object = {
            "uid": str(uuid.UUID(int=self._rng.getrandbits(128), version=4)),
            "kind": gvk,
            "resource": gvr,
            **({"subResource": attributes.subresource} if attributes.subresource else {}),
            "requestKind": gvk,
            "requestResource": gvr,
            "name": attributes.name,
            **({"namespace": attributes.namespace} if attributes.namespace else {}),
            "operation": attributes.operation,
            "userInfo": {"username": attributes.user, "groups": list(attributes.groups)},
            "object": None if attributes.operation == "DELETE" else obj,
            "oldObject": attributes.old,
            "dryRun": False,
            "options": None,
        }
        return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


async def _travel(fault: ReviewFault) -> None:
    """Wait as long as the question and its answer travel. Raises ValueError with what the server says of no answer."""
    if fault.down:
        raise ValueError("failed to call webhook: connect: connection refused")
    if fault.delay_s:
        await anyio.sleep(min(fault.delay_s, fault.timeout_s))
    if fault.delay_s >= fault.timeout_s:
        raise ValueError("failed to call webhook: context deadline exceeded")


def _kind_of(kind: ResourceType, subresource: str) -> str:
    return {"binding": "Binding", "eviction": "Eviction"}.get(subresource, kind.kind)


def _denied(hook: Webhook, status: Object) -> Refusal:
    code = status.get("code") or 403
    message = status.get("message") or "without explanation"
    text = f'admission webhook "{hook.name}" denied the request: {message}'
    if message == "without explanation":
        text = f'admission webhook "{hook.name}" denied the request without explanation'
    return Refusal(code, status.get("reason") or ("Forbidden" if code == 403 else ""), text)


def _patched(obj: Object, response: Object) -> Object:
    if not response.get("patch"):
        return obj
    if response.get("patchType") != "JSONPatch":
        raise ValueError(f"patchType must be JSONPatch, not {response.get('patchType')!r}")
    operations = msgspec.json.decode(base64.b64decode(response["patch"]))
    patched: Object = json_patch(obj, operations)
    return patched
