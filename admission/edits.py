"""What a translation changes in a new pod: resources that no node has, variables known already, and the record.

All on the raw pod, and the same again on a pod that has it already (docs/design/dialects.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from admission.containers import Raw, rewritten
from admission.handover import with_env_first
from gpu import record
from gpu.asked import needs_record
from gpu.request import ContainerRef
from gpu.translation import EnvEdit, ResourceEdit, Translation
from wire import names


def translated(pod: Raw, translation: Translation) -> Raw:
    """Return the pod with all that the translation says before anything is handed over."""
    resources: dict[str, list[ResourceEdit]] = {}
    variables: dict[str, list[EnvEdit]] = {}
    for edit in translation.edits:
        resources.setdefault(edit.container.key, []).append(edit)
    for variable in translation.env:
        variables.setdefault(variable.container.key, []).append(variable)

    def change(ref: ContainerRef, container: Raw) -> Raw:
        changed = _with_resources(container, resources.get(ref.key, ()))
        return _with_variables(changed, variables.get(ref.key, ()))

    return _recorded(rewritten(pod, change) if translation.edits or translation.env else pod, translation)


def _with_resources(container: Raw, edits: Sequence[ResourceEdit]) -> Raw:
    """Set or take out counts. Limits and requests of extended resources are equal, so both are written."""
    if not edits:
        return container
    #: The last edit of a resource counts.
    counts = {edit.resource: edit.count for edit in edits}
    said = {name: str(count) for name, count in counts.items() if count is not None}
    resources: dict[str, Any] = dict(container.get("resources") or {})
    for field in ("limits", "requests"):
        amounts = {name: amount for name, amount in (resources.pop(field, None) or {}).items() if name not in counts}
        if amounts := {**amounts, **said}:
            resources[field] = amounts
    return {**container, "resources": resources}


def _with_variables(container: Raw, edits: Sequence[EnvEdit]) -> Raw:
    """Set variables. A value of the user's own loses: what is set says what the container really gets (C1, H15)."""
    entries = [{"name": edit.name, "value": edit.value} for edit in edits]
    return with_env_first(container, entries) if entries else container


def _recorded(pod: Raw, translation: Translation) -> Raw:
    """Write the record where the pod itself does not tell, or replace the one that it brought along."""
    annotations = pod["metadata"].get("annotations") or {}
    if not needs_record(translation) and names.GPU_RECORD not in annotations:
        return pod
    annotations = {**annotations, names.GPU_RECORD: record.render(translation)}
    return {**pod, "metadata": {**pod["metadata"], "annotations": annotations}}
