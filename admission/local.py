"""The webhooks without HTTP, for the in-memory API server and the simulator: registered and called in the process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from admission.manifests import ADOPTION, RULES_OF_ADOPTION, RULES_OF_MUTATION, RULES_OF_VALIDATION, WEBHOOK
from admission.review import PodAdmission, Review
from wire import names


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
        """Apply the match condition, and for adoption the namespace selector, of the webhook configurations."""
        is_ours = bool((obj.get("spec") or {}).get("schedulerName") == self.scheduler_name)
        return not is_ours and namespace_labels.get(names.ADOPT) == "true" if self.name == ADOPTION else is_ours

    async def review(self, admission_review: Review) -> Review:
        """Answer an AdmissionReview. Raises MalformedReview."""
        return self.judge(admission_review)


def local_webhooks(admission: PodAdmission) -> list[LocalWebhook]:
    """Return the webhooks that the configurations of admission/manifests.py would register, mutating ones first."""
    kinds = (
        (ADOPTION, True, admission.adopting, RULES_OF_ADOPTION),
        (WEBHOOK, True, admission.mutating, RULES_OF_MUTATION),
        (WEBHOOK, False, admission.validating, RULES_OF_VALIDATION),
    )
    return [
        LocalWebhook(name, mutating, resource, operations, judge, admission.settings.scheduler_name)
        for name, mutating, judge, rules in kinds
        for resource, operations in rules.items()
    ]
