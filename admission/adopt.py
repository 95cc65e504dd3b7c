"""Which pods of other schedulers become ours where a namespace says so (label ``moorage.dev/adopt: "true"``).

Teams that come from another system keep their manifests, in which its scheduler's name stands, or none. What asks for
GPUs in any words is taken; also what asks wrongly, since the refusal that follows says what is wrong and a pod that
waits for resources that no node has says nothing. What asks for none stays where it is, as does a pod that brings its
node: no scheduler decides about that one.

This is a webhook of its own that has to come first: the API server looks at the conditions of a webhook when its turn
has come, and not again (docs/design/api-server-facts.md).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import msgspec

from admission.containers import Raw
from gpu.dialects import combine
from gpu.dialects.settings import DialectSettings
from gpu.refusal import Refusal
from wire.core import Pod

_DEFAULT: Final = "default-scheduler"
#: The cluster's own scheduler, and those of the systems whose words are understood.
ORIGINS: Final = (_DEFAULT, "hami-scheduler", "koord-scheduler", "volcano")


def adopted(pod: Raw, *, dialects: DialectSettings, origins: Collection[str], scheduler_name: str) -> Raw:
    """Return the pod as one of ours if it is to be, else as it is. ``pod`` is known to decode as wire.core.Pod."""
    spec = pod["spec"]
    if (spec.get("schedulerName") or _DEFAULT) not in origins or spec.get("nodeName"):
        return pod
    found = combine.translate(msgspec.convert(pod, Pod), dialects)
    if not isinstance(found, Refusal) and not found.request.containers:
        return pod
    return {**pod, "spec": {**spec, "schedulerName": scheduler_name}}
