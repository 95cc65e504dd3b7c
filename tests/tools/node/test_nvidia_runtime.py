from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tools.node.gpus import made_up, write_machine
from tools.node.nvidia_runtime import UnknownDevice, claimed, environment, option, selected, with_claimed

ROOT = Path(__file__).parents[3]
KIND = "k8s.device-plugin.nvidia.com/gpu="
MACHINE = {"GPU-a": "gpu GPU-a H100 81559 0", "GPU-b": "gpu GPU-b H100 81559 1", "GPU-c": "gpu GPU-c H100 81559 2"}


@pytest.mark.parametrize(
    ("wanted", "devices"),
    [
        ("", None),
        ("void", None),
        ("none", []),
        ("all", ["GPU-a", "GPU-b", "GPU-c"]),
        ("GPU-b", ["GPU-b"]),
        ("GPU-c,GPU-a", ["GPU-a", "GPU-c"]),
        ("2, 0", ["GPU-a", "GPU-c"]),
        ("0,GPU-a", ["GPU-a"]),
        (f"{KIND}GPU-b", ["GPU-b"]),
        (f"{KIND}GPU-c,{KIND}GPU-a", ["GPU-a", "GPU-c"]),
    ],
)
def test_a_container_sees_what_it_names(wanted: str, devices: list[str] | None) -> None:
    lines = selected(MACHINE, wanted)
    assert (lines and [line.split()[1] for line in lines]) == devices or (lines == [] and devices == [])


@pytest.mark.parametrize(
    "wanted", ["GPU-d", "3", "GPU-a,GPU-d", ",", "ALL", f"{KIND}GPU-d", f"{KIND}0", f"{KIND}all", f"{KIND}GPU-a,GPU-b"]
)
def test_what_the_machine_does_not_have_is_refused(wanted: str) -> None:
    with pytest.raises(UnknownDevice, match="unknown device"):
        selected(MACHINE, wanted)


def test_devices_of_claims_are_files_in_their_folder() -> None:
    targets = ["/run/moorage-claimed/GPU-b", "/run/moorage-claimed", "/run/other/GPU-a", "/run/moorage-claimed/x/GPU-c"]
    assert claimed({"mounts": [{"destination": target} for target in targets]}) == ["GPU-b"]
    assert claimed({}) == []


@pytest.mark.parametrize(
    ("wanted", "by_claims", "devices"),
    [
        ("", [], None),
        ("", ["GPU-b"], ["GPU-b"]),
        ("none", ["GPU-b"], ["GPU-b"]),
        ("GPU-c", ["GPU-a", "GPU-c"], ["GPU-a", "GPU-c"]),
        ("none", [], []),
    ],
)
def test_a_container_sees_devices_of_claims_beside_those_that_it_names(
    wanted: str, by_claims: list[str], devices: list[str] | None
) -> None:
    lines = with_claimed(MACHINE, selected(MACHINE, wanted), by_claims)
    assert (None if lines is None else [line.split()[1] for line in lines]) == devices


def test_a_device_of_a_claim_that_the_machine_does_not_have_is_refused() -> None:
    with pytest.raises(UnknownDevice, match="GPU-d: unknown device"):
        with_claimed(MACHINE, None, ["GPU-a", "GPU-d"])


def test_of_a_variable_that_comes_twice_the_last_one_counts() -> None:
    config = {"process": {"env": ["A=1", "NVIDIA_VISIBLE_DEVICES=GPU-a", "NVIDIA_VISIBLE_DEVICES=all=x"]}}
    assert environment(config) == {"A": "1", "NVIDIA_VISIBLE_DEVICES": "all=x"}


@pytest.mark.parametrize(
    ("arguments", "value"),
    [(["--bundle", "/b", "id"], "/b"), (["--bundle=/b"], "/b"), (["--log", "/l"], ""), (["--bundle"], "")],
)
def test_an_option_is_found_in_both_forms(arguments: list[str], value: str) -> None:
    assert option(arguments, "bundle") == value


class Shim:
    """What containerd's shim sees: a bundle, a log, and the runtime as a program."""

    def __init__(self, folder: Path) -> None:
        self.gpus = made_up("node-a", 2)
        write_machine(folder, self.gpus)
        self.folder = folder
        self.bundle = folder / "bundle"
        (self.bundle / "rootfs").mkdir(parents=True)

    def create(self, **env: str) -> subprocess.CompletedProcess[str]:
        entries = [f"{name}={value}" for name, value in env.items()]
        config = {"process": {"env": entries}, "root": {"path": "rootfs"}, "mounts": [{"destination": "/proc"}]}
        (self.bundle / "config.json").write_text(json.dumps(config))
        runtime = [sys.executable, "-S", "-m", "tools.node.nvidia_runtime", str(self.folder), "/stub/libnvidia-ml.so.1"]
        arguments = ["--log", f"{self.folder}/log.json", "create", "--bundle", str(self.bundle), "id"]
        return subprocess.run(
            [*runtime, "/bin/echo", *arguments],
            env={"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )

    def config(self) -> Any:
        return json.loads((self.bundle / "config.json").read_text())


@pytest.fixture
def shim(tmp_path: Path) -> Shim:
    return Shim(tmp_path)


def test_it_mounts_the_driver_with_the_devices_and_becomes_runc(shim: Shim) -> None:
    done = shim.create(NVIDIA_VISIBLE_DEVICES=shim.gpus[1].uuid, FAKE_NVML_STATE="/mine")
    assert done.stdout == f"--log {shim.folder}/log.json create --bundle {shim.bundle} id\n"
    config = shim.config()
    assert "FAKE_NVML_STATE=/mine" not in config["process"]["env"]
    library, state = config["mounts"][1:]
    assert library["destination"] == "/usr/lib/libnvidia-ml.so.1"
    assert library["source"] == "/stub/libnvidia-ml.so.1"
    assert f"FAKE_NVML_STATE={state['destination']}" in config["process"]["env"]
    assert Path(state["source"]).read_text() == f"{shim.gpus[1].line}\n"


def test_a_container_without_the_variable_is_left_as_it_is(shim: Shim) -> None:
    assert shim.create().returncode == 0
    assert shim.config()["mounts"] == [{"destination": "/proc"}]


def test_a_refusal_is_told_where_containerd_looks(shim: Shim) -> None:
    done = shim.create(NVIDIA_VISIBLE_DEVICES="GPU-d")
    assert (done.returncode, done.stdout) == (1, "")
    told = json.loads((shim.folder / "log.json").read_text())
    assert told == {"level": "error", "msg": "nvidia-container-cli: device error: GPU-d: unknown device"}


BESIDE = {
    "kind": "moorage.dev/limits",
    "devices": [
        {
            "name": "p",
            "containerEdits": {
                "env": ["LIMIT=1"],
                "mounts": [
                    {"hostPath": "/l.so", "containerPath": "/usr/local/vgpu/l.so", "options": ["ro"]},
                    {"hostPath": "tmpfs", "containerPath": "/run/locks", "type": "tmpfs", "options": ["size=64k"]},
                ],
            },
        }
    ],
}


def test_what_a_cdi_file_has_beside_gpus_is_added(shim: Shim) -> None:
    (shim.folder / "cdi").mkdir()
    (shim.folder / "cdi" / "limits.json").write_text(json.dumps(BESIDE))
    done = shim.create(NVIDIA_VISIBLE_DEVICES=f"{KIND}{shim.gpus[1].uuid},moorage.dev/limits=p", LIMIT="mine")
    assert done.returncode == 0
    config = shim.config()
    assert [entry for entry in config["process"]["env"] if entry.startswith("LIMIT")] == ["LIMIT=1"]
    added = {mount["destination"]: mount for mount in config["mounts"]}
    assert added["/usr/local/vgpu/l.so"] == {
        "destination": "/usr/local/vgpu/l.so",
        "type": "bind",
        "source": "/l.so",
        "options": ["ro"],
    }
    assert (added["/run/locks"]["type"], added["/run/locks"]["options"]) == ("tmpfs", ["size=64k"])
    (state,) = (Path(mount["source"]) for mount in config["mounts"] if mount["destination"].endswith("nvml-stub-state"))
    assert state.read_text() == f"{shim.gpus[1].line}\n"


def test_a_name_beside_gpus_that_no_file_has_is_refused(shim: Shim) -> None:
    done = shim.create(NVIDIA_VISIBLE_DEVICES=f"{KIND}{shim.gpus[1].uuid},moorage.dev/limits=p")
    assert (done.returncode, done.stdout) == (1, "")
    assert "unresolvable CDI devices moorage.dev/limits=p" in (shim.folder / "log.json").read_text()
