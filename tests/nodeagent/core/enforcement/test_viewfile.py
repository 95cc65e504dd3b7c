from __future__ import annotations

import json
from pathlib import PurePosixPath

import pytest

from nodeagent.core.enforcement.tenants import content, is_sound

POD = "3f1c2a52-6d0c-4d55-9a30-3d5c7e0b6f3e"
OTHER = "00000000-1111-4222-8333-444444444444"


def test_each_pod_is_a_device_that_mounts_its_own_folder_and_no_other() -> None:
    said = json.loads(content(PurePosixPath("/run/moorage/view"), [POD, OTHER]))
    assert (said["cdiVersion"], said["kind"]) == ("0.5.0", "moorage.dev/view")
    assert {device["name"]: device["containerEdits"] for device in said["devices"]} == {
        pod: {
            "mounts": [
                {
                    "hostPath": f"/run/moorage/view/{pod}",
                    "containerPath": "/run/moorage/view",
                    "options": ["ro", "nosuid", "nodev", "noexec", "rbind", "rprivate"],
                }
            ]
        }
        for pod in (POD, OTHER)
    }


def test_the_same_pods_are_the_same_file() -> None:
    assert content(PurePosixPath("/v"), [POD, OTHER]) == content(PurePosixPath("/v"), [OTHER, POD])


@pytest.mark.parametrize("uid", ["", "..", "../x", f"{POD}/..", POD.upper(), f"{POD}\n", "a" * 36, "kubelet-file"])
def test_what_is_no_uid_names_no_folder(uid: str) -> None:
    assert is_sound(POD)
    assert not is_sound(uid)
