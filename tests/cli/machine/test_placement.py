"""What a line of ``moorage run`` requests, and which GPUs that gets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.machine.placement import Ask, Gpu, Shortfall, place, requested
from gpu.book import Book, Entry
from gpu.share import NANO_PER_DEVICE
from runtime.text import BadInput

GIB = 1024
WHOLE = NANO_PER_DEVICE
ENTRY = Entry(nano=0, attempt="boot", rv="", since=0, pod="a/train")


def gpu(index: int, *taken: int, mem_mib: int = 80 * GIB, why_closed: str = "") -> Gpu:
    entries = {
        f"{index}.{at}.1": Entry(nano=nano, attempt="b", rv="", since=0, pod="") for at, nano in enumerate(taken)
    }
    return Gpu(index, f"GPU-{index}", mem_mib, why_closed, Book(entries))


def placed(ask: Ask, *gpus: Gpu) -> list[tuple[int, int]]:
    found = place(ask, gpus, "key", ENTRY)
    assert not isinstance(found, Shortfall), found.shown()
    assert all(one.book.entries["key"].nano == one.charged_nano for one in found)
    return [(one.index, one.charged_nano) for one in found]


@pytest.mark.parametrize(
    ("gpus", "memory", "asks"),
    [
        ("0.5", None, Ask(1, 1, WHOLE // 2)),
        ("0.123456789", None, Ask(1, 1, 123_456_789)),
        ("500m", None, Ask(1, 1, WHOLE // 2)),
        ("1", None, Ask(1, 1, WHOLE)),
        ("1.0", None, Ask(1, 1, WHOLE)),
        ("2", None, Ask(2, 2, WHOLE)),
        ("1-4", None, Ask(1, 4, WHOLE)),
        ("3-3", None, Ask(3, 3, WHOLE)),
        (None, "4Gi", Ask(1, 1, 0, 4 * GIB)),
        (None, "1000000", Ask(1, 1, 0, 1)),
        ("0.5", "4Gi", Ask(1, 1, WHOLE // 2, 4 * GIB)),
        ("2", "40Gi", Ask(2, 2, WHOLE, 40 * GIB)),
    ],
)
def test_a_line_requests_a_part_or_whole_gpus(gpus: str | None, memory: str | None, asks: Ask) -> None:
    assert requested(gpus, memory) == asks


@pytest.mark.parametrize(
    ("gpus", "memory", "begins"),
    [
        (None, None, "--gpus: missing; give a part as in 0.5"),
        ("1.5", None, "--gpus: '1.5' is not a part as in 0.5"),
        ("0", None, "--gpus: '0' is not above 0"),
        ("-1", None, "--gpus: '-1' is not above 0"),
        ("4-1", None, "--gpus: '4-1' is not a part"),
        ("1000", None, "--gpus: '1000' is not a part"),
        ("0-2", None, "--gpus: '0-2' is not a part"),
        ("all", None, "--gpus: 'all' is not a part"),
        ("9" * 200, None, "--gpus: '99"),
        ("0.5", "lots", "--gpu-memory: 'lots' is not memory of one GPU"),
        (None, "0", "--gpu-memory: '0' is not above 0"),
    ],
)
def test_other_lines_are_refused_with_what_is_allowed(gpus: str | None, memory: str | None, begins: str) -> None:
    with pytest.raises(BadInput) as refused:
        requested(gpus, memory)
    told = str(refused.value).replace("quantity ", "")
    assert told.startswith(begins)
    assert len(told) < 260


@pytest.mark.parametrize(
    ("ask", "gpus", "expected"),
    [
        (Ask(1, 1, 500_000_000), [gpu(0), gpu(1, 400_000_000)], [(1, 500_000_000)]),
        (Ask(1, 1, 700_000_000), [gpu(0), gpu(1, 400_000_000)], [(0, 700_000_000)]),
        (Ask(1, 1, 500_000_000), [gpu(0), gpu(1)], [(0, 500_000_000)]),
        (Ask(2, 2, WHOLE), [gpu(0), gpu(1, 1), gpu(2)], [(0, WHOLE), (2, WHOLE)]),
        (Ask(1, 4, WHOLE), [gpu(0, 1), gpu(1), gpu(2)], [(1, WHOLE), (2, WHOLE)]),
        (Ask(1, 2, WHOLE), [gpu(0), gpu(1), gpu(2)], [(0, WHOLE), (1, WHOLE)]),
        (Ask(1, 1, 0, 20 * GIB), [gpu(0, mem_mib=16 * GIB), gpu(1)], [(1, WHOLE // 4)]),
        (Ask(1, 1, 0, 20 * GIB), [gpu(0), gpu(1, mem_mib=40 * GIB)], [(1, WHOLE // 2)]),
        (Ask(1, 1, 900_000_000, 20 * GIB), [gpu(0)], [(0, 900_000_000)]),
        (Ask(1, 1, 100_000_000, 20 * GIB), [gpu(0)], [(0, WHOLE // 4)]),
        (Ask(1, 2, WHOLE, 60 * GIB), [gpu(0, mem_mib=40 * GIB), gpu(1)], [(1, WHOLE)]),
        (Ask(1, 1, WHOLE), [gpu(0, why_closed="its MIG mode is on"), gpu(1)], [(1, WHOLE)]),
        (Ask(1, 1, 1), [gpu(0, mem_mib=0)], [(0, 1)]),
    ],
    ids=str,
)
def test_the_fullest_gpus_that_fit_come_first(ask: Ask, gpus: list[Gpu], expected: list[tuple[int, int]]) -> None:
    assert placed(ask, *gpus) == expected


@pytest.mark.parametrize(
    ("ask", "gpus", "told", "for_ever"),
    [
        (Ask(1, 1, WHOLE // 2), [gpu(0, 750_000_000), gpu(1, 800_000_000)],
         "0.5 of a GPU requested, no GPU has that free, the most is 0.25", False),
        (Ask(2, 2, WHOLE), [gpu(0), gpu(1, 1)], "2 whole GPUs requested, suitable GPUs: 2, free now: 1", False),
        (Ask(3, 4, WHOLE), [gpu(0), gpu(1)], "3 to 4 whole GPUs requested, suitable GPUs on this machine: 2", True),
        (Ask(1, 1, 0, 90 * GIB), [gpu(0)],
         "a part of a GPU with 92160 MiB requested, suitable GPUs on this machine: 0", True),
        (Ask(1, 1, WHOLE, 90 * GIB), [gpu(0)],
         "1 whole GPU with 92160 MiB requested, suitable GPUs on this machine: 0", True),
        (Ask(1, 1, 0, 1), [gpu(0, mem_mib=0)],
         "a part of a GPU with 1 MiB requested, suitable GPUs on this machine: 0", True),
        (Ask(1, 1, WHOLE), [gpu(0, 1), gpu(1, why_closed="its MIG mode is on")],
         "1 whole GPU requested, suitable GPUs: 1, free now: 0; GPU 1 is not used: its MIG mode is on", False),
        (Ask(1, 1, WHOLE), [], "1 whole GPU requested, suitable GPUs on this machine: 0", True),
    ],
    ids=str,
)  # fmt: skip
def test_what_is_missing_is_told(ask: Ask, gpus: list[Gpu], told: str, for_ever: bool) -> None:
    found = place(ask, gpus, "key", ENTRY)
    assert isinstance(found, Shortfall)
    assert (found.shown(), found.is_for_ever) == (told, for_ever)


@given(
    taken=st.lists(st.lists(st.integers(1, WHOLE // 3), max_size=3), max_size=5),
    ask=st.builds(
        lambda least, more, nano, mem: Ask(least, least + more, nano, mem) if nano == WHOLE else Ask(1, 1, nano, mem),
        st.integers(1, 3),
        st.integers(0, 3),
        st.one_of(st.just(WHOLE), st.integers(1, WHOLE)),
        st.integers(0, 90 * GIB),
    ),
)
def test_no_gpu_is_ever_given_beyond_what_it_has(taken: list[list[int]], ask: Ask) -> None:
    """And what is refused is really not there: counted without books."""
    gpus = [gpu(index, *each) for index, each in enumerate(taken)]
    free = {index: WHOLE - sum(each) for index, each in enumerate(taken)}
    need = max(ask.nano, ask.mem_mib * WHOLE // (80 * GIB))
    fitting = [index for index in free if need <= free[index] and ask.mem_mib <= 80 * GIB]
    found = place(ask, gpus, "key", ENTRY)
    if isinstance(found, Shortfall):
        assert len(fitting) < ask.least
        return
    assert len(found) == min(ask.most, len(fitting))
    assert all(one.index in fitting and one.book.total_nano <= WHOLE for one in found)
