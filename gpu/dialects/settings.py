"""What an administrator may choose where the translation table leaves a choice; each default is the safe one.

The ids are rows of docs/reference/dialects.md.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

_Settings = TypeVar("_Settings", bound=msgspec.Struct)


class ClearmlSettings(msgspec.Struct, frozen=True, kw_only=True):
    """ClearML CFGI. ``legacy_replicas``: an unlabelled count of GPUs is a count of such parts (C9), 0 for GPUs."""

    legacy_replicas: int = 0
    #: Shares that are not in the list are rounded up to the next one (C6) instead of refused.
    round_up: bool = False
    #: A sixteenth is charged as an eighth, as the origin's eight slices would (C2).
    sixteenth_as_eighth: bool = False
    #: The tag of ClearML's images is a request for memory (C13).
    by_image_tag: bool = False
    #: MIG slices are shares with the memory in their name, for nodes without MIG (C12).
    mig_as_memory: bool = False


class AliyunSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Aliyun gpushare. ``unit_mib``: what one ``gpu-mem`` is (A1, A12): 1024 or 1."""

    unit_mib: int = 1024
    #: ``gpu-count`` beside ``gpu-mem`` means that many devices with a part of the memory each (A10).
    count_divides_memory: bool = False


class MetagpuSettings(msgspec.Struct, frozen=True, kw_only=True):
    """cnvrg MetaGPU. ``units``: how many make a device (M8)."""

    units: int = 100
    resource: str = "cnvrg.io/metagpu"
    #: A share may be cut over several devices (M5).
    allow_span: bool = False


class ReplicasSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Replicas as the NVIDIA and iktos plugins make them. ``entries``: iktos' notation, ``gpu:sharedgpu:4`` (I1-I9)."""

    entries: tuple[str, ...] = ()
    #: Replicas of ``nvidia.com/gpu`` and ``nvidia.com/gpu.shared`` by NVIDIA's time-slicing or MPS; 1 for none (N3-N5).
    time_slices: int = 1
    mps_replicas: int = 1
    #: More than one replica asked is refused (N4). None: as at the origin, for MPS but not for time-slicing (N5).
    fail_above_one: bool | None = None
    #: The fullest shared device first, instead of the emptiest (NVIDIA's policy ``packed``, N3).
    packed: bool = False
    #: All devices asked have to be distinct, or the pod waits (I3).
    distinct_only: bool = False
    #: One memory request is spread over all devices, as at the origin (I5).
    shred_memory: bool = False


class HamiSettings(msgspec.Struct, frozen=True, kw_only=True):
    """HAMi. ``memory_factor``: MiB in one unit of ``gpumem``."""

    memory_factor: int = 1
    default_mem_mib: int = 0
    default_cores_percent: int = 0
    default_gpus: int = 1
    #: All counts of ``nvidia.com/gpu`` are HAMi's, also those without memory or cores beside them (T3).
    owns_plain_counts: bool = False


class VolcanoSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Volcano vGPU. ``memory_factor``: MiB in one unit of ``vgpu-memory``."""

    memory_factor: int = 1


class NodeReplicas(msgspec.Struct, frozen=True, kw_only=True):
    """Of ReplicasSettings what nodes may have of their own. None: as the cluster."""

    entries: tuple[str, ...] | None = None
    time_slices: int | None = None
    mps_replicas: int | None = None


class NodeMetagpu(msgspec.Struct, frozen=True, kw_only=True):
    """Of MetagpuSettings the same."""

    units: int | None = None


class NodeAliyun(msgspec.Struct, frozen=True, kw_only=True):
    """Of AliyunSettings the same."""

    unit_mib: int | None = None


class NodeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What is different on nodes that have all of ``labels`` (pairs, sorted)."""

    labels: tuple[tuple[str, str], ...] = ()
    replicas: NodeReplicas = NodeReplicas()
    metagpu: NodeMetagpu = NodeMetagpu()
    aliyun: NodeAliyun = NodeAliyun()

    def over(self, settings: DialectSettings) -> DialectSettings:
        """The settings as they are on these nodes."""
        return msgspec.structs.replace(
            settings,
            replicas=_said(settings.replicas, self.replicas),
            metagpu=_said(settings.metagpu, self.metagpu),
            aliyun=_said(settings.aliyun, self.aliyun),
            nodes=(),
        )


def _said(base: _Settings, over: msgspec.Struct) -> _Settings:
    values = {name: getattr(over, name) for name in over.__struct_fields__}
    return msgspec.structs.replace(base, **{name: value for name, value in values.items() if value is not None})


class DialectSettings(msgspec.Struct, frozen=True, kw_only=True):
    """All of them. ``strict``: what the origin would silently weaken is refused instead of noted (X6)."""

    clearml: ClearmlSettings = ClearmlSettings()
    aliyun: AliyunSettings = AliyunSettings()
    metagpu: MetagpuSettings = MetagpuSettings()
    replicas: ReplicasSettings = ReplicasSettings()
    hami: HamiSettings = HamiSettings()
    volcano: VolcanoSettings = VolcanoSettings()
    strict: bool = False
    #: Containers read their memory caps for NVIDIA's driver (gpu/limits.py).
    driver_memory_caps: bool = False
    #: Shares at all (KAI's setting).
    sharing: bool = True
    #: Nodes that differ; the first that matches a node holds there.
    nodes: tuple[NodeSettings, ...] = ()
