from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.processes import Seat, container_of, is_home, seat, seat_of_path

UID = "3f1c2a52-6d0c-4d55-9a30-3d5c7e0b6f3e"
OTHER = "00000000-1111-4222-8333-444444444444"
ID = "ab" * 32
SLICE = f"kubepods-burstable-pod{UID.replace('-', '_')}.slice"
OTHER_SLICE = f"kubepods-pod{OTHER.replace('-', '_')}.slice"


@pytest.mark.parametrize(
    ("path", "container"),
    [
        (f"/kubepods.slice/kubepods-burstable.slice/{SLICE}/cri-containerd-{ID}.scope", ID),
        (f"/kubepods.slice/kubepods-burstable.slice/{SLICE}/crio-{ID}.scope", ID),
        (f"/kubepods.slice/kubepods-burstable.slice/{SLICE}/docker-{ID}.scope", ID),
        (f"/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/cri-containerd-{ID}.scope", ID),
        (f"/kubepods.slice/kubepods-burstable.slice/{SLICE}/cri-containerd-{ID}.scope/init", ID),
        (f"/kubelet.slice/kubelet-kubepods.slice/x/kubelet-{SLICE}/cri-containerd-{ID}.scope", ID),
        (f"/kubepods/burstable/pod{UID}/{ID}", ID),
        (f"/kubepods/besteffort/pod{UID}/{ID}", ID),
        (f"/kubepods/pod{UID}/{ID}", ID),
        (f"/kubepods/pod{UID}/crio-{ID}", ID),
        (f"/kubelet/kubepods/burstable/pod{UID}/{ID}/own", ID),
        # In another group of its pod, or in the pod's own.
        (f"/kubepods/burstable/pod{UID}", ""),
        (f"/kubepods/burstable/pod{UID}/elsewhere", ""),
        (f"/kubepods.slice/kubepods-burstable.slice/{SLICE}/elsewhere.scope", ""),
        # As a container in a cgroup namespace of its own sees others.
        (f"/../../{SLICE}/cri-containerd-{ID}.scope", ID),
        (f"/../../../kubepods-burstable.slice/{SLICE}/cri-containerd-{ID}.scope", ID),
        (f"/../../pod{UID}/{ID}", ID),
        (f"/../../../burstable/pod{UID}/{ID}", ID),
        # A container named as another pod's UID, and groups that it made within its own.
        (f"/kubepods/burstable/pod{UID}/{OTHER}", ""),
        (f"/kubepods/burstable/pod{UID}/pod{OTHER}/{ID}", ""),
        (f"/kubepods/burstable/pod{UID}/{ID}/kubepods/burstable/pod{OTHER}/{ID}", ID),
        (f"/kubepods.slice/{SLICE}/cri-containerd-{ID}.scope/kubepods.slice/{OTHER_SLICE}", ID),
    ],
)
def test_a_path_of_kubelets_names_pod_and_container(path: str, container: str) -> None:
    assert seat_of_path(path) == Seat(UID, container)


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "",
        "/..",
        "/../..",
        "/init.scope",
        "/user.slice/user-0.slice/session-1.scope",
        "/system.slice/kubelet.service",
        f"/pod{UID}/{ID}",
        f"/my/pod{UID}/{ID}",
        f"/burstable/pod{UID}/{ID}",
        f"/../../my/pod{UID}/{ID}",
        f"/kubepods/burstable/pod{UID.upper()}/{ID}",
        f"/kubepods/burstable/pod{UID}x/{ID}",
        f"/kubepods/burstable/pod{UID} (deleted)",
        f"/kubepods/other/pod{UID}/{ID}",
        f"/kubepods.slice/pod{UID.replace('-', '_')}.slice/{ID}",
        "/kubepods/burstable/pod" + "a" * 32,
        # A container of no pod, which made itself groups of such names.
        f"/docker/{ID}/kubepods/pod{UID}/{ID}",
        f"/system.slice/docker-{ID}.scope/kubepods.slice/{SLICE}/cri-containerd-{ID}.scope",
    ],
)
def test_any_other_path_is_nobodys(path: str) -> None:
    assert seat_of_path(path) is None


POD = f"/kubepods/pod{UID}/{ID}"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"0::{POD}\n", True),
        (f"12:memory:{POD}\n0::/\n", True),
        (f"4:cpu,cpuacct:/\n3:pids:{POD}\n0::/\n", True),
        (f"5:devices:{POD}\n1:name=systemd:/\n", True),
        (f"5:devices:{POD}\n4:memory:/\n", False),
        # Version 1 without one of these controllers: by its other lines nobody is judged.
        (f"5:freezer:{POD}\n", False),
        (f"5:freezer:{POD}\n0::/\n", False),
        ("", False),
        ("nonsense", False),
        (f"0:{POD}", False),
    ],
)
def test_the_line_of_the_memory_controller_counts_else_of_version_2(text: str, *, found: bool) -> None:
    assert (seat(text) is not None) is found


@given(
    st.text(max_size=400)
    | st.lists(st.sampled_from(["..", "kubepods", "burstable", f"pod{UID}", SLICE, OTHER, ID, "x"])).map("/".join)
)
def test_nothing_in_a_path_raises_and_who_is_named_stands_in_it(path: str) -> None:
    for found in (seat_of_path(path), seat(path), seat(f"0::{path}")):
        assert found is None or found.pod_uid in path.replace("_", "-")


@given(st.lists(st.sampled_from(["a", "kubepods", f"pod{OTHER}", OTHER_SLICE, ID, "burstable", ".."]), max_size=8))
def test_nothing_made_below_a_container_changes_whose_it_is(below: list[str]) -> None:
    assert seat_of_path("/".join([POD, *below])) == Seat(UID, ID)


@pytest.mark.parametrize(
    ("path", "is_one"),
    [
        ("/kubepods", True),
        ("/kubepods/burstable", True),
        ("/kubepods/besteffort", True),
        ("/kubelet/kubepods", True),
        ("/kubepods.slice", True),
        ("/kubepods.slice/kubepods-burstable.slice", True),
        ("/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice", True),
        ("", False),
        ("/", False),
        ("/burstable", False),
        ("/system.slice/burstable", False),
        ("/kubepods/guaranteed", False),
        ("/kubepods.slice/kubepods-guaranteed.slice", False),
        ("/kubepodsx", False),
        (f"/kubepods/pod{UID}", False),
        (f"/kubepods.slice/{SLICE}", False),
    ],
)
def test_pods_lie_in_kubelets_groups(path: str, *, is_one: bool) -> None:
    assert is_home(path) is is_one


@pytest.mark.parametrize(
    ("name", "container"),
    [(ID, ID), (f"cri-containerd-{ID}.scope", ID), (f"crio-{ID}", ID), (f"pod{UID}", ""), ("ab", ""), ("", "")],
)
def test_a_containers_group_has_its_id_in_its_name(name: str, container: str) -> None:
    assert container_of(name) == container
