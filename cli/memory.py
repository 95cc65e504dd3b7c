"""How the C library is to hand out large blocks: so that they can be given back.

asyncio has a buffer of 256 KiB for each TLS connection. glibc takes such a block from the kernel at first, but once one
was freed it takes those that follow from its heap. There small objects come to lie between them, and a process that
had many connections once never gets smaller again, and a little larger with each burst (measured by ``python -m bench
churn``: 10 of the binder's 79 MiB were free and could not be given back).
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

#: Blocks from this size on are the kernel's again when they are freed.
LARGE_BYTES: Final = 256 * 1024
#: <malloc.h>; 0 is failure.
_M_MMAP_THRESHOLD: Final = -3


def keep_large_blocks_apart(library: Any = None) -> bool:
    """Have blocks of LARGE_BYTES and more mapped each on its own; return whether the C library can.

    That is glibc; musl does so anyway, and others are left as they are. Not for a process that copies large arrays
    all the time: a fresh mapping costs a page fault every 4 KiB.
    """
    mallopt = getattr(library or ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES) == 1
