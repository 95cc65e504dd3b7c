"""Which processes live, by keys that outlive them."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from cli.machine.books import Folder, Processes, pid_of
from cli.machine.placement import Gpu
from cli.run import environment, why_refused
from gpu.book import EMPTY, Book, Entry, MalformedBook
from gpu.bound_pod import LARGEST
from tests.cli.machine.launcher import ROOT

OWN = Processes().own_key()
PID, START, NAMESPACE = OWN.split(".")


def test_a_process_that_runs_lives() -> None:
    assert Processes().is_alive(OWN)
    assert pid_of(OWN) == os.getpid()


@pytest.mark.parametrize(
    "key",
    [
        f"{PID}.{int(START) + 1}.{NAMESPACE}",
        f"{PID}.{START}.{int(NAMESPACE) + 1}",
        f"4194304.{START}.{NAMESPACE}",
        f"9999999.{START}.{NAMESPACE}",
        f"0.{START}.{NAMESPACE}",
        f"-1.{START}.{NAMESPACE}",
        f"self.{START}.{NAMESPACE}",
        f"../{PID}.{START}.{NAMESPACE}",
        f"{PID}.{START}",
        "",
        "9" * 5000,
    ],
    ids=["used again", "namespace", "none", "large", "zero", "negative", "self", "path", "short", "empty", "long"],
)  # fmt: skip
def test_others_do_not(key: str) -> None:
    assert not Processes().is_alive(key)


def test_the_key_stays_behind_an_exec_and_a_process_that_nobody_waited_for_is_dead(tmp_path: Path) -> None:
    told = tmp_path / "key"
    program = (
        "import os, sys; from cli.machine.books import Processes; from pathlib import Path;"
        "Path(sys.argv[1]).write_text(Processes().own_key()); os.execv('/bin/cat', ['cat', sys.argv[1], '-'])"
    )
    command = [sys.executable, "-c", program, str(told)]
    started = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert started.stdout is not None
    key = started.stdout.read(len(OWN) - len(PID) + len(str(started.pid)))
    assert pid_of(key) == started.pid
    assert Processes().is_alive(key)
    started.kill()
    os.waitid(os.P_PID, started.pid, os.WEXITED | os.WNOWAIT)
    assert Path(f"/proc/{started.pid}/stat").exists()
    assert not Processes().is_alive(key)
    started.communicate(timeout=60)
    assert not Processes().is_alive(key)


@pytest.mark.parametrize("key", ["", "a.b.c", "1.2", "99999999.1.1"])
def test_what_is_no_key_has_no_pid(key: str) -> None:
    assert pid_of(key) == 0


# Books in files that several users may write, and the locks beside them.

BOOK = Book({"1.2.3": Entry(nano=5, attempt="boot", rv="", since=0, pod="a/b")})
HOLDS = """
import sys
from pathlib import Path
from cli.machine.books import Folder
folder = Folder(Path(sys.argv[1]))
{does}
"""


def process(folder: Folder, does: str) -> subprocess.Popen[str]:
    """A process that uses the folder; it has said "ready"."""
    command = [sys.executable, "-c", HOLDS.format(does=does), str(folder.path)]
    started = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
    assert started.stdout is not None
    assert started.stdout.readline() == "ready\n"
    return started


def ended(started: subprocess.Popen[str]) -> None:
    started.kill()
    started.communicate(timeout=60)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_a_book_is_read_as_it_was_written(folder: Folder) -> None:
    assert folder.book("GPU-a") == EMPTY
    folder.write("GPU-a", BOOK)
    assert folder.book("GPU-a") == BOOK
    folder.write("GPU-a", EMPTY)
    assert folder.book("GPU-a") == EMPTY


def test_what_a_killed_writer_left_does_not_stop_the_next_one(folder: Folder) -> None:
    (folder.path / "GPU-a.new").write_text("{")
    folder.write("GPU-a", BOOK)
    assert folder.book("GPU-a") == BOOK
    assert [each.name for each in folder.path.iterdir()] == ["GPU-a.json"]


def test_files_can_be_read_by_all_whatever_the_umask(folder: Folder) -> None:
    before = os.umask(0o077)
    try:
        folder.write("GPU-a", BOOK)
        folder.hold("1.2.3")
        with folder.queue(1):
            pass
    finally:
        os.umask(before)
    assert {each.stat().st_mode & 0o777 for each in folder.path.iterdir()} == {0o644}


@pytest.mark.parametrize(
    ("plant", "why"),
    [
        (lambda path: path.write_text("{"), "truncated"),
        (lambda path: path.write_text('{"1.2.3": {"nano": 2}}'), "attempt"),
        (lambda path: path.write_bytes(b"\xff\xfe"), "malformed"),
        (lambda path: path.write_text(" " * (LARGEST + 1)), "more than 262144 bytes"),
        (os.mkfifo, "no regular file"),
        (lambda path: path.symlink_to("/etc/hostname"), "symbolic link"),
        (lambda path: path.mkdir(), "directory"),
        (lambda path: path.symlink_to("/dev/zero"), "symbolic link"),
    ],
    ids=["half", "other", "bytes", "large", "pipe", "link", "folder", "endless"],
)
def test_what_is_no_book_is_told_and_read_no_further(folder: Folder, plant: Callable[[Path], object], why: str) -> None:
    plant(folder.path / "GPU-a.json")
    with pytest.raises((MalformedBook, OSError), match=why):
        folder.book("GPU-a")


def test_a_planted_link_is_not_written_through(folder: Folder, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (folder.path / "GPU-a.new").symlink_to(victim)
    (folder.path / "queue").symlink_to(victim)
    folder.write("GPU-a", BOOK)
    with pytest.raises(OSError, match="symbolic link"), folder.queue(1):
        pass
    assert victim.read_text() == "mine"


def test_a_file_is_held_until_the_last_process_that_inherited_it_has_ended(folder: Folder) -> None:
    """The command is killed, and what it started runs on."""
    does = "import subprocess; folder.hold('1.2.3'); c = subprocess.Popen(['sleep', '600'], close_fds=False)"
    first = process(folder, f"{does}; print('ready', flush=True); print(c.pid, flush=True); input()")
    assert first.stdout is not None
    pid = int(first.stdout.readline())
    assert folder.is_held("1.2.3")
    first.kill()
    first.wait(timeout=60)
    assert folder.is_held("1.2.3")
    folder.sweep()
    assert (folder.path / "1.2.3.held").exists()
    pidfd = os.pidfd_open(pid)
    os.kill(pid, 9)
    assert select.select([pidfd], [], [], 60)[0]
    os.close(pidfd)
    first.communicate(timeout=60)
    assert not folder.is_held("1.2.3")
    folder.sweep()
    assert list(folder.path.iterdir()) == []


@pytest.mark.parametrize("name", ["nobody", "1.2.3", "\x01"])
def test_a_file_that_nobody_has_open_is_not_held(folder: Folder, name: str) -> None:
    (folder.path / "1.2.3.held").touch()
    assert not folder.is_held(name)


def test_the_queue_is_given_up_after_its_time_and_free_when_its_holder_dies(folder: Folder) -> None:
    first = process(folder, "with folder.queue(5): print('ready', flush=True); input()")
    with pytest.raises(TimeoutError), folder.queue(0.05):
        pass
    ended(first)
    with folder.queue(5):
        pass


# What a command finds in its environment, and beside which kubelets it is not started.


@pytest.mark.parametrize(
    ("charges", "cuda", "fractions"),
    [
        ([("GPU-a", 500_000_000)], "GPU-a", "0.500"),
        ([("GPU-a", 97_656_250)], "GPU-a", "0.09765625"),
        ([("GPU-b", 1_000_000_000), ("GPU-a", 1_000_000_000)], "GPU-b,GPU-a", "1.000,1.000"),
    ],
)
def test_the_environment_names_gpus_and_shares(charges: list[tuple[str, int]], cuda: str, fractions: str) -> None:
    gpus = [Gpu(at, uuid, 0, charged_nano=nano) for at, (uuid, nano) in enumerate(charges)]
    assert environment(gpus) == {"CUDA_VISIBLE_DEVICES": cuda, "CLEARML_AGENT_GPU_FRACTIONS": fractions}


@pytest.mark.parametrize(
    ("registered", "why"),
    [
        ({}, ""),
        (None, ""),
        ({"example.com/npu": ["npu-0"], "nvidia.com/gpu": []}, ""),
        ({"nvidia.com/gpu": ["GPU-a", "GPU-b"]}, "gives out its GPUs as nvidia.com/gpu"),
        ({"a.io/share": ["GPU-a::0"], "a.io/x": ["MIG-1"]}, "gives out its GPUs as a.io/share, a.io/x"),
    ],
    ids=str,
)  # fmt: skip
def test_a_kubelet_that_gives_out_gpus_is_told(
    tmp_path: Path, registered: Mapping[str, list[str]] | None, why: str
) -> None:
    checkpoint = tmp_path / "kubelet_internal_checkpoint"
    data = {"PodDeviceEntries": None, "RegisteredDevices": registered}
    checkpoint.write_text(json.dumps({"Data": data, "Checksum": 1}))
    assert why_refused(checkpoint).removeprefix("the kubelet of this machine ") == why


def test_without_a_kubelet_nothing_is_refused(tmp_path: Path) -> None:
    assert why_refused(tmp_path / "no-kubelet" / "kubelet_internal_checkpoint") == ""


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"Data": 3}', '{"Data": {"RegisteredDevices": {"a": 1}}}', "[" * 10**6]
)
def test_a_kubelet_that_cannot_be_understood_may_give_out_gpus(tmp_path: Path, content: str) -> None:
    checkpoint = tmp_path / "kubelet_internal_checkpoint"
    checkpoint.write_text(content)
    assert "so a kubelet may give out the GPUs of this machine" in why_refused(checkpoint)
