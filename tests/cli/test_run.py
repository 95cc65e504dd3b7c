"""``moorage run`` as users call it, on the GPUs of an emulated NVML."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.run import why_refused
from tests.quick import few_rows
from tools.nvml_stub.build import build

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("stub"))


class Shell:
    """A user's shell on a machine with two GPUs."""

    def __init__(self, folder: Path, library: Path) -> None:
        self.state = folder / "state"
        self.state.write_text("gpu GPU-a NVIDIA_L40S 46068 5\ngpu GPU-b NVIDIA_H100_80GB_HBM3 81559 2\n")
        self.folder = folder / "books"
        self.environ = {**os.environ, "FAKE_NVML_STATE": str(self.state), "LD_LIBRARY_PATH": str(library)}
        self.environ |= {"LOGNAME": "ada"}
        self._started: list[subprocess.Popen[str]] = []

    def start(self, *arguments: str, waits: bool = False) -> subprocess.Popen[str]:
        """Start a command, and return when it runs, or waits."""
        folder = ["--folder", str(self.folder), "--beside-kubelet"]
        command = [sys.executable, "-m", "cli.main", "run", *folder, *arguments]
        pipe = subprocess.PIPE
        made = subprocess.Popen(command, cwd=ROOT, env=self.environ, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        self._started.append(made)
        assert made.stderr is not None
        line = made.stderr.readline()
        assert ("waiting" in line) is waits, line
        return made

    def run(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, stdout and stderr of a command, without the beginning that all lines have."""
        folder = ["--folder", str(self.folder), "--beside-kubelet"]
        command = [sys.executable, "-m", "cli.main", "run", *folder, *arguments]
        done = subprocess.run(
            command, cwd=ROOT, env=self.environ, capture_output=True, text=True, check=False, timeout=PATIENCE_S
        )
        return done.returncode, done.stdout, done.stderr.replace("moorage: ", "").removesuffix("\n")

    def stop(self) -> None:
        for each in self._started:
            each.kill()
            each.communicate(timeout=PATIENCE_S)


@pytest.fixture
def shell(tmp_path: Path, library: Path) -> Iterator[Shell]:
    made = Shell(tmp_path, library)
    yield made
    made.stop()


def test_a_command_gets_a_share_of_a_gpu(shell: Shell) -> None:
    """The command line, its own options too, its exit code, and signals as any program has them."""
    program = "import os, sys; print(os.environ['CLEARML_AGENT_GPU_FRACTIONS'], sys.argv[1:]); sys.exit(7)"
    code, out, err = shell.run("--gpus", "0.5", "--", sys.executable, "-c", program, "--gpus", "2", "--", "-v")
    assert (code, out) == (7, "0.500 ['--gpus', '2', '--', '-v']\n")
    assert err == "0.500 of GPU 0 (GPU-a); limits are not enforced"
    # -- may be left out: what follows the command is its own.
    code, out, _ = shell.run("--gpus", "0.5", sys.executable, "-c", program, "--gpus", "2", "--", "-v")
    assert (code, out) == (7, "0.500 ['--gpus', '2', '--', '-v']\n")
    _, out, _ = shell.run("--gpus", "0.5", "--", "grep", "SigIgn", "/proc/self/status")
    ignored = int(out.split()[1], 16)
    assert not ignored & (1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGTSTP - 1))


def test_two_users_share_a_gpu_and_a_killed_command_gives_its_share_back(shell: Shell) -> None:
    first = shell.start("--gpus", "0.5", "--", "sleep", "600")
    shell.environ["LOGNAME"] = "bob"
    shell.start("--gpu-memory", "20Gi", "--", "sleep", "600")
    code, out, _ = shell.run("--list")
    assert code == 0
    rows = [re.split(r"\s{2,}", line.strip()) for line in out.splitlines()]
    assert [row[:2] + row[3:5] + row[6:7] for row in rows] == [
        ["GPU", "UUID", "FREE", "SHARE", "COMMAND"],
        ["0", "GPU-a", "0.055439785", "0.5", "ada/sleep"],
        ["0", "GPU-a", "0.055439785", "0.444560215", "bob/sleep"],
        ["1", "GPU-b", "1", "-", "-"],
    ]
    first.send_signal(signal.SIGKILL)
    first.wait(timeout=PATIENCE_S)
    assert shell.run("--gpus", "0.5", "--", "printenv", "CUDA_VISIBLE_DEVICES")[:2] == (0, "GPU-a\n")


def test_a_full_machine_refuses_or_waits_and_says_why(shell: Shell) -> None:
    holder = shell.start("--gpus", "2", "--", "sleep", "600")
    full = "0.5 of a GPU requested, no GPU has that free, the most is 0"
    assert shell.run("--gpus", "0.5", "--", "true") == (75, "", f"{full}; see --list, or wait with --wait TIME")
    waiting = shell.start("--gpus", "0.5", "--wait", "10m", "--", "printenv", "CUDA_VISIBLE_DEVICES", waits=True)
    holder.kill()
    assert waiting.communicate(timeout=PATIENCE_S)[0] == "GPU-a\n"
    assert waiting.returncode == 0


@pytest.mark.thorough
def test_the_page_shows_what_is_printed(shell: Shell) -> None:
    """But for PIDs and times, and for programs that nobody has."""
    page = (ROOT / "docs" / "run.md").read_text(encoding="utf-8")
    started, listed, full = re.findall(r"```console\n(.*?)```", page, re.DOTALL)
    shell.state.write_text("gpu GPU-5f2c NVIDIA_H100 81559 0\ngpu GPU-91d0 NVIDIA_H100 81559 1\n")
    assert shell.run("--gpus", "0.5", "--", "true")[2] == started.splitlines()[1].removeprefix("moorage: ")
    stays = ["--", sys.executable, "-c", "input()"]
    shell.start("--gpus", "0.5", *stays)
    shell.environ["LOGNAME"] = "bob"
    shell.start("--gpus", "0.375", *stays)
    assert masked(shell.run("--list")[1]) == masked(listed.partition("\n")[2])
    assert shell.run("--gpus", "2", *stays)[2] == full.splitlines()[1].removeprefix("moorage: ")


def masked(table: str) -> list[list[str]]:
    """Rows without their PIDs and times, and the rows of one GPU in the order of their names."""
    rows = [re.split(r"\s{2,}", line.strip()) for line in table.splitlines()]
    return sorted([*row[:5], row[6]] for row in rows)


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    few_rows([
        (["--", "true"], 2, "--gpus: missing; give a part as in 0.5"),
        (["--gpus", "0.5"], 2, "COMMAND: missing; give it last, as in moorage run --gpus 0.5 -- python train.py"),
        (["--gpus", "0.5", "--"], 2, "COMMAND: missing"),
        (["--list", "--", "true"], 2, "--list: not with a command"),
        (["--list", "--gpus", "1"], 2, "--list: not with a command, --gpus or --gpu-memory"),
        (["--gpus", "0.5", "--lr", "3", "true"], 2, "unrecognized arguments: --lr"),
        (["true", "--gpus", "0.5"], 2, "--gpus: missing"),
        (["--gpus", "3", "--", "true"], 2, "--gpus, --gpu-memory: 3 whole GPUs requested, suitable"),
        (["--gpus", "1", "--wait", "soon", "--", "true"], 2, "--wait: 'soon' is not a number with ms, s, m or h"),
        (["--gpus", "1", "--", "no-such-program"], 127, "no-such-program: command not found"),
        (["--gpus", "1", "--", "./pyproject.toml"], 126, "./pyproject.toml: not an executable file"),
        (["--gpus", "1", "--folder", "/proc/books", "--", "true"], 2, "--folder: /proc/books can't be used: No"),
    ], 4),
    ids=str,
)  # fmt: skip
def test_bad_input_is_refused_with_what_to_do(shell: Shell, arguments: list[str], code: int, told: str) -> None:
    ended, out, err = shell.run(*arguments)
    assert (ended, out) == (code, "")
    assert err.startswith(told)
    assert not list(shell.folder.glob("*.json"))


def test_a_program_that_the_kernel_does_not_start_takes_no_share(shell: Shell, tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF nothing")
    program.chmod(0o755)
    code, _, err = shell.run("--gpus", "1", "--", str(program))
    assert (code, err.splitlines()[-1]) == (126, f"{program}: Exec format error")
    assert shell.run("--gpus", "2", "--", "true")[0] == 0


def test_a_machine_without_a_driver_says_so(shell: Shell) -> None:
    shell.state.unlink()
    why = "the GPUs can't be read: unable to initialize NVML: Driver Not Loaded"
    assert shell.run("--list") == (1, "", f"{why}; check NVIDIA's driver with nvidia-smi")
    # Bad input is refused before the driver is asked.
    assert shell.run("--gpus", "1.5", "--", "true")[0] == 2
    assert shell.run("--gpus", "0.5", "--wait", "soon", "--", "true")[0] == 2


def test_gpus_in_mig_mode_are_left_alone(shell: Shell) -> None:
    shell.state.write_text(shell.state.read_text() + "mig MIG-a GPU-b 9856\n")
    assert shell.run("--gpus", "1-2", "--", "printenv", "CUDA_VISIBLE_DEVICES")[:2] == (0, "GPU-a\n")
    assert "its MIG mode is on" in shell.run("--list")[1]


@pytest.mark.skipif(bool(why_refused()), reason="a kubelet gives out the GPUs of this machine")
def test_without_a_kubelet_no_option_is_needed(shell: Shell) -> None:
    command = [sys.executable, "-m", "cli.main", "run", "--folder", str(shell.folder), "--gpus", "1", "--", "true"]
    assert subprocess.run(command, cwd=ROOT, env=shell.environ, check=False, timeout=PATIENCE_S).returncode == 0
