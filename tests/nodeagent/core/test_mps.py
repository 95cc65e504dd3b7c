from __future__ import annotations

from pathlib import PurePosixPath

from nodeagent.core import mps
from nodeagent.core.mps import Wanted

POD = "3f1c2a52-6d0c-4d55-9a30-3d5c7e0b6f3e"
GPU = "GPU-5f2c1a90-0000-4000-8000-000000000001"
TWIN = "GPU-5f2c1a90-0000-4000-8000-000000000002"
OTHER = "GPU-77aa1a90-0000-4000-8000-000000000001"
PIPES = PurePosixPath("/run/moorage/mps")


def test_names_are_such_as_the_daemon_allows_and_paths_such_as_sockets_have() -> None:
    names = (mps.server(GPU), mps.namespace(POD))
    assert names == ("g5f2c1a9000004000", "t3f1c2a526d0c4d559a303d5c7e0b6f3e")
    socket = mps.folder(PIPES, Wanted(POD, GPU, 1, 100)) / mps.SOCKET
    assert len(str(socket)) < 90 < mps.LONGEST_PATH


def test_a_namespace_names_its_pod_and_any_other_name_none() -> None:
    assert mps.pod_of(mps.namespace(POD)) == POD
    for name in ("", "t", "default", mps.namespace(POD)[1:], mps.namespace(POD) + "0", "t" + "g" * 32, f"t{POD}"):
        assert mps.pod_of(name) == ""


def test_gpus_whose_servers_would_have_one_name_are_served_for_nobody() -> None:
    mine, twin, other = (Wanted(POD, device, 1, 100) for device in (GPU, TWIN, OTHER))
    assert mps.server(GPU) == mps.server(TWIN)
    assert mps.alone([mine, other]) == (mine, other)
    assert mps.alone([mine, twin, other]) == (other,)
