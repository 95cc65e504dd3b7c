"""A long comparison in parts: each finished part is a line of a file, so a run that was stopped goes on where it was.

A part counts only for the code that it was compared with (``code``): Moorage's, the generator's and the oracle's. Lines
of other code, another seed or another size are left alone, and a line that was cut off is compared again.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from tools.kubeoracle import program
from tools.kubeoracle.comparing import Coverage
from tools.kubeoracle.running import Found

#: Snapshots of a part: some minutes of work, which is what a stop can lose.
SIZE: Final = 10_000
_ROOT: Final = Path(__file__).parents[2]
#: Folders whose text decides what is compared.
_CODE: Final = ("scheduler", "gpu", "wire", "tools/kubeoracle")


class Part(msgspec.Struct, frozen=True):
    """One line: snapshots ``first`` to ``first + count``, our CPU time, what was seen, what differs."""

    code: str
    first: int
    count: int
    cpu_s: float
    nodes: int
    feasible: int
    let_in: dict[str, int]
    kept_out: dict[str, int]
    ranked: dict[str, int]
    ranked_some: dict[str, int]
    differences: tuple[str, ...] = ()


def code(root: Path = _ROOT) -> str:
    """Name the code: the text of all that decides an answer, and the oracle's own."""
    digest = hashlib.sha256(program.key().encode())
    for folder in _CODE:
        for path in sorted((root / folder).rglob("*.py")):
            digest.update(str(path.relative_to(root)).encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def ranges(first: int, count: int, size: int = SIZE) -> Iterator[range]:
    """The parts of a run, in order; the last one may be smaller."""
    for begin in range(first, first + count, size):
        yield range(begin, min(begin + size, first + count))


def run_parts(
    path: Path,
    wanted: Iterator[range],
    compare: Callable[[range], tuple[Found, float]],
    *,
    of_code: str,
    most: int = 10,
) -> tuple[Found, float, int]:
    """Compare the parts that ``path`` does not have, and add up all; stop after ``most`` differences.

    ``compare`` says what it found, and its CPU seconds. Returns the sums, and how many snapshots were known before.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    known = {(part.first, part.count): part for part in _read(path) if part.code == of_code}
    found, cpu_s, before = Found(), 0.0, 0
    for asked in wanted:
        part = known.get((asked.start, len(asked)))
        if part is None:
            part = _part(of_code, asked, *compare(asked))
            # What stopped early is no part: its other snapshots were not compared.
            if len(part.differences) < most:
                _append(path, part)
        else:
            before += part.count
        _add(found, part)
        cpu_s += part.cpu_s
        if len(found.differences) >= most:
            break
    return found, cpu_s, before


def _part(of_code: str, asked: range, found: Found, cpu_s: float) -> Part:
    seen = found.coverage
    return Part(
        code=of_code,
        first=asked.start,
        count=seen.snapshots,
        cpu_s=cpu_s,
        nodes=seen.nodes,
        feasible=seen.feasible,
        let_in=seen.let_in,
        kept_out=seen.kept_out,
        ranked=seen.ranked,
        ranked_some=seen.ranked_some,
        differences=tuple(found.differences),
    )


def _add(found: Found, part: Part) -> None:
    found.differences += part.differences
    found.coverage.add(
        Coverage(
            snapshots=part.count,
            nodes=part.nodes,
            feasible=part.feasible,
            let_in=Counter(part.let_in),
            kept_out=Counter(part.kept_out),
            ranked=Counter(part.ranked),
            ranked_some=Counter(part.ranked_some),
        )
    )


def _read(path: Path) -> Iterator[Part]:
    for line in path.read_bytes().splitlines() if path.exists() else ():
        try:
            yield msgspec.json.decode(line, type=Part)
        except msgspec.MsgspecError:
            continue


def _append(path: Path, part: Part) -> None:
    cut_off = path.exists() and not path.read_bytes().endswith(b"\n") and path.stat().st_size
    with path.open("ab") as out:
        out.write((b"\n" if cut_off else b"") + msgspec.json.encode(part) + b"\n")
