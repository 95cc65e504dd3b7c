"""A stand-in for NVIDIA's hook ``apply-cuda-memory-limits``, as far as its answer hangs on the two variables."""

from __future__ import annotations

from collections.abc import Mapping


class Refused(Exception):
    """Raised where the hook ends with an error, and the runtime does not start the container."""


def limits(env: Mapping[str, str]) -> tuple[int, int] | None:
    """Return the soft and the hard limit in MiB that it sets; None where no variable is there. Raises Refused."""
    found = {name: env[key] for name in ("REQUEST", "LIMIT") if (key := f"NVIDIA_GPU_MEMORY_{name}") in env}
    if not found:
        return None
    for name, text in found.items():
        if not (text.isascii() and text.isdigit()):
            raise Refused(f"{name} is {text!r}")
    soft, hard = (int(found[name]) if name in found else None for name in ("REQUEST", "LIMIT"))
    # One alone stands for both.
    return (hard if soft is None else soft) or 0, (soft if hard is None else hard) or 0
