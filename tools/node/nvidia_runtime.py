"""The runtime handler ``nvidia`` of a real node with emulated GPUs: runc, after a container was given its devices.

``python -S -m tools.node.nvidia_runtime GPUS LIBRARY RUNC ARGUMENT...``, in the place of ``runc ARGUMENT...``; a node's
handler (settings.nvidia_runtime) starts it for ``create``, and runc alone for all else. On ``create`` it does
what the NVIDIA container runtime does: reads ``NVIDIA_VISIBLE_DEVICES`` of the container's process (of a name that
comes twice, the last), and mounts a driver that shows only those devices. Here the driver is the NVML stub, and what it
shows is a selection of the lines of the machine's file (tools/node/gpus.py).

- unset, empty or ``void``: no driver at all; ``none``: a driver without devices; ``all``: every device;
- else UUIDs or indices, separated by commas; one that the machine does not have fails the container;
- files in gpus.CLAIMED (mounts of CDI files, tools/node/dradriver.py) name devices beside those of the variable;
- CDI names of the device plugin, ``k8s.device-plugin.nvidia.com/gpu=UUID``, as NVIDIA's mode ``auto``: if all are such;
- beside them CDI names of other kinds, which files in the folder ``cdi`` of GPUS have: their mounts and variables are
  added, and one that no file has fails the container.

It imports nothing of ours but gpus.py: it runs before every container, without site-packages.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from tools.node import gpus

VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
#: The kind of devices in the CDI files that NVIDIA's device plugin writes.
CDI_KIND = "k8s.device-plugin.nvidia.com/gpu="
#: In the machine's folder: CDI files of other kinds.
CDI_FOLDER = "cdi"
_STATE_VARIABLE = "FAKE_NVML_STATE"
_STATE = "/etc/nvml-stub-state"


class UnknownDevice(Exception):
    """Raised when a container wants a device that the machine does not have."""


def selected(machine: Mapping[str, str], wanted: str) -> list[str] | None:
    """Return the lines of the devices that ``wanted`` names, in the machine's order; None for no driver at all.

    Raises UnknownDevice.
    """
    if wanted in {"", "void"}:
        return None
    if wanted == "none":
        return []
    if wanted == "all":
        return list(machine.values())
    by_word = {**machine, **{str(index): line for index, line in enumerate(machine.values())}}
    words = [word for word in words_of(wanted) if not is_beside(word)]
    if all(word.startswith(CDI_KIND) for word in words):
        by_word = {CDI_KIND + uuid: line for uuid, line in machine.items()}
    if unknown := [word for word in words if word not in by_word]:
        raise UnknownDevice(f"device error: {unknown[0]}: unknown device")
    chosen = {by_word[word] for word in words}
    return [line for line in machine.values() if line in chosen]


def words_of(wanted: str) -> list[str]:
    """Return what is between the commas."""
    return [word.strip() for word in wanted.split(",")]


def is_beside(word: str) -> bool:
    """Whether a word is the CDI name of something that is no GPU."""
    kind, is_name, _ = word.partition("=")
    return bool(is_name) and "/" in kind and not word.startswith(CDI_KIND)


def with_beside(config: dict[str, Any], wanted: str, files: Path) -> dict[str, Any]:
    """Return a container's configuration with what CDI files add to it. Raises UnknownDevice.

    As CDI does: a variable that is there is replaced, and mounts come in the order of their depth.
    """
    names = [word for word in words_of(wanted) if is_beside(word)]
    if not names:
        return config
    read = [json.loads(path.read_text()) for path in sorted(files.glob("*.json"))]
    edits = {f"{each['kind']}={one['name']}": one["containerEdits"] for each in read for one in each["devices"]}
    if unknown := [name for name in names if name not in edits]:
        raise UnknownDevice(f"unresolvable CDI devices {unknown[0]}")
    env = [entry for name in names for entry in edits[name].get("env", ())]
    replaced = {entry.partition("=")[0] for entry in env}
    kept = [entry for entry in config["process"].get("env", ()) if entry.partition("=")[0] not in replaced]
    mounts = [_mount(each) for name in names for each in edits[name].get("mounts", ())]
    return {
        **config,
        "process": {**config["process"], "env": [*kept, *env]},
        "mounts": sorted([*config.get("mounts", ()), *mounts], key=lambda one: one["destination"].count("/")),
    }


def _mount(edit: Mapping[str, Any]) -> dict[str, Any]:
    target, source, kind = edit["containerPath"], edit["hostPath"], edit.get("type", "bind")
    return {"destination": target, "type": kind, "source": source, "options": list(edit.get("options", ()))}


def claimed(config: Mapping[str, Any]) -> list[str]:
    """Return the UUIDs of devices that the container has by claims."""
    targets = (Path(mount["destination"]) for mount in config.get("mounts", ()))
    return [target.name for target in targets if str(target.parent) == gpus.CLAIMED]


def with_claimed(machine: Mapping[str, str], lines: list[str] | None, uuids: Sequence[str]) -> list[str] | None:
    """Return the lines of a container's devices with those of claims, in the machine's order. Raises UnknownDevice."""
    if not uuids:
        return lines
    if unknown := [uuid for uuid in uuids if uuid not in machine]:
        raise UnknownDevice(f"device error: {unknown[0]}: unknown device")
    chosen = {*(lines or ()), *(machine[uuid] for uuid in uuids)}
    return [line for line in machine.values() if line in chosen]


def environment(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the environment of a container's process; of a name that comes twice, the last one."""
    return dict(entry.partition("=")[::2] for entry in config["process"].get("env", ()))


def with_driver(config: dict[str, Any], *, library: Path, state: Path) -> dict[str, Any]:
    """Return a container's configuration with the stub mounted and told where its state is."""
    process = config["process"]
    env = [entry for entry in process.get("env", ()) if not entry.startswith(f"{_STATE_VARIABLE}=")]
    where = {f"{folder}/{library.name}": library for folder in _folders(config)}
    mounts = [_bind(source, target) for target, source in {**where, _STATE: state}.items()]
    return {
        **config,
        "process": {**process, "env": [*env, f"{_STATE_VARIABLE}={_STATE}"]},
        "mounts": [*config.get("mounts", ()), *mounts],
    }


def _folders(config: Mapping[str, Any]) -> list[str]:
    """One folder of the image in which its loader looks: Debian's for this machine, or else /usr/lib."""
    root = Path(config["root"]["path"])
    multiarch = f"/usr/lib/{os.uname().machine}-linux-gnu"
    return [multiarch] if (root / multiarch.lstrip("/")).is_dir() else ["/usr/lib"]


def _bind(source: Path, target: str) -> dict[str, Any]:
    return {"destination": target, "type": "bind", "source": str(source), "options": ["rbind", "ro", "nosuid", "nodev"]}


def prepare(bundle: Path, *, machine: Mapping[str, str], library: Path, files: Path) -> None:
    """Give the container of a bundle its devices. Raises UnknownDevice."""
    path = bundle / "config.json"
    config = json.loads(path.read_text())
    if not Path(config["root"]["path"]).is_absolute():
        config["root"]["path"] = str(bundle / config["root"]["path"])
    wanted = environment(config).get(VISIBLE_DEVICES, "")
    lines = with_claimed(machine, selected(machine, wanted), claimed(config))
    config = with_beside(config, wanted, files)
    if lines is None:
        return
    state = bundle / "nvml-state"
    state.write_text("".join(f"{line}\n" for line in lines))
    path.write_text(json.dumps(with_driver(config, library=library, state=state)))


def option(arguments: Sequence[str], name: str) -> str:
    """Return the value of ``--name VALUE`` or ``--name=VALUE``, "" if it is not there."""
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=True):
        if argument == f"--{name}":
            return following
        if argument.startswith(f"--{name}="):
            return argument.partition("=")[2]
    return ""


def main(own: Sequence[str], arguments: Sequence[str]) -> NoReturn:
    """Prepare a container that is created, and become runc, or end with 1 when the container is refused."""
    machine_folder, library, runc = own
    if "create" in arguments:
        bundle = Path(option(arguments, "bundle") or ".").resolve()
        try:
            machine = gpus.read_machine(Path(machine_folder))
            prepare(bundle, machine=machine, library=Path(library), files=Path(machine_folder) / CDI_FOLDER)
        except UnknownDevice as refusal:
            _tell(option(arguments, "log"), f"nvidia-container-cli: {refusal}")
            raise SystemExit(1) from refusal
    os.execv(runc, [runc, *arguments])  # noqa: S606 - no shell is what is wanted


def _tell(log: str, message: str) -> None:
    """Say why, where containerd looks for what runc has to say."""
    if log:
        with Path(log).open("a") as file:
            file.write(json.dumps({"level": "error", "msg": message}) + "\n")
    print(message, file=sys.stderr)


if __name__ == "__main__":
    # Meant for this interpreter only.
    os.environ.pop("PYTHONPATH", None)
    main(sys.argv[1:4], sys.argv[4:])
