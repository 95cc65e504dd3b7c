"""What ``moorage run`` requests, and which GPUs of the machine it gets, by their books (gpu/book.py). Arithmetic only.

The fullest GPUs that fit come first, so that whole ones stay free; ties by index.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from gpu.book import EMPTY, Book, Entry, Tenant, join
from gpu.share import NANO_PER_DEVICE, nano_from_memory
from gpu.translate.say import decimal
from runtime.text import BadInput
from wire.quantity import MalformedQuantity, mib_up, parse_nano

GPUS: Final = "a part as in 0.5, a number as in 2, or as many as are free as in 1-4; at most 999"
MEMORY: Final = "memory of one GPU as in 4Gi or 512Mi"
_WHOLE: Final = re.compile(r"([1-9][0-9]{0,2})(?:-([1-9][0-9]{0,2}))?", re.ASCII)


class Ask(msgspec.Struct, frozen=True, gc=False):
    """``least`` to ``most`` GPUs, of each ``nano`` and at least ``mem_mib`` MiB (0: any): the larger is charged."""

    least: int
    most: int
    nano: int
    mem_mib: int = 0

    def nano_on(self, card_mib: int) -> int | None:
        """Return the charge on a GPU of ``card_mib`` (0: unknown); None if it has too little memory."""
        if not self.mem_mib:
            return self.nano
        of_memory = nano_from_memory(self.mem_mib, card_mib)
        return None if of_memory is None else max(self.nano, of_memory)

    def shown(self) -> str:
        """Write it for people."""
        number = str(self.least) if self.least == self.most else f"{self.least} to {self.most}"
        whole = f"{number} whole {'GPU' if self.most == 1 else 'GPUs'}"
        amount = whole if self.nano == NANO_PER_DEVICE else f"{decimal(self.nano) if self.nano else 'a part'} of a GPU"
        return f"{amount} with {self.mem_mib} MiB" if self.mem_mib else amount


def requested(gpus: str | None, memory: str | None) -> Ask:
    """Read ``--gpus`` and ``--gpu-memory``, of which one has to be given. Raises BadInput."""
    if gpus is None and memory is None:
        raise BadInput(f"--gpus: missing; give {GPUS}, or --gpu-memory, {MEMORY}")
    mem_mib = mib_up(memory) if memory is not None and _nano("--gpu-memory", memory, MEMORY) else 0
    if found := _WHOLE.fullmatch(gpus or ""):
        least, most = int(found[1]), int(found[2] or found[1])
        if least <= most:
            return Ask(least, most, NANO_PER_DEVICE, mem_mib)
    nano = 0 if gpus is None else _nano("--gpus", gpus, GPUS)
    if nano > NANO_PER_DEVICE:
        raise BadInput(f"--gpus: {gpus!r} is not {GPUS}")
    return Ask(1, 1, nano, mem_mib)


def _nano(option: str, text: str, allowed: str) -> int:
    try:
        nano = parse_nano(text)
    except MalformedQuantity as error:
        raise BadInput(f"{option}: {error.shown} is not {allowed}") from error
    if nano <= 0:
        raise BadInput(f"{option}: {text!r} is not above 0; allowed: {allowed}")
    return nano


class Gpu(msgspec.Struct, frozen=True):
    """A GPU by NVML's index, with its book. ``mem_mib``: 0 where the driver does not report it.

    ``why_closed``: why it is not used, "" if it is. ``charged_nano``: of a GPU that is chosen, the charge in its book.
    """

    index: int
    uuid: str
    mem_mib: int
    why_closed: str = ""
    book: Book = EMPTY
    charged_nano: int = 0


class Shortfall(msgspec.Struct, frozen=True):
    """Why no ``gpus`` were chosen: ``fitting`` have room now, ``suitable`` would if no command ran."""

    ask: Ask
    gpus: Sequence[Gpu]
    fitting: int
    suitable: int

    @property
    def is_for_ever(self) -> bool:
        """Whether the machine could not hold it if no command ran."""
        return self.suitable < self.ask.least

    def shown(self) -> str:
        """Write it for people."""
        why = f"suitable GPUs: {self.suitable}, free now: {self.fitting}"
        if self.is_for_ever:
            why = f"suitable GPUs on this machine: {self.suitable}"
        elif self.ask.nano < NANO_PER_DEVICE:
            most = max(gpu.book.free_nano for gpu in self.gpus if not gpu.why_closed)
            why = f"no GPU has that free, the most is {decimal(most)}"
        closed = "".join(f"; GPU {gpu.index} is not used: {gpu.why_closed}" for gpu in self.gpus if gpu.why_closed)
        return f"{self.ask.shown()} requested, {why}{closed}"


def place(ask: Ask, gpus: Sequence[Gpu], key: str, entry: Entry) -> tuple[Gpu, ...] | Shortfall:
    """Choose ``ask.least`` to ``ask.most`` GPUs, by index, with ``key`` in their books."""
    suitable = [(gpu, nano) for gpu in gpus if not gpu.why_closed and (nano := ask.nano_on(gpu.mem_mib)) is not None]
    fitting = [joined for gpu, nano in suitable if (joined := _joined(gpu, nano, key, entry)) is not None]
    if len(fitting) < ask.least:
        return Shortfall(ask, gpus, len(fitting), len(suitable))
    fullest = sorted(fitting, key=lambda gpu: (gpu.book.free_nano, gpu.index))[: ask.most]
    return tuple(sorted(fullest, key=lambda gpu: gpu.index))


def _joined(gpu: Gpu, nano: int, key: str, entry: Entry) -> Gpu | None:
    book = join(gpu.book, [Tenant(key, msgspec.structs.replace(entry, nano=nano))])
    return msgspec.structs.replace(gpu, book=book, charged_nano=nano) if isinstance(book, Book) else None
