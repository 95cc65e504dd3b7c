"""Settings of ``moorage admission``, by KAI's names where it has them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from admission.settings import ORIGINS, Choices, Guard, HandOver, Settings
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
        Path | None, Setting(help="certificate file that is renewed outside (cert-manager)", kind=kinds.PEM)
    ] = None
    key: Annotated[Path | None, Setting(help="its private key", kind=kinds.PEM)] = None
    self_made_certificates: Annotated[
        bool,
        Setting(
            help="make and renew certificates (docs/certificates.md)",
            kind=kinds.SWITCH,
        ),
    ] = False
    certificate_name: Annotated[
        tuple[str, ...],
        Setting(
            help="DNS name or IP address of the webhooks",
            kind=kinds.WORD,
            many=True,
            default=f"moorage-admission.{names.SYSTEM_NAMESPACE}.svc",
        ),
    ] = ()
    certificate_lifetime: Annotated[
        float | None,
        Setting(
            help="lifetime of self-made certificates",
            kind=kinds.seconds(60),
            default="8760h, a year",
        ),
    ] = None
    gpu_fraction_runtime_class_name: Annotated[
        str,
        Setting(help="runtime class of pods with shares; empty: none", kind=kinds.OBJECT),
    ] = Settings().runtime_class
    hand_over: Annotated[
        HandOver,
        Setting(
            help="where containers read their devices; KAI: configMaps",
            kind=kinds.member(HandOver),
        ),
    ] = HandOver.ANNOTATIONS
    visible_devices_guard: Annotated[
        Guard,
        Setting(
            help=f"{names.ENV_VISIBLE_DEVICES} of containers without a share",
            kind=kinds.member(Guard),
        ),
    ] = Choices().guard
    gpu_resource: Annotated[
        tuple[str, ...],
        Setting(
            help="further resource that offers GPUs: nvidia.com/gpu.shared",
            kind=kinds.RESOURCE,
            many=True,
        ),
    ] = ()
    gpu_sharing_enabled: Annotated[
        bool, Setting(help="false: refuse pods that request a share of a GPU", kind=kinds.SWITCH)
    ] = True
    shares_by_claims: Annotated[
        bool,
        Setting(
            help="let ResourceClaims give shares (docs/resource-claims.md)",
            kind=kinds.SWITCH,
        ),
    ] = False
    driver_memory_caps: Annotated[
        bool,
        Setting(
            help="cap memory of shares by NVIDIA's driver",
            kind=kinds.SWITCH,
        ),
    ] = False
    workloads_are_grouped: Annotated[
        bool,
        Setting(
            help="podgrouper runs: new pods are given their PodGroup's name",
            kind=kinds.SWITCH,
        ),
    ] = False
    dialects: Annotated[
        str,
        Setting(
            help="settings of dialects, as YAML or JSON (docs/dialects.md)",
            kind=kinds.FILE,
        ),
    ] = ""
    critical_namespace: Annotated[
        tuple[str, ...],
        Setting(
            help="namespace whose GPU pods may be system-critical",
            kind=kinds.WORD,
            many=True,
        ),
    ] = Settings().critical_namespaces
    adopt_from: Annotated[
        tuple[str, ...],
        Setting(
            help=f"scheduler whose GPU pods are adopted: {names.ADOPT}=true",
            kind=kinds.WORD,
            many=True,
        ),
    ] = ORIGINS
