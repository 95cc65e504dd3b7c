"""The real admission code as webhooks of the in-memory API server (kube/memory/admission.py)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from admission.manifests import ADOPTION, EXEMPT
from admission.objects.review import ObjectAdmission
from admission.review import PodAdmission
from wire import names

Review = dict[str, Any]

#: Where the webhooks are not asked: Moorage's own namespace and the cluster's (kai-contract 1.3).
_LEFT_OUT = frozenset({"kube-system", names.SYSTEM_NAMESPACE, names.RESERVATION_NAMESPACE})


@dataclass(slots=True)
class Hook:
    """One webhook: for pods of our scheduler, or (ADOPTION) for others where their namespace adopts them."""

    name: str
    mutating: bool
    resource: str
    operations: tuple[str, ...]
    answer: Callable[[Review], Review]
    is_optional: bool = False

    def matches(self, obj: dict[str, Any], namespace_labels: dict[str, str]) -> bool:
        """Apply the selectors and match conditions of the real configurations."""
        if namespace_labels.get("kubernetes.io/metadata.name") in _LEFT_OUT:
            return False
        is_ours = bool((obj.get("spec") or {}).get("schedulerName") == names.SCHEDULER_NAME)
        return not is_ours and namespace_labels.get(names.ADOPT) == "true" if self.name == ADOPTION else is_ours

    async def review(self, admission_review: Review) -> Review:
        """Answer a review."""
        return self.answer(admission_review)


@dataclass(slots=True)
class ObjectHook:
    """A webhook of Queues or PodGroups. While it does not answer, objects are stored unchecked."""

    name: str
    resource: str
    operations: tuple[str, ...]
    prepare: Callable[[], Awaitable[Callable[[Review], Review]]]
    mutating: bool = False
    is_optional: bool = True

    def matches(self, obj: dict[str, Any], namespace_labels: dict[str, str]) -> bool:
        """Apply the selectors; whether the spec changes is seen in the review."""
        return namespace_labels.get("kubernetes.io/metadata.name") not in EXEMPT

    async def review(self, admission_review: Review) -> Review:
        """Answer a review; a write that leaves the spec as it is needs nobody's."""
        request = admission_review["request"]
        old, new = request["oldObject"], request["object"]
        if old is not None and new is not None and old.get("spec") == new.get("spec"):
            return {"response": {"uid": request["uid"], "allowed": True}}
        judge = await self.prepare()
        return judge(admission_review)


def object_hooks(admission: ObjectAdmission) -> tuple[ObjectHook, ...]:
    """Return the webhooks of Queues and PodGroups."""

    async def of_group() -> Callable[[Review], Review]:
        return admission.of_group

    return (
        ObjectHook("queues.moorage.dev", "queues", ("CREATE", "UPDATE", "DELETE"), admission.knowing_queues),
        ObjectHook("podgroups.moorage.dev", "podgroups", ("CREATE", "UPDATE"), of_group),
    )


def hooks(admission: PodAdmission) -> tuple[Hook, ...]:
    """Return the webhooks in the order in which they are asked: adoption, mutation, validation."""
    return (
        Hook(ADOPTION, True, "pods", ("CREATE",), admission.adopting),
        Hook("mutate.moorage.dev", True, "pods", ("CREATE",), admission.mutating),
        Hook("validate.moorage.dev", False, "pods", ("CREATE", "UPDATE"), admission.validating),
    )
