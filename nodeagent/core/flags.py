"""The flags of NVIDIA's device plugin that are served, by their names in a file and in the environment.

One table for both, as NVIDIA's has one: a variable of the environment goes before the file. Source: NVIDIA device
plugin v0.20, api/config/v1 and README (docs/device-plugin.md has the table).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from nodeagent.core.mistake import Mistake, shown
from nodeagent.core.settings import Delivery, IdStrategy, MigStrategy, Policy

_E = TypeVar("_E", MigStrategy, IdStrategy, Policy)
_TRUE, _FALSE = frozenset({"true", "t", "1"}), frozenset({"false", "f", "0"})
_PREFIX: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,200}[a-z0-9])?/", re.ASCII)
_LONGEST_PATH: Final = 4096


class NotAllowed(ValueError):
    """Raised by a reader; the text is what is allowed."""


class NotServed(NotAllowed):
    """Raised for what NVIDIA's plugin does and this one does not."""


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag: how its value is read, and the field of PluginSettings that it sets; "" for one without effect."""

    variable: str
    read: Callable[[object], Any]
    field: str = ""


def _boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in _TRUE | _FALSE:
        return value.lower() in _TRUE
    raise NotAllowed("true or false")


def _text(value: object) -> str:
    if isinstance(value, str | int) and not isinstance(value, bool):
        return str(value)
    raise NotAllowed("text")


def _path(value: object) -> str:
    if isinstance(value, str) and value.startswith("/") and "\0" not in value and len(value) <= _LONGEST_PATH:
        return value
    raise NotAllowed("an absolute path")


def _one_of(kind: type[_E]) -> Callable[[object], _E]:
    def read(value: object) -> _E:
        found = next((each for each in kind if each.value == value), None)
        if found is None:
            raise NotAllowed(", ".join(each.value for each in kind))
        return found

    return read


def _deliveries(value: object) -> frozenset[Delivery]:
    """One strategy, several separated by commas, or a list of them."""
    words = value.split(",") if isinstance(value, str) else value
    known = {each.value: each for each in Delivery}
    if isinstance(words, list) and words and all(isinstance(word, str) and word in known for word in words):
        return frozenset(known[word] for word in words)
    raise NotAllowed(f"one or a list of {', '.join(known)}")


def _annotation_prefix(value: object) -> str:
    if isinstance(value, str) and _PREFIX.fullmatch(value):
        return value
    raise NotAllowed("a domain and a slash, such as cdi.k8s.io/")


def _off(value: object) -> bool:
    if _boolean(value):
        raise NotServed("false: this device plug-in does not serve it")
    return False


def _discovery(value: object) -> str:
    if isinstance(value, str) and value in {"auto", "nvml"}:
        return value
    raise NotServed("auto, nvml") if value == "tegra" else NotAllowed("auto, nvml")


#: Of the section ``flags``.
FLAGS: Final = {
    "migStrategy": Flag("MIG_STRATEGY", _one_of(MigStrategy), "mig_strategy"),
    "failOnInitError": Flag("FAIL_ON_INIT_ERROR", _boolean, "fail_on_init_error"),
    "mpsRoot": Flag("MPS_ROOT", _text),
    "nvidiaDriverRoot": Flag("NVIDIA_DRIVER_ROOT", _path, "driver_root"),
    "nvidiaDevRoot": Flag("NVIDIA_DEV_ROOT", _path, "dev_root"),
    "gdrcopyEnabled": Flag("GDRCOPY_ENABLED", _off),
    "gdsEnabled": Flag("GDS_ENABLED", _off),
    "mofedEnabled": Flag("MOFED_ENABLED", _off),
    "useNodeFeatureAPI": Flag("USE_NODE_FEATURE_API", _boolean),
    "deviceDiscoveryStrategy": Flag("DEVICE_DISCOVERY_STRATEGY", _discovery),
}
#: Of the section ``flags.plugin``.
PLUGIN_FLAGS: Final = {
    "passDeviceSpecs": Flag("PASS_DEVICE_SPECS", _boolean, "pass_device_specs"),
    "deviceListStrategy": Flag("DEVICE_LIST_STRATEGY", _deliveries, "deliveries"),
    "deviceIDStrategy": Flag("DEVICE_ID_STRATEGY", _one_of(IdStrategy), "id_strategy"),
    "cdiAnnotationPrefix": Flag("CDI_ANNOTATION_PREFIX", _annotation_prefix, "cdi_annotation_prefix"),
    "nvidiaCTKPath": Flag("NVIDIA_CTK_PATH", _path, "ctk_path"),
    "containerDriverRoot": Flag("CONTAINER_DRIVER_ROOT", _text),
    "sharedDevicesAllocationPolicy": Flag("SHARED_DEVICES_ALLOCATION_POLICY", _one_of(Policy), "policy"),
}
#: Of the section ``flags.gfd``: settings of a program that this is not.
FEATURE_DISCOVERY_FLAGS: Final = {
    "oneshot": Flag("", _boolean),
    "noTimestamp": Flag("", _boolean),
    "sleepInterval": Flag("", _text),
    "outputFile": Flag("", _text),
    "machineTypeFile": Flag("", _text),
}
#: Of iktos' chart, which has no sections.
IKTOS_FLAGS: Final = {
    "compatWithCPUManager": Flag("", _boolean, "pass_device_specs"),
    "migStrategy": FLAGS["migStrategy"],
    "failOnInitError": FLAGS["failOnInitError"],
    "deviceListStrategy": PLUGIN_FLAGS["deviceListStrategy"],
    "deviceIDStrategy": PLUGIN_FLAGS["deviceIDStrategy"],
    "nvidiaDriverRoot": FLAGS["nvidiaDriverRoot"],
    "legacyDaemonsetAPI": Flag("", _off),
    "runtimeClassName": Flag("", _text),
}


def read_flag(flag: Flag, path: str, value: object, into: dict[str, Any]) -> Iterable[Mistake]:
    """Read one value into the fields of PluginSettings; null is as if it was not there."""
    if value is None:
        return
    try:
        read = flag.read(value)
    except NotAllowed as error:
        yield Mistake(path, f"{shown(value)} is not allowed", str(error), isinstance(error, NotServed))
        return
    if flag.field:
        into[flag.field] = read
