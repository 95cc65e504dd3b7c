"""Settings of ``moorage admission``, by KAI's names where it has them (kai-contract 6.4)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from admission.adoption import ORIGINS
from admission.settings import Choices, Guard, HandOver, Settings
from runtime.settings import kinds
from runtime.settings.common import Component
from runtime.settings.declaration import Setting
from wire import names


class AdmissionOptions(Component, frozen=True, kw_only=True):
    """What an administrator may choose about the webhooks."""

    port: Annotated[int, Setting(help="port of the webhooks", kind=kinds.PORT)] = 9443
    host: Annotated[str, Setting(help="address that they listen on", kind=kinds.WORD)] = "0.0.0.0"  # noqa: S104 - a webhook is reached by the pod's address
    # Certificates come from one of two ways (docs/certificates.md).
    certificate: Annotated[
        Path | None, Setting(help="a file that somebody else renews, as cert-manager does", kind=kinds.PEM)
    ] = None
    key: Annotated[Path | None, Setting(help="its private key", kind=kinds.PEM)] = None
    self_made_certificates: Annotated[
        bool,
        Setting(
            help=f"instead of these files: make certificates, keep them in the Secret {names.CERTIFICATES_SECRET}, "
            "renew them, and write their CA into the webhook configurations",
            kind=kinds.SWITCH,
        ),
    ] = False
    certificate_name: Annotated[
        tuple[str, ...],
        Setting(
            help="DNS name or IP address by which the API server calls the webhooks",
            kind=kinds.WORD,
            many=True,
            default=f"moorage-admission.{names.SYSTEM_NAMESPACE}.svc",
        ),
    ] = ()
    certificate_lifetime: Annotated[
        float | None,
        Setting(
            help="of self-made certificates; a new one is made after two thirds of it",
            kind=kinds.seconds(60),
            default="8760h, a year",
        ),
    ] = None
    gpu_fraction_runtime_class_name: Annotated[
        str,
        Setting(help="runtime class of pods with shares that name none; empty: they get none", kind=kinds.OBJECT),
    ] = Settings().runtime_class
    hand_over: Annotated[
        HandOver,
        Setting(
            help="how containers learn their devices: from annotations, or as with KAI from ConfigMaps",
            kind=kinds.member(HandOver),
        ),
    ] = HandOver.ANNOTATIONS
    visible_devices_guard: Annotated[
        Guard,
        Setting(
            help=f"what becomes of {names.ENV_VISIBLE_DEVICES} of a container without a share, unless the namespace "
            f"has another value in its label {names.VISIBLE_DEVICES_GUARD}",
            kind=kinds.member(Guard),
        ),
    ] = Choices().guard
    gpu_resource: Annotated[
        tuple[str, ...],
        Setting(
            help="a resource by which NVIDIA's device plugin gives GPUs under another name than nvidia.com/gpu and "
            "nvidia.com/mig-*, such as nvidia.com/gpu.shared",
            kind=kinds.RESOURCE,
            many=True,
        ),
    ] = ()
    gpu_sharing_enabled: Annotated[
        bool, Setting(help="false: pods that ask for a share of a GPU are refused", kind=kinds.SWITCH)
    ] = True
    shares_by_claims: Annotated[
        bool,
        Setting(
            help=f"let pods with a share of one GPU request {names.GPU_SHARE_RESOURCE} too, so that nodes without a "
            "device plugin can give it by a ResourceClaim",
            kind=kinds.SWITCH,
        ),
    ] = False
    driver_memory_caps: Annotated[
        bool,
        Setting(
            help="cap GPU memory of shares by NVIDIA's driver; such pods go only to nodes that say memory-cap=driver",
            kind=kinds.SWITCH,
        ),
    ] = False
    workloads_are_grouped: Annotated[
        bool,
        Setting(
            help="`moorage workloads` runs beside it: new pods are given the name of their PodGroup, where that can be "
            "told from the pod",
            kind=kinds.SWITCH,
        ),
    ] = False
    dialects: Annotated[
        str,
        Setting(
            help="how requests in the words of other systems are read, as YAML or JSON (docs/dialects.md)",
            kind=kinds.FILE,
        ),
    ] = ""
    critical_namespace: Annotated[
        tuple[str, ...],
        Setting(
            help="a namespace whose pods may ask for GPUs with system-cluster-critical or system-node-critical",
            kind=kinds.WORD,
            many=True,
        ),
    ] = Settings().critical_namespaces
    adopt_from: Annotated[
        tuple[str, ...],
        Setting(
            help="a scheduler whose pods become Moorage's where they ask for GPUs and their namespace has the label "
            f"{names.ADOPT}=true",
            kind=kinds.WORD,
            many=True,
        ),
    ] = ORIGINS
