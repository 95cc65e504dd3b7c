"""How the C library keeps memory that was freed: so that it can be given back.

asyncio has a buffer of 256 KiB for each TLS connection. glibc takes such a block from the kernel at first, but once one
was freed it takes those that follow from its heap. There small objects come to lie between them, and a process that
had many connections once never gets smaller again, and a little larger with each burst. Measured with pods that come
and go (``python -m bench churn``), in processes whose Python objects did not grow at all: 10 of the binder's 79 MiB and
12 of the scheduler's 70 were free, in pieces.

Other C libraries than glibc are left as they are.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

import anyio

#: Blocks from this size on are the kernel's again when they are freed.
LARGE_BYTES: Final = 256 * 1024
#: <malloc.h>; 0 is failure.
_M_MMAP_THRESHOLD: Final = -3
_TRIM_EVERY_S: Final = 60.0


def keep_large_blocks_apart(library: Any = None) -> bool:
    """Have blocks of LARGE_BYTES and more mapped each on its own; return whether the C library can.

    Not for the scheduler, which copies its table for each decision: a fresh mapping costs a page fault every 4 KiB, and
    a decision over 10,000 nodes takes 1.2 ms instead of 0.4.
    """
    mallopt = getattr(library or ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES) == 1


async def trim_now_and_then(library: Any = None) -> None:
    """Give free pages back once a minute, until cancelled; end at once where the C library can't.

    For the scheduler, in place of the above. It takes some milliseconds (14 for 10 MiB in pieces, on a busy machine),
    and the pages that are used again are faulted in once.
    """
    trim = getattr(library or ctypes.CDLL(None), "malloc_trim", None)
    while trim is not None:
        await anyio.sleep(_TRIM_EVERY_S)
        trim(0)
