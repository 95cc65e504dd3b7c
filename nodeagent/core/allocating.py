"""What a container is given for the devices that kubelet chose, in each way that NVIDIA's device plugin has.

Source: NVIDIA device plugin v0.20, internal/plugin/server.go; Container Device Interface, annotations.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from nodeagent.core.advertising import is_replica
from nodeagent.core.resources import Device
from nodeagent.core.settings import Delivery, IdStrategy, PluginSettings
from wire import names

#: Where the NVIDIA runtime looks for devices that are given as mounts.
VOLUME_ROOT: Final = "/var/run/nvidia-container-devices"
_NOTHING: Final = "/dev/null"
#: Device files that belong to all GPUs.
COMMON_FILES: Final = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
#: A key of an annotation has at most 63 characters after its prefix.
_CDI_KEY: Final = "nvidia-device-plugin_"
_LONGEST_REFUSAL: Final = 200


@dataclass(frozen=True, slots=True)
class Refused:
    """kubelet's choice can't be given; kubelet shows the text on the pod."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What kubelet adds to one container. ``mounts`` and ``files``: path in the container -> path on the node."""

    environment: Mapping[str, str] = field(default_factory=dict)
    mounts: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    cdi_devices: Sequence[str] = ()


def allocate(
    chosen: Sequence[str],
    *,
    resource: str,
    devices: Mapping[str, Device],
    settings: PluginSettings,
    present_files: Collection[str],
    number: str,
) -> Given | Refused:
    """Give the devices of one container. ``devices`` are all of the resource by id, ``number`` makes a CDI key unique.

    ``present_files``: device files that belong to all GPUs and are there.
    """
    if unknown := [each for each in chosen if each not in devices]:
        return Refused(f"invalid allocation request for {resource!r}: unknown device: {unknown[0][:_LONGEST_REFUSAL]}")
    if settings.fail_requests_greater_than_one and len(chosen) > 1 and any(map(is_replica, chosen)):
        most = "maximum request size for shared resources is 1"
        return Refused(f"invalid request for {resource!r}: {most}; found {len(chosen)}")
    found = {device.uuid: device for device in (devices[each] for each in sorted(chosen))}
    named = [_name(device, settings.id_strategy) for device in found.values()]
    environment: dict[str, str] = {}
    mounts: dict[str, str] = {}
    if Delivery.ENVVAR in settings.deliveries:
        environment[names.ENV_VISIBLE_DEVICES] = ",".join(named)
    if Delivery.VOLUME_MOUNTS in settings.deliveries:
        environment[names.ENV_VISIBLE_DEVICES] = VOLUME_ROOT
        mounts = {f"{VOLUME_ROOT}/{each}": _NOTHING for each in named}
    # A CDI file has UUIDs, whichever way an environment names devices.
    cdi = [names.CDI_DEVICE_PREFIX + uuid for uuid in found]
    key = f"{settings.cdi_annotation_prefix}{_CDI_KEY}{number}"
    return Given(
        environment=environment,
        mounts=mounts,
        files=_files(found.values(), settings, present_files) if settings.pass_device_specs else {},
        annotations={key: ",".join(cdi)} if Delivery.CDI_ANNOTATIONS in settings.deliveries else {},
        cdi_devices=cdi if Delivery.CDI_CRI in settings.deliveries else (),
    )


def _name(device: Device, strategy: IdStrategy) -> str:
    return device.uuid if strategy is IdStrategy.UUID else device.index


def _files(devices: Collection[Device], settings: PluginSettings, present: Collection[str]) -> dict[str, str]:
    """Device files of the GPUs, and those that belong to all, as far as they are there."""
    root = (settings.dev_root or settings.driver_root).rstrip("/")
    own = [f"/dev/nvidia{device.minor}" for device in devices if device.minor is not None]
    return {path: root + path for path in (*dict.fromkeys(own), *(each for each in COMMON_FILES if each in present))}
