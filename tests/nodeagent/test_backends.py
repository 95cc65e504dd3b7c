from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpu.limits import BACK_ENDS
from nodeagent.app import AgentSettings, back_ends
from nodeagent.cdi import NoCdi, generate, write
from nodeagent.core.enforcement.caps import Tenancy
from nodeagent.core.enforcement.container_edits import KEPT_S
from nodeagent.enforcement.hamicore import MOST_BYTES, MOST_LEFT, HamiCore
from tests.nodeagent.enforcement.test_hamicore import POD, head, holding
from tests.values import there


def test_a_back_end_is_off_unless_it_is_switched_on() -> None:
    assert list(back_ends(AgentSettings(node="n"))) == []


def test_each_back_end_is_one_that_pods_are_given_limits_for() -> None:
    all_on = back_ends(
        AgentSettings(node="n", hami_core=Path("/usr/local/vgpu/libvgpu.so"), mps_daemon=Path("/run/mps-daemon.sock"))
    )
    assert [one.name for one in all_on] == list(BACK_ENDS)


def test_a_library_is_looked_at_where_the_agent_sees_it(tmp_path: Path) -> None:
    seen_at = tmp_path / "libvgpu.so"
    seen_at.write_bytes(b"\x7fELF\x02\x01\x01")
    on_host = Path("/nowhere/libvgpu.so")
    (it,) = back_ends(AgentSettings(node="n", hami_core=on_host, hami_core_seen_at=seen_at, limits=tmp_path))
    seen_at.chmod(0o644)
    assert it.trouble() == ""


KIND = {"kind": "k8s.device-plugin.nvidia.com/gpu", "devices": []}


def program(folder: Path, script: str) -> str:
    path = folder / "nvidia-ctk"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_nvidias_program_makes_a_file_of_the_device_plugins_kind(tmp_path: Path) -> None:
    ctk = program(tmp_path, f"echo \"$@\" > {tmp_path}/asked; echo '{json.dumps(KIND)}'")
    assert json.loads(generate(ctk, "/run/nvidia/driver")) == KIND
    assert (tmp_path / "asked").read_text().split() == [
        "cdi",
        "generate",
        "--format=json",
        "--vendor=k8s.device-plugin.nvidia.com",
        "--class=gpu",
        "--device-name-strategy=uuid",
        "--driver-root=/run/nvidia/driver",
        "--output=-",
    ]


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo no driver >&2; exit 3", "ended with 3: no driver"),
        ("echo", "no JSON"),
        ("echo '[1]'", "of kind 'None'"),
        ("""echo '{"kind": "nvidia.com/gpu"}'""", "of kind 'nvidia.com/gpu'"),
        ("head -c 100000 /dev/zero | tr '\\0' '['", "no JSON"),
    ],
)
def test_another_output_is_no_file(tmp_path: Path, script: str, why: str) -> None:
    with pytest.raises(NoCdi, match=why):
        generate(program(tmp_path, script), "/")


def test_without_the_program_there_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(NoCdi, match="No such file"):
        generate(str(tmp_path / "none"), "/")


def test_the_file_takes_its_place_in_one_step(tmp_path: Path) -> None:
    write(tmp_path / "cdi", b"1")
    write(tmp_path / "cdi", b"2")
    assert [path.name for path in (tmp_path / "cdi").iterdir()] == ["moorage-gpu.json"]
    assert (tmp_path / "cdi" / "moorage-gpu.json").read_bytes() == b"2"
    (tmp_path / "file").touch()
    with pytest.raises(NoCdi):
        write(tmp_path / "file", b"3")


# The files of HAMi-core on a folder of the test, and tenants that do with theirs as they like.

OTHER = "00000000-1111-4222-8333-444444444444"
BOOT = "f37d3c5a-9d0b-4f6b-8e02-0c6a2c1d9a11"
TENANTS = {POD: [holding(cap_mib=20_000, compute_percent=30)]}
PLACED = {(POD, "GPU-a")}


def made(root: Path, *, boot: str = BOOT) -> HamiCore:
    library = root / "libvgpu.so"
    library.write_bytes(b"\x7fELF\x02\x01\x01")
    library.chmod(0o644)
    return HamiCore(library, root / "limits", boot=boot)


def cache(root: Path, pod: str = POD) -> Path:
    return root / "limits" / BOOT / pod


def prepared(root: Path) -> HamiCore:
    it = made(root)
    it.prepare(TENANTS)
    return it


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _of_files(ends: Callable[..., None]) -> Callable[..., None]:
    """What changes the mode of folders, and ends with the first file."""
    chmod = os.chmod

    def changed(path: Path, *how: Any, **more: Any) -> None:
        (chmod if Path(path).is_dir() else ends)(path, *how, **more)

    return changed


def test_what_edits_name_is_there_after_it_was_prepared(tmp_path: Path) -> None:
    it = prepared(tmp_path)
    given = there(it.edits(TENANTS[POD]))
    hosts = [Path(each["hostPath"]) for each in given.written()["mounts"]]
    assert [host.is_file() for host in hosts] == [True, True, True, False]
    assert (hosts[1].read_text(), mode(hosts[1])) == ("/usr/local/vgpu/libvgpu.so\n", 0o644)
    # Any user of a container writes there, and no other user of the machine gets so far.
    assert (hosts[2], mode(hosts[2]), mode(tmp_path / "limits")) == (cache(tmp_path), 0o666, 0o700)


def test_an_agent_that_ends_while_it_makes_a_file_leaves_none_that_users_of_the_container_cannot_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = made(tmp_path)
    it.prepare({})

    def ends(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as crash:
        crash.setattr(os, "fchmod", ends)
        crash.setattr(os, "chmod", _of_files(ends))
        with pytest.raises(KeyboardInterrupt):
            it.prepare(TENANTS)
    made(tmp_path).prepare(TENANTS)
    assert mode(cache(tmp_path)) == 0o666
    it.tidy(TENANTS.keys(), 0.0)
    assert [file.name for file in cache(tmp_path).parent.iterdir()] == [POD]


def test_containers_mount_the_library_from_the_host_also_where_the_agent_sees_it_elsewhere(tmp_path: Path) -> None:
    made(tmp_path)
    on_host = Path("/usr/lib64/libvgpu.so")
    it = HamiCore(on_host, tmp_path / "limits", boot=BOOT, seen_at=tmp_path / "libvgpu.so")
    given = there(it.edits(TENANTS[POD]))
    assert (it.trouble(), given.written()["mounts"][0]["hostPath"]) == ("", str(on_host))
    assert "/usr/lib64/libvgpu.so" in HamiCore(on_host, tmp_path, boot=BOOT, seen_at=tmp_path / "none").trouble()


def test_a_tenant_without_limits_gets_nothing(tmp_path: Path) -> None:
    it, tenant = made(tmp_path), [holding()]
    it.prepare({OTHER: tenant})
    assert it.edits(tenant) is None
    assert not cache(tmp_path, OTHER).exists()
    assert it.in_place({OTHER: tenant}) == set()


def test_a_file_that_a_container_has_stays_as_it_is_and_is_looked_at(tmp_path: Path) -> None:
    it = prepared(tmp_path)
    assert it.in_place(TENANTS) == set()
    number = cache(tmp_path).stat().st_ino
    cache(tmp_path).write_bytes(head() + bytes(2_000_000))
    it.prepare(TENANTS)
    it.tidy(TENANTS.keys(), 0.0)
    assert it.in_place(TENANTS) == PLACED
    assert cache(tmp_path).stat().st_ino == number
    cache(tmp_path).write_bytes(head(20_001))
    assert it.in_place(TENANTS) == set()


def test_only_memory_caps_are_in_place(tmp_path: Path) -> None:
    it = made(tmp_path)
    tenants: dict[str, list[Tenancy]] = {POD: [holding(cap_mib=20_000), holding("GPU-b", compute_percent=30)]}
    it.prepare(tenants)
    cache(tmp_path).write_bytes(head())
    assert it.in_place(tenants) == PLACED


def test_a_program_keeps_its_file_while_its_pod_is_in_no_book_also_over_a_restart_of_the_agent(tmp_path: Path) -> None:
    before = cache(tmp_path)
    prepared(tmp_path).tidy((), 1_000.0)
    inode = before.stat().st_ino
    with before.open("r+b") as program:
        it = made(tmp_path)
        it.prepare({})
        it.tidy((), 0.0)
        it.tidy((), KEPT_S - 1)
        it.prepare(TENANTS)
        it.tidy(TENANTS.keys(), KEPT_S)
        program.write(head())
    assert (cache(tmp_path).stat().st_ino, it.in_place(TENANTS)) == (inode, PLACED)
    it.tidy((), KEPT_S + 1)
    it.tidy((), 2 * KEPT_S)
    assert before.exists()
    it.tidy((), 2 * KEPT_S + 1)
    assert not before.exists()


def test_a_file_that_was_left_is_cut_like_others_and_of_many_the_oldest_are_removed(tmp_path: Path) -> None:
    it = prepared(tmp_path)
    with cache(tmp_path).open("wb") as file:
        file.truncate(1 << 40)
    it.tidy((), 0.0)
    assert it.in_place({}) == set()
    assert cache(tmp_path).stat().st_size == MOST_BYTES
    for number in range(MOST_LEFT):
        cache(tmp_path, f"{number:08d}-1111-4222-8333-444444444444").touch()
    it.tidy((), 1.0)
    assert not cache(tmp_path).exists()
    assert len(list(cache(tmp_path).parent.iterdir())) == MOST_LEFT


def test_unfinished_files_and_those_of_an_earlier_start_of_the_machine_are_removed(tmp_path: Path) -> None:
    before = made(tmp_path, boot="another")
    before.prepare(TENANTS)
    it = prepared(tmp_path)
    cache(tmp_path, f"{OTHER}.new").write_bytes(b"x")
    it.tidy([POD], 0.0)
    assert sorted(str(each.relative_to(tmp_path / "limits")) for each in (tmp_path / "limits").rglob("*")) == [
        BOOT,
        f"{BOOT}/{POD}",
        "ld.so.preload",
    ]


def test_a_preload_file_that_says_something_else_is_replaced(tmp_path: Path) -> None:
    it = prepared(tmp_path)
    preload = tmp_path / "limits" / "ld.so.preload"
    preload.write_text("/opt/other.so\n")
    it.prepare(TENANTS)
    assert preload.read_text() == "/usr/local/vgpu/libvgpu.so\n"


@pytest.mark.parametrize("size", [0, 1, 100, 1_855])
def test_a_short_file_says_nothing(tmp_path: Path, size: int) -> None:
    it = prepared(tmp_path)
    cache(tmp_path).write_bytes(head()[:size])
    assert it.in_place(TENANTS) == set()


def test_a_huge_file_is_cut_and_what_the_library_maps_is_kept(tmp_path: Path) -> None:
    it = prepared(tmp_path)
    with cache(tmp_path).open("wb") as file:
        file.write(head())
        file.truncate(1 << 40)
    assert it.in_place(TENANTS) == PLACED
    assert cache(tmp_path).stat().st_size == MOST_BYTES


def test_what_is_no_file_is_neither_followed_nor_waited_for(tmp_path: Path) -> None:
    """None of them can be made through the mount of one file; the look does not rest on that."""
    it, secret = prepared(tmp_path), tmp_path / "secret"
    secret.write_bytes(head())
    path = cache(tmp_path)
    ways: list[Callable[[], None]] = [
        lambda: path.symlink_to(secret),
        lambda: os.mkfifo(path),
        path.mkdir,
        lambda: path.symlink_to("/dev/zero"),
    ]
    for make in ways:
        path.unlink()
        make()
        assert it.in_place(TENANTS) == set()
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
            path.touch()
    assert secret.read_bytes() == head()


def test_a_file_that_vanished_is_made_again(tmp_path: Path) -> None:
    it = prepared(tmp_path)
    cache(tmp_path).unlink()
    assert it.in_place(TENANTS) == set()
    it.prepare(TENANTS)
    assert cache(tmp_path).exists()


@pytest.mark.parametrize(
    ("content", "permissions", "why"),
    [
        (None, 0, "can't be read: No such file or directory"),
        (b"#!/bin/sh\n", 0o644, "is no library of a machine with 64 bits"),
        (b"", 0o644, "is no library of a machine with 64 bits"),
        (b"\x7fELF\x01\x01", 0o644, "is no library of a machine with 64 bits"),
        (b"\x7fELF\x02\x01", 0o640, "may not be read by all users"),
        (b"\x7fELF\x02\x01", 0o644, ""),
    ],
)
def test_a_library_that_would_not_be_loaded_is_trouble(
    tmp_path: Path, content: bytes | None, permissions: int, why: str
) -> None:
    it, library = made(tmp_path), tmp_path / "libvgpu.so"
    if content is None:
        library.unlink()
    else:
        library.write_bytes(content)
        library.chmod(permissions)
    assert it.trouble().endswith(why)
    assert bool(it.trouble()) is bool(why)
