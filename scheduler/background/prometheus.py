"""What a Prometheus is asked about the use of queues, and what its answers say, with an end to their time and size.

The questions are KAI's (kai-contract 4.11): what was allocated to each queue, summed over the window, and what the
cluster had, likewise. The allocation is the largest of equal series, since two scrapes of one scheduler, or two
schedulers, may tell the same.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from fractions import Fraction
from typing import Final, NamedTuple

import aiohttp
import msgspec

from scheduler.core.queues.use_over_time import Ppb, Source, UseOverTime, UsePeriod, window_began_s
from scheduler.settings import UseSource

#: What 10,000 queues take is a tenth of that.
MOST_BYTES: Final = 16 << 20
_MOST_BYTES_OF_ERROR: Final = 4096
_SHOWN: Final = 200


class NoAnswer(Exception):
    """Raised when there is no answer; says why, in one line."""


class Prometheus:
    """One server. Use it inside ``asking`` only."""

    def __init__(self, session: aiohttp.ClientSession, source: UseSource) -> None:
        self._session = session
        self._url = f"{source.url.rstrip('/')}/api/v1/query"
        self._timeout_s = source.timeout_s

    async def ask(self, query: str, at_s: int) -> bytes:
        """The answer to an instant query, as of a time in seconds since the epoch. Raises NoAnswer."""
        form = {"query": query, "time": str(at_s), "timeout": f"{self._timeout_s:g}s"}
        try:
            async with (
                asyncio.timeout(self._timeout_s),
                self._session.post(self._url, data=form, allow_redirects=False) as response,
            ):
                if response.status != 200:
                    raise NoAnswer(await _refusal(response))
                return await _bounded(response, MOST_BYTES)
        except TimeoutError as error:
            raise NoAnswer(f"no answer within {self._timeout_s:g} s") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise NoAnswer(_in_one_line(str(error) or type(error).__name__)) from error


@asynccontextmanager
async def asking(source: UseSource) -> AsyncIterator[Prometheus]:
    """A Prometheus that can be asked."""
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=1),
        headers={"User-Agent": "moorage", "Accept": "application/json", "Accept-Encoding": "identity"},
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(),
        trust_env=False,
        auto_decompress=False,
    ) as session:
        yield Prometheus(session, source)


async def _refusal(response: aiohttp.ClientResponse) -> str:
    """What a server says that refuses; Prometheus says it in JSON."""
    body = await response.content.read(_MOST_BYTES_OF_ERROR)
    try:
        said = msgspec.json.decode(body, type=_Refusal).error
    except (msgspec.MsgspecError, UnicodeDecodeError):
        said = ""
    return _in_one_line(f"HTTP {response.status} {said or response.reason or ''}".rstrip())


class _Refusal(msgspec.Struct):
    error: str = ""


async def _bounded(response: aiohttp.ClientResponse, most: int) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > most:
            raise NoAnswer(f"the answer is larger than {most >> 20} MiB")
    return bytes(body)


def _in_one_line(text: str) -> str:
    return "".join(each if each.isprintable() else " " for each in text)[:_SHOWN]


_QUEUE_LABEL: Final = "queue_name"
_PPB: Final = 10**9


class Queries(NamedTuple):
    """Of one dimension, in PromQL."""

    allocated: str
    capacity: str


#: In the order of ``Resources``. Both of a dimension are in one unit: cores, bytes, GPUs.
_SERIES: Final = (
    Queries("kai_queue_allocated_cpu_cores", 'kube_node_status_capacity{resource="cpu"}'),
    Queries("kai_queue_allocated_memory_bytes", 'kube_node_status_capacity{resource="memory"}'),
    Queries("kai_queue_allocated_gpus", 'kube_node_status_capacity{resource="nvidia_com_gpu"}'),
)


class Malformed(Exception):
    """Raised when an answer can't be used; says why."""


def queries(period: UsePeriod, resolution_s: int, now_s: int) -> tuple[Queries, ...]:
    """What to ask about each dimension. ``resolution_s``: between two samples that are summed."""
    window_s = max(resolution_s, now_s - window_began_s(period, now_s))
    fading = f" * 0.5 ^ (({now_s} - time()) / {period.half_life_s})" if period.half_life_s else ""

    def summed(expression: str) -> str:
        return f"sum_over_time(({expression}{fading})[{window_s}s:{resolution_s}s])"

    return tuple(
        Queries(summed(f"max by ({_QUEUE_LABEL}) ({of.allocated})"), summed(f"sum({of.capacity})")) for of in _SERIES
    )


class Sums(NamedTuple):
    """The answers about one dimension. ``capacity`` None: Prometheus knows of none."""

    allocated: Mapping[str, Fraction]
    capacity: Fraction | None


class _Sample(msgspec.Struct, frozen=True, gc=False):
    metric: dict[str, str]
    value: tuple[float, str]


class _Data(msgspec.Struct, frozen=True, rename="camel"):
    result_type: str
    result: msgspec.Raw = msgspec.Raw(b"[]")


class _Answer(msgspec.Struct, frozen=True):
    status: str
    error: str = ""
    data: _Data | None = None


def sums(allocated: bytes, capacity: bytes) -> Sums:
    """Read two answers. Raises Malformed."""
    of = {sample.metric.get(_QUEUE_LABEL, ""): _amount(sample) for sample in _vector(allocated)}
    all_of_it = [_amount(sample) for sample in _vector(capacity)]
    return Sums(of, sum(all_of_it, Fraction()) if all_of_it else None)


def _vector(answer: bytes) -> list[_Sample]:
    try:
        read = msgspec.json.decode(answer, type=_Answer)
        if read.status != "success" or read.data is None:
            raise Malformed(read.error[:_SHOWN] or f"status is {read.status[:_SHOWN]!r}; it must be 'success'")
        if read.data.result_type != "vector":
            raise Malformed(f"resultType is {read.data.result_type[:_SHOWN]!r}; it must be 'vector'")
        return msgspec.json.decode(read.data.result, type=list[_Sample])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Malformed(f"no answer of Prometheus: {str(error)[:_SHOWN]}") from error


def _amount(sample: _Sample) -> Fraction:
    try:
        value = float(sample.value[1])
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise Malformed(f"value is {sample.value[1][:_SHOWN]!r}; it must be a finite number, 0 or more")
    return Fraction(value)


def used(answers: Sequence[Sums], period: UsePeriod, names: Collection[str]) -> UseOverTime:
    """The part of the cluster that each of these queues used, those below it included. Raises Malformed."""
    for of, series in zip(answers, _SERIES, strict=True):
        if of.capacity is None and any(of.allocated.values()):
            raise Malformed(f"there is {series.allocated}, and no {series.capacity}")
    if all(of.capacity is None for of in answers):
        raise Malformed("there is no kube_node_status_capacity (of kube-state-metrics)")
    found = {name: _part(answers, name) for name in names if any(name in of.allocated for of in answers)}
    return UseOverTime(of=found, k_milli=period.k_milli, source=Source.PROMETHEUS)


def _part(answers: Sequence[Sums], name: str) -> Ppb:
    cpu, mem, gpu = (
        math.floor(of.allocated.get(name, Fraction()) * _PPB / of.capacity) if of.capacity else 0 for of in answers
    )
    return cpu, mem, gpu
