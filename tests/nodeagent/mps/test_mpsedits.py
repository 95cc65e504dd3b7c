from __future__ import annotations

from typing import Any

import pytest

from nodeagent.core.enforcement.caps import Tenancy
from nodeagent.core.mps.control import Wanted
from nodeagent.mps.backend import edits, limits_wanted
from tests.nodeagent.core.mps.test_mpsnames import GPU, OTHER, PIPES, POD


def holding(device: str = GPU, pod: str = POD, **more: Any) -> Tenancy:
    return Tenancy(pod, "team/p", device, 250_000_000, 20_000, **more)


@pytest.mark.parametrize(
    ("what", "tenant", "found"),
    [
        ("nothing to limit", [holding()], None),
        ("all compute", [holding(compute_percent=100)], None),
        ("memory", [holding(cap_mib=20_000)], (20_000, 100)),
        ("compute", [holding(compute_percent=30)], (0, 30)),
        ("both", [holding(cap_mib=20_000, compute_percent=30)], (20_000, 30)),
        ("parts whose sum is above all compute", [holding(cap_mib=1, compute_percent=120)], (1, 100)),
        ("the mode of MPS", [holding(cap_mib=1, mode="mps")], (1, 100)),
        ("another mode", [holding(cap_mib=1, mode="time-slicing")], None),
        ("two GPUs", [holding(cap_mib=1), holding(OTHER, cap_mib=1)], None),
        ("a MIG slice", [holding("MIG-5f2c1a90-0000-4000-8000-000000000001", cap_mib=1)], None),
        ("a pod that is no UUID", [holding(pod="../x", cap_mib=1)], None),
        ("none", [], None),
    ],
)
def test_a_tenant_of_one_gpu_is_held_to_its_limits(
    what: str, tenant: list[Tenancy], found: tuple[int, int] | None
) -> None:
    assert limits_wanted(tenant) == (None if found is None else Wanted(POD, GPU, *found)), what


def test_a_container_gets_the_folder_of_its_own_namespace_and_no_other() -> None:
    given = edits(Wanted(POD, GPU, 5_120, 30), PIPES).written()
    folder = "/run/moorage/mps/g5f2c1a9000004000/t3f1c2a526d0c4d559a303d5c7e0b6f3e"
    (mount,) = given["mounts"]
    assert (mount["hostPath"], mount["containerPath"]) == (folder, folder)
    assert {"ro", "nosuid", "nodev", "noexec"} <= set(mount["options"])
    assert given["env"] == [
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=30",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=5120M",
        f"CUDA_MPS_PIPE_DIRECTORY={folder}",
    ]


def test_memory_that_nobody_limits_is_not_said() -> None:
    env = edits(Wanted(POD, GPU, 0, 30), PIPES).env
    assert set(env) == {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_PIPE_DIRECTORY"}
