"""Folders in place of control groups: nothing but their names is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeagent.core.enforcement.driver_limits import RECHECK_LOOKS, Group
from nodeagent.enforcement.memory_enforcer.limits import MOST_OF_POD, Groups, NoGroups

UID = "3f1c2a52-6d0c-4d55-9a30-3d5c7e0b6f3e"
OTHER = "00000000-1111-4222-8333-444444444444"
ID = "ab" * 32
SLICE = f"kubepods-burstable-pod{UID.replace('-', '_')}.slice"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "cgroup"
    made.mkdir()
    (made / "cgroup.controllers").write_text("cpu memory pids\n")
    return made


def made(root: Path, path: str, *files: str) -> Path:
    folder = root / path
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("cgroup.procs", *files):
        (folder / name).write_text("")
    return folder


def paths(groups: tuple[Group, ...], root: Path) -> list[str]:
    return [group.path.removeprefix(f"{root}/") for group in groups]


@pytest.mark.parametrize(
    ("pod", "container"),
    [
        (f"kubepods/burstable/pod{UID}", ID),
        (f"kubepods/pod{UID}", f"crio-{ID}"),
        (f"kubepods/besteffort/pod{UID}", ID),
        (f"kubelet/kubepods/pod{UID}", ID),
        (f"kubepods.slice/kubepods-burstable.slice/{SLICE}", f"cri-containerd-{ID}.scope"),
        (f"kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice", f"cri-containerd-{ID}.scope"),
        (f"kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-{SLICE}", f"crio-{ID}.scope"),
    ],
)
def test_a_pods_group_is_found_under_both_drivers_of_kubelet(root: Path, pod: str, container: str) -> None:
    made(root, "system.slice/sshd.service")
    made(root, f"{pod}/{container}/inner")
    assert Groups(str(root)).look({UID}) == (
        Group(UID, str(root / pod / container)),
        Group(UID, str(root / pod), is_pod=True),
    )


def test_pods_that_are_not_asked_for_are_left_alone(root: Path) -> None:
    made(root, f"kubepods/pod{OTHER}/{ID}")
    assert Groups(str(root)).look({UID}) == ()


def test_the_kernels_controller_is_seen_by_its_file(root: Path) -> None:
    made(root, f"kubepods/pod{UID}", "dmem.max")
    made(root, f"kubepods/pod{UID}/{ID}", "dmem.max")
    assert [group.nests for group in Groups(str(root)).look({UID})] == [False, True]


@pytest.mark.parametrize(
    "path",
    [
        # Within a container, of a user's own session, too deep, and where kubelet makes none.
        f"kubepods/pod{OTHER}/{ID}/kubepods/pod{UID}/{ID}",
        f"docker/{ID}/kubepods/pod{UID}/{ID}",
        f"user.slice/user-1000.slice/kubepods/pod{UID}/{ID}",
        f"a/b/c/d/e/kubepods/pod{UID}/{ID}",
        f"pod{UID}/{ID}",
        f"kubepods/guaranteed/pod{UID}/{ID}",
        f"kubepods/burstable/pod{OTHER}/pod{UID}/{ID}",
    ],
)
def test_no_other_place_has_pods(root: Path, path: str) -> None:
    made(root, "kubepods") if path[:8] != "kubepods" else None
    made(root, path)
    assert Groups(str(root)).look({UID}) == ()


def test_of_two_groups_of_one_pod_the_uppermost_is_kubelets(root: Path) -> None:
    made(root, f"system.slice/a.service/kubepods/pod{UID}/{ID}")
    made(root, f"kubepods/burstable/pod{UID}/{ID}")
    pod = f"kubepods/burstable/pod{UID}"
    assert paths(Groups(str(root)).look({UID}), root) == [f"{pod}/{ID}", pod]


def test_kubelets_groups_are_found_when_they_come(root: Path) -> None:
    groups = Groups(str(root))
    assert groups.look({UID}) == ()
    made(root, f"kubepods/pod{UID}/{ID}")
    *_, found = [groups.look({UID}) for _ in range(RECHECK_LOOKS)]
    assert len(found) == 2


def test_a_link_is_no_group(root: Path, tmp_path: Path) -> None:
    pod = made(root, f"kubepods/pod{UID}")
    (tmp_path / "elsewhere").mkdir()
    (pod / "link").symlink_to(tmp_path / "elsewhere")
    (root / "kubepods" / f"pod{OTHER}").symlink_to(tmp_path / "elsewhere")
    assert paths(Groups(str(root)).look({UID, OTHER}), root) == [f"kubepods/pod{UID}"]


def test_groups_of_any_name_are_listed(root: Path) -> None:
    """A container that may make groups beside its own names them as it likes."""
    names = [b"a b", b"\xff\xfe", b"\t", b"-rf", b"...", b"%s%n", "\u202egpj".encode(), b"'\"$(x)"]
    pod = made(root, f"kubepods/pod{UID}")
    for name in names:
        (pod / name.decode(errors="surrogateescape")).mkdir()
    found = Groups(str(root)).look({UID})
    assert {group.path.rpartition("/")[2].encode(errors="surrogateescape") for group in found[:-1]} == set(names)


def test_a_new_group_is_found_at_once_where_it_is_asked_for_and_soon_where_not(root: Path) -> None:
    pod, groups = f"kubepods/pod{UID}", Groups(str(root))
    made(root, f"{pod}/1")
    groups.look({UID})
    made(root, f"{pod}/2")
    assert paths(groups.look({UID}, {UID}), root) == [f"{pod}/1", f"{pod}/2", pod]
    # One goes and another one comes: as many as before.
    (root / pod / "1" / "cgroup.procs").unlink()
    (root / pod / "1").rmdir()
    made(root, f"{pod}/3")
    *_, found = [groups.look({UID}) for _ in range(RECHECK_LOOKS)]
    assert paths(found, root) == [f"{pod}/2", f"{pod}/3", pod]


def test_a_pod_that_went_is_forgotten_and_one_that_comes_is_found(root: Path) -> None:
    groups = Groups(str(root))
    made(root, "kubepods/burstable")
    assert groups.look({UID, OTHER}) == ()
    first = made(root, f"kubepods/burstable/pod{UID}")
    assert len(groups.look({UID, OTHER})) == 1
    made(root, f"kubepods/burstable/pod{OTHER}")
    assert len(groups.look({UID, OTHER})) == 2
    (first / "cgroup.procs").unlink()
    first.rmdir()
    assert [group.pod_uid for group in groups.look({UID, OTHER})] == [OTHER]


def test_a_pod_with_too_many_groups_says_so(root: Path) -> None:
    for number in range(MOST_OF_POD + 1):
        made(root, f"kubepods/pod{UID}/{number}")
    *below, own = Groups(str(root)).look({UID})
    assert (own.has_more, len(below)) == (True, MOST_OF_POD)


def test_without_a_tree_of_version_2_there_are_no_groups(root: Path) -> None:
    made(root, f"kubepods/pod{UID}")
    (root / "cgroup.controllers").unlink()
    with pytest.raises(NoGroups, match=f"version 2 are not mounted at {root}"):
        Groups(str(root)).look({UID})
