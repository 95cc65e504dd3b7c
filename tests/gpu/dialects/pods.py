"""Pods of the translation table, in few words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from gpu.request import ContainerKind, ContainerRef
from gpu.translation import Refusal, Translation
from wire.core import Pod

Raw = dict[str, Any]

C0 = ContainerRef(ContainerKind.REGULAR, 0, "main")
C1 = ContainerRef(ContainerKind.REGULAR, 1, "side")
C2 = ContainerRef(ContainerKind.REGULAR, 2, "third")
I0 = ContainerRef(ContainerKind.INIT, 0, "load")


def container(name: str = "main", limits: Mapping[str, Any] | None = None, **more: Any) -> Raw:
    return {"name": name, "resources": {"limits": limits} if limits else {}, **more}


def pod(
    *containers: Raw,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    init: Sequence[Raw] = (),
    **spec: Any,
) -> Pod:
    """A pod of these containers; of one container ``main`` that asks for nothing where none is told."""
    return msgspec.convert(
        {
            "metadata": {"name": "p", "namespace": "team", "labels": labels, "annotations": annotations},
            "spec": {"containers": list(containers) or [container()], "initContainers": list(init), **spec},
        },
        Pod,
    )


def asking(*limits: Mapping[str, Any], init: Sequence[Mapping[str, Any]] = (), **more: Any) -> Pod:
    """A pod whose containers ``main``, ``side`` and ``third`` have these limits, and its init container those."""
    listed = [container(name, limit) for name, limit in zip(("main", "side", "third"), limits, strict=False)]
    return pod(*listed, init=[container("load", limit) for limit in init], **more)


def understood(translate: Callable[[], Translation | Refusal]) -> Translation | None:
    """Return what a pod is translated to, the same each time; None where it is refused with all that a refusal says."""
    answer = translate()
    assert translate() == answer
    if isinstance(answer, Translation):
        return answer
    assert answer.field
    assert answer.message
    assert answer.allowed
    return None
