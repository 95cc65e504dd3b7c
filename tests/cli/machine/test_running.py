"""What a command finds in its environment, and beside which kubelets it is not started."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from cli.machine.command import environment, why_refused
from cli.machine.placement import Gpu


@pytest.mark.parametrize(
    ("charges", "cuda", "fractions"),
    [
        ([("GPU-a", 500_000_000)], "GPU-a", "0.500"),
        ([("GPU-a", 97_656_250)], "GPU-a", "0.09765625"),
        ([("GPU-b", 1_000_000_000), ("GPU-a", 1_000_000_000)], "GPU-b,GPU-a", "1.000,1.000"),
    ],
)
def test_the_environment_names_gpus_and_shares(charges: list[tuple[str, int]], cuda: str, fractions: str) -> None:
    gpus = [Gpu(at, uuid, 0, charged_nano=nano) for at, (uuid, nano) in enumerate(charges)]
    assert environment(gpus) == {"CUDA_VISIBLE_DEVICES": cuda, "CLEARML_AGENT_GPU_FRACTIONS": fractions}


@pytest.mark.parametrize(
    ("registered", "why"),
    [
        ({}, ""),
        (None, ""),
        ({"example.com/npu": ["npu-0"], "nvidia.com/gpu": []}, ""),
        ({"nvidia.com/gpu": ["GPU-a", "GPU-b"]}, "gives out its GPUs as nvidia.com/gpu"),
        ({"a.io/share": ["GPU-a::0"], "a.io/x": ["MIG-1"]}, "gives out its GPUs as a.io/share, a.io/x"),
    ],
    ids=str,
)  # fmt: skip
def test_a_kubelet_that_gives_out_gpus_is_told(
    tmp_path: Path, registered: Mapping[str, list[str]] | None, why: str
) -> None:
    checkpoint = tmp_path / "kubelet_internal_checkpoint"
    data = {"PodDeviceEntries": None, "RegisteredDevices": registered}
    checkpoint.write_text(json.dumps({"Data": data, "Checksum": 1}))
    assert why_refused(checkpoint).removeprefix("the kubelet of this machine ") == why


def test_without_a_kubelet_nothing_is_refused(tmp_path: Path) -> None:
    assert why_refused(tmp_path / "no-kubelet" / "kubelet_internal_checkpoint") == ""


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"Data": 3}', '{"Data": {"RegisteredDevices": {"a": 1}}}', "[" * 10**6]
)
def test_a_kubelet_that_cannot_be_understood_may_give_out_gpus(tmp_path: Path, content: str) -> None:
    checkpoint = tmp_path / "kubelet_internal_checkpoint"
    checkpoint.write_text(content)
    assert "so a kubelet may give out the GPUs of this machine" in why_refused(checkpoint)
