from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tools.node import cdi
from wire.protobuf import integers, message, parts, strings, text

KIND = "gpu.test/device"
MOUNT = {"hostPath": "/dev/null", "containerPath": "/run/a", "options": ["bind", "ro"]}
SPEC = cdi.Spec(KIND, {"a": {"env": ["A=1=2"], "mounts": [MOUNT]}, "b": {"env": ["B="]}}, {"env": ["ALL=1"]})


def _request(*devices: str) -> bytes:
    """CreateContainerRequest of a container with a variable of its own."""
    named = b"".join(message(17, text(1, device)) for device in devices)
    return text(1, "sandbox") + message(2, message(6, text(1, "OWN") + text(2, "x")) + named)


def _envs(request: bytes) -> list[tuple[str, str]]:
    found = (part for config in parts(request, 2) for part in parts(config, 6))
    return [("".join(strings(each, 1)), "".join(strings(each, 2))) for each in found]


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    cdi.write(tmp_path / "spec.json", SPEC)
    assert cdi.read(tmp_path) == [SPEC]
    assert json.loads((tmp_path / "spec.json").read_text())["cdiVersion"] == "0.6.0"


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"kind": "a/b", "devices": [{}]}', '{"kind": "a/b"}'])
def test_other_files_are_refused(content: str) -> None:
    with pytest.raises(cdi.Unresolvable, match="not a CDI file"):
        cdi.Spec.decode(content)


def test_devices_are_read_of_a_request() -> None:
    assert cdi.wanted(_request(f"{KIND}=a", f"{KIND}=b")) == [f"{KIND}=a", f"{KIND}=b"]
    assert cdi.wanted(_request()) == []


def test_a_device_adds_its_own_edits_and_once_those_of_its_file() -> None:
    request = _request(f"{KIND}=a", f"{KIND}=b")
    given = cdi.edited(request, cdi.resolved([SPEC], cdi.wanted(request)))
    assert strings(given, 1) == ["sandbox"]
    assert _envs(given) == [("OWN", "x"), ("A", "1=2"), ("B", ""), ("ALL", "1")]
    (mount,) = (part for config in parts(given, 2) for part in parts(config, 7))
    assert (strings(mount, 1), strings(mount, 2), integers(mount, 3)) == (["/run/a"], ["/dev/null"], [1])


def test_a_request_without_devices_stays_as_it_is() -> None:
    assert cdi.edited(_request(), cdi.resolved([SPEC], [])) == _request()


@pytest.mark.parametrize("name", [f"{KIND}=c", "gpu.test/other=a", "a"])
def test_a_device_that_no_file_has_is_refused(name: str) -> None:
    with pytest.raises(cdi.Unresolvable, match=f"unresolvable CDI devices {name}"):
        cdi.resolved([SPEC], [f"{KIND}=a", name])


@pytest.mark.parametrize("edits", [{"deviceNodes": [{"path": "/dev/x"}]}, {"hooks": []}])
def test_an_edit_that_is_not_served_is_refused(edits: dict[str, Any]) -> None:
    with pytest.raises(cdi.Unresolvable, match="env and mounts are all"):
        cdi.edited(_request(), [edits])
