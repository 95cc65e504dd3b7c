"""The ClusterPolicy of NVIDIA's GPU operator, as far as it says how containers are given GPUs (nvidia.com/v1)."""

from __future__ import annotations

from wire.core import ObjectMeta, WireStruct


class CdiSpec(WireStruct, frozen=True, gc=False):
    """``default`` counts before v25.10 of the operator, and is ignored from then on."""

    enabled: bool | None = None
    default: bool | None = None
    nri_plugin_enabled: bool | None = None


class ClusterPolicySpec(WireStruct, frozen=True, gc=False):
    """The components of the operator; the others are left out."""

    cdi: CdiSpec | None = None


class ClusterPolicy(WireStruct, frozen=True, gc=False):
    """What the operator has to set up in a cluster. There is one, or none without the operator."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ClusterPolicySpec | None = None
