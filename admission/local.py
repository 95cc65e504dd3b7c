"""The webhooks without HTTP, for the in-memory API server and the simulator: registered and called in the process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from admission.manifests import RULES_OF_MUTATION, RULES_OF_VALIDATION, WEBHOOK
from admission.review import PodAdmission, Review


@dataclass(slots=True, frozen=True)
class LocalWebhook:
    """One webhook on one resource, as kube.memory.admission.Webhook has it."""

    name: str
    mutating: bool
    resource: str
    operations: tuple[str, ...]
    judge: Callable[[Review], Review]
    scheduler_name: str

    def matches(self, obj: dict[str, Any], namespace_labels: dict[str, str]) -> bool:
        """Whether the pod is of our scheduler: the match condition of the webhook configurations."""
        del namespace_labels
        return bool((obj.get("spec") or {}).get("schedulerName") == self.scheduler_name)

    async def review(self, admission_review: Review) -> Review:
        """Answer an AdmissionReview. Raises MalformedReview."""
        return self.judge(admission_review)


def local_webhooks(admission: PodAdmission) -> list[LocalWebhook]:
    """Return the webhooks that the configurations of admission/manifests.py would register, mutating ones first."""
    kinds = ((True, admission.mutating, RULES_OF_MUTATION), (False, admission.validating, RULES_OF_VALIDATION))
    return [
        LocalWebhook(WEBHOOK, mutating, resource, operations, judge, admission.settings.scheduler_name)
        for mutating, judge, rules in kinds
        for resource, operations in rules.items()
    ]
