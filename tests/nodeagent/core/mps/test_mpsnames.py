from __future__ import annotations

from pathlib import PurePosixPath

from nodeagent.core.mps import control
from nodeagent.core.mps.control import Wanted

POD = "3f1c2a52-6d0c-4d55-9a30-3d5c7e0b6f3e"
GPU = "GPU-5f2c1a90-0000-4000-8000-000000000001"
TWIN = "GPU-5f2c1a90-0000-4000-8000-000000000002"
OTHER = "GPU-77aa1a90-0000-4000-8000-000000000001"
PIPES = PurePosixPath("/run/moorage/mps")


def test_names_are_such_as_the_daemon_allows_and_paths_such_as_sockets_have() -> None:
    names = (control.server(GPU), control.namespace(POD))
    assert names == ("g5f2c1a9000004000", "t3f1c2a526d0c4d559a303d5c7e0b6f3e")
    socket = control.folder(PIPES, Wanted(POD, GPU, 1, 100)) / control.SOCKET
    assert len(str(socket)) < 90 < control.LONGEST_PATH


def test_a_namespace_names_its_pod_and_any_other_name_none() -> None:
    assert control.pod_of(control.namespace(POD)) == POD
    for name in (
        "",
        "t",
        "default",
        control.namespace(POD)[1:],
        control.namespace(POD) + "0",
        "t" + "g" * 32,
        f"t{POD}",
    ):
        assert control.pod_of(name) == ""


def test_gpus_whose_servers_would_have_one_name_are_served_for_nobody() -> None:
    mine, twin, other = (Wanted(POD, device, 1, 100) for device in (GPU, TWIN, OTHER))
    assert control.server(GPU) == control.server(TWIN)
    assert control.alone([mine, other]) == (mine, other)
    assert control.alone([mine, twin, other]) == (other,)
