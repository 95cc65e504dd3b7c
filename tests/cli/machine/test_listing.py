"""GPUs and commands as ``moorage run --list`` prints them."""

from __future__ import annotations

import json

import pytest

from cli.machine.command import print_list
from cli.machine.placement import Gpu
from gpu.book import Book, Entry

SHARED = Book(
    {
        "20.1.1": Entry(nano=250_000_000, attempt="b", rv="", since=1_767_323_045, pod="ada/train"),
        "3.1.1": Entry(nano=500_000_000, attempt="b", rv="", since=10**15, pod="bob/\x1b[2J"),
        "nonsense": Entry(nano=1, attempt="b", rv="", since=-5, pod="eve/x"),
    }
)
GPUS = [Gpu(0, "GPU-a", 46068, "", SHARED), Gpu(1, "GPU-b", 0), Gpu(2, "GPU-c", 80000, "its MIG mode is on")]


def test_people_get_a_line_for_each_command(capsys: pytest.CaptureFixture[str]) -> None:
    print_list(GPUS, form="table", has_headers=True)
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == [
        "GPU   UUID    MEMORY      FREE          SHARE         PID   COMMAND              SINCE",
        "0     GPU-a   46068 MiB   0.249999999   0.000000001   0     eve/x                1970-01-01T00:00:00Z",
        "0     GPU-a   46068 MiB   0.249999999   0.5           3     bob/\\x1b[2J          3000-01-01T00:00:00Z",
        "0     GPU-a   46068 MiB   0.249999999   0.25          20    ada/train            2026-01-02T03:04:05Z",
        "1     GPU-b   -           1             -             -     -                    -",
        "2     GPU-c   80000 MiB   0             -             -     its MIG mode is on   -",
    ]


def test_programs_get_exact_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    print_list(GPUS[:1], form="json", has_headers=True)
    (gpu,) = json.loads(capsys.readouterr().out)
    assert gpu.pop("commands")[2] == {
        "pid": 20,
        "command": "ada/train",
        "nano": 250_000_000,
        "since": "2026-01-02T03:04:05Z",
    }
    assert gpu == {"index": 0, "uuid": "GPU-a", "memMiB": 46068, "freeNano": 249_999_999, "whyClosed": ""}
