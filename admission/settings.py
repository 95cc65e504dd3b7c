"""What an operator may choose about admission."""

from __future__ import annotations

import enum

import msgspec

from admission.adoption import ORIGINS
from admission.raw_pod import Bounds
from gpu.dialects.settings import DialectSettings
from wire import names


class HandOver(enum.Enum):
    """How a container with a share learns its devices (docs/design/protocol.md, Hand-over to the container)."""

    #: Env reads annotations that the Binding writes: no further object.
    ANNOTATIONS = "annotations"
    #: Env reads ConfigMaps that the binder writes: KAI's exact way (kai-contract 1.3, 1.5).
    CONFIG_MAPS = "configMaps"


class Guard(enum.Enum):
    """What happens to NVIDIA_VISIBLE_DEVICES in containers to which no shared device was given."""

    #: Nothing: what image and spec say is what the container runtime does.
    OFF = "off"
    #: A container without GPU gets ``void``; what a container sets itself is taken out.
    INJECT = "inject"
    #: A container without GPU gets ``void``; a pod that sets anything but ``void`` or ``none`` itself is refused, and
    #: one that could set it unseen. Holds for pods of other schedulers as well (admission/policies.py).
    REJECT = "reject"


class Choices(msgspec.Struct, frozen=True, kw_only=True):
    """What a namespace may choose for its pods. The defaults are those of a cluster that says nothing."""

    guard: Guard = Guard.INJECT
    #: How the dialects are read. ``sharing``: whether shares are served at all; if not, pods that ask for one are
    #: refused (kai-contract 1.4, message 1).
    dialects: DialectSettings = DialectSettings()


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the webhooks. ``choices`` hold for namespaces that say nothing themselves."""

    scheduler_name: str = names.SCHEDULER_NAME
    #: Schedulers whose pods become ours in namespaces that say so.
    origins: tuple[str, ...] = ORIGINS
    choices: Choices = Choices()
    hand_over: HandOver = HandOver.ANNOTATIONS
    #: RuntimeClass for pods with shares that name none; "" leaves them as they are.
    runtime_class: str = "nvidia"
    #: Namespaces whose GPU pods may have a system priority class, and come before everybody's.
    critical_namespaces: tuple[str, ...] = ("kube-system",)
    #: Resources of NVIDIA's device plugin that have other names than its own: what it was told to rename them to.
    gpu_resources: tuple[str, ...] = ()
    #: Containers with a share request the extended resource by which a ResourceClaim may give it.
    shares_by_claims: bool = False
    #: ``moorage workloads`` makes the PodGroups of workloads: new pods are told theirs.
    are_grouped: bool = False
    #: What a pod of ours may have at most, looked at before it is read.
    bounds: Bounds = Bounds()
