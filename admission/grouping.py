"""The PodGroup that a new pod will have, named on it where that can be told from the pod (docs/grouping.md).

``moorage workloads`` makes the PodGroup when it sees the pod, and has one write less for each pod then. A pod without
an owner is never given the annotation: KAI's pod-grouper would leave it alone for ever (kai-contract, erratum 10).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from admission.containers import Raw
from wire import gangs, names


def grouped(pod: Raw) -> Raw:
    """Return the pod with the name of its PodGroup; as it is where that can't be told, or somebody has said another."""
    meta: Mapping[str, Any] = pod["metadata"]
    annotations = meta.get("annotations") or {}
    if names.POD_GROUP_NAME in annotations or annotations.get(names.SKIP_POD_GROUPER) == "true":
        return pod
    owners, labels = meta.get("ownerReferences") or (), meta.get("labels") or {}
    name = gangs.told_group(owners, labels, annotations, pod.get("spec") or {})
    if not name:
        return pod
    return {**pod, "metadata": {**meta, "annotations": {**annotations, names.POD_GROUP_NAME: name}}}
