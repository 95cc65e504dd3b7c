from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from gpu import container_devices
from wire.clusterpolicy import ClusterPolicy


def policy(version: str | None = None, **fields: Any) -> ClusterPolicy:
    labels = {} if version is None else {"app.kubernetes.io/version": version}
    raw = {"metadata": {"name": "cluster-policy", "labels": labels}, "spec": {"cdi": fields}}
    return msgspec.convert(raw, ClusterPolicy)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(None, False, id="no-operator"),
        pytest.param(ClusterPolicy(), False, id="says-nothing"),
        pytest.param(msgspec.convert({"spec": {"cdi": None}}, ClusterPolicy), False, id="null"),
        pytest.param(policy("v25.10.0"), False, id="not-said"),
        pytest.param(policy("v25.10.0", enabled=False, default=True), False, id="off"),
        pytest.param(policy("v25.10.0", enabled=None, default=True), False, id="null-enabled"),
        pytest.param(policy("v25.10.0", enabled=True), True, id="from-this-version-on"),
        pytest.param(policy("v25.10.1", enabled=True, default=False), True, id="later-patch"),
        pytest.param(policy("v26.3.0-rc.1", enabled=True), True, id="later-candidate"),
        pytest.param(policy("v26.7.0+build.5", enabled=True), True, id="later-build"),
        pytest.param(policy("v26", enabled=True), True, id="shorthand"),
        pytest.param(policy("v25.10", enabled=True), True, id="shorthand-of-this-version"),
        pytest.param(policy("v25.10.0-rc.1", enabled=True), False, id="candidate-is-before"),
        pytest.param(policy("v25.3.4", enabled=True), False, id="before"),
        pytest.param(policy("v25.3.4", enabled=True, default=True), True, id="before-with-default"),
        pytest.param(policy("v9.99.99", enabled=True), False, id="numbers-not-text"),
        pytest.param(policy(None, enabled=True), False, id="no-label"),
        pytest.param(policy(None, enabled=True, default=True), True, id="no-label-with-default"),
        pytest.param(policy("25.10.0", enabled=True), False, id="no-v"),
        pytest.param(policy("v025.10.0", enabled=True), False, id="leading-zero"),
        pytest.param(policy("v26.٣.0", enabled=True), False, id="other-digits"),
        pytest.param(policy("latest", enabled=True), False, id="no-version"),
    ],
)
def test_cdi_is_on_by_kais_rule(found: ClusterPolicy | None, expected: bool) -> None:
    assert container_devices.is_on(found) is expected


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (None, False),
        (policy("v26.3.0", enabled=True), False),
        (policy("v26.3.0", enabled=True, nriPluginEnabled=True), True),
        (policy("v26.3.0", enabled=False, nriPluginEnabled=True), False),
    ],
)
def test_the_nri_plugin_needs_cdi(found: ClusterPolicy | None, expected: bool) -> None:
    assert container_devices.has_nri_plugin(found) is expected


def test_each_device_of_a_list_is_named_in_full() -> None:
    assert container_devices.listed(["GPU-a", "MIG-b"], cdi=False) == "GPU-a,MIG-b"
    kind = "k8s.device-plugin.nvidia.com/gpu="
    assert container_devices.listed(["GPU-a", "MIG-b"], cdi=True) == f"{kind}GPU-a,{kind}MIG-b"


UID = "0d2f3a5e-0000-4000-8000-000000000001"
#: A qualified name: vendor, class, and a name that begins with a letter or a digit (CDI specification).
QUALIFIED = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*/[A-Za-z][A-Za-z0-9_.-]*=[A-Za-z0-9][A-Za-z0-9_.:-]*")
#: CDI files of a node: the device plug-in's, ours, and what a default kind may have.
PLUGIN, VIEW, DEFAULT = "k8s.device-plugin.nvidia.com/gpu=", "moorage.dev/view=", "management.nvidia.com/gpu="
FILES = {f"{PLUGIN}GPU-a", f"{PLUGIN}MIG-b", f"{VIEW}{UID}", f"{DEFAULT}all"}


class Refused(Exception):
    """Raised where the runtime starts no container."""


def mounted(variable: str, mode: str) -> set[str]:
    """What NVIDIA's runtime mounts for a value of NVIDIA_VISIBLE_DEVICES. Raises Refused.

    Restates internal/modifier/cdi.go and internal/info/auto.go of nvidia-container-toolkit: in mode ``auto`` CDI is
    used where every name is qualified. In mode ``legacy`` each name is the UUID or the index of a GPU.
    """
    given = variable.split(",")
    if mode == "auto":
        mode = "cdi" if all(map(QUALIFIED.fullmatch, given)) else "legacy"
    if mode == "legacy":
        if any(not each.startswith(("GPU-", "MIG-")) for each in given):
            raise Refused
        return set(given)
    resolved = {each if QUALIFIED.fullmatch(each) else DEFAULT + each for each in given}
    if not resolved <= FILES:
        raise Refused
    return resolved


@pytest.mark.parametrize(
    ("has_cdi", "beside", "mode", "there"),
    [
        (True, [VIEW + UID], "cdi", {f"{PLUGIN}GPU-a", f"{PLUGIN}MIG-b", f"{VIEW}{UID}"}),
        (True, [VIEW + UID], "auto", {f"{PLUGIN}GPU-a", f"{PLUGIN}MIG-b", f"{VIEW}{UID}"}),
        (True, [], "auto", {f"{PLUGIN}GPU-a", f"{PLUGIN}MIG-b"}),
        (False, [VIEW + UID], "auto", {"GPU-a", "MIG-b"}),
        (False, [VIEW + UID], "legacy", {"GPU-a", "MIG-b"}),
    ],
)
def test_the_runtime_mounts_gpus_and_the_view_or_gpus_alone(
    has_cdi: bool, beside: list[str], mode: str, there: set[str]
) -> None:
    assert mounted(container_devices.listed(["GPU-a", "MIG-b"], cdi=has_cdi, beside=beside), mode) == there


@pytest.mark.parametrize("mode", ["auto", "cdi", "legacy"])
def test_a_mix_of_both_forms_would_start_no_container(mode: str) -> None:
    with pytest.raises(Refused):
        mounted(f"GPU-a,{VIEW}{UID}", mode)


@pytest.mark.parametrize("has_cdi", [True, False])
def test_all_names_of_a_container_are_of_one_form(has_cdi: bool) -> None:
    names = container_devices.listed(["GPU-a", "MIG-b"], cdi=has_cdi, beside=[VIEW + UID]).split(",")
    assert {bool(QUALIFIED.fullmatch(name)) for name in names} == {has_cdi}
    # NVIDIA's runtime makes devices of this vendor itself, and refuses them beside others.
    assert not any(name.startswith("runtime.nvidia.com/") for name in names)
