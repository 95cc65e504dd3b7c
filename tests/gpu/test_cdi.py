from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpu import cdi
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
    assert cdi.is_on(found) is expected


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
    assert cdi.has_nri_plugin(found) is expected


def test_each_device_of_a_list_is_named_in_full() -> None:
    assert cdi.listed(["GPU-a", "MIG-b"], cdi=False) == "GPU-a,MIG-b"
    kind = "k8s.device-plugin.nvidia.com/gpu="
    assert cdi.listed(["GPU-a", "MIG-b"], cdi=True) == f"{kind}GPU-a,{kind}MIG-b"
