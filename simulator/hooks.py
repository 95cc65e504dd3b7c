"""The real admission code as webhooks of the in-memory API server (kube/memory/admission.py)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from admission.review import PodAdmission
from wire import names

Review = dict[str, Any]

#: Where the webhooks are not asked: Moorage's own namespace and the cluster's (kai-contract 1.3).
_LEFT_OUT = frozenset({"kube-system", names.SYSTEM_NAMESPACE, names.RESERVATION_NAMESPACE})


@dataclass(slots=True)
class Hook:
    """One webhook for pods of our scheduler."""

    name: str
    mutating: bool
    resource: str
    operations: tuple[str, ...]
    answer: Callable[[Review], Review]

    def matches(self, obj: dict[str, Any], namespace_labels: dict[str, str]) -> bool:
        """Apply the match conditions of the real configuration."""
        is_ours = (obj.get("spec") or {}).get("schedulerName") == names.SCHEDULER_NAME
        return is_ours and namespace_labels.get("kubernetes.io/metadata.name") not in _LEFT_OUT

    async def review(self, admission_review: Review) -> Review:
        """Answer a review."""
        return self.answer(admission_review)


def hooks(admission: PodAdmission) -> tuple[Hook, Hook]:
    """Return the mutating and the validating webhook."""
    return (
        Hook("mutate.moorage.dev", True, "pods", ("CREATE",), admission.mutating),
        Hook("validate.moorage.dev", False, "pods", ("CREATE", "UPDATE"), admission.validating),
    )
