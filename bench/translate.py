"""How long it takes to understand a pod: ``python -m bench.translate`` prints one JSON object. Nothing here is a test.

One pod of each dialect in its usual form, and the widest that a dialect has. Times are the least of many rounds, in
microseconds: what others do on the machine only adds. ``of_decoding`` is the translation in parts of what it costs to
decode the same pod from JSON, which the API server's review brings anyway; it is what compares between machines.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec

from bench.objects import FORMS, Form
from gpu import record
from gpu.translate import combine
from gpu.translation import Translation
from wire.core import Pod

_ROUNDS: Final = 200
_PER_ROUND: Final = 20


def _least_us(work: Callable[[], object]) -> float:
    least = float("inf")
    for _ in range(_ROUNDS):
        begun = time.perf_counter_ns()
        for _ in range(_PER_ROUND):
            work()
        least = min(least, (time.perf_counter_ns() - begun) / _PER_ROUND)
    return round(least / 1000, 1)


def _measured(form: Form) -> dict[str, Any]:
    text = msgspec.json.encode(form.pod)
    decode = msgspec.json.Decoder(Pod).decode
    pod = decode(text)
    made = combine.translate(pod, form.settings)
    if not isinstance(made, Translation):
        raise TypeError(f"a pod of the bench is refused: {made}")
    written = record.render(made)
    decoding_us = _least_us(lambda: decode(text))
    translation_us = _least_us(lambda: combine.translate(pod, form.settings))
    return {
        "translate_us": translation_us,
        "of_decoding": round(translation_us / decoding_us, 2),
        "write_record_us": _least_us(lambda: record.render(made)),
        "read_record_us": _least_us(lambda: record.read_anew(written)),
        "read_record_again_us": _least_us(lambda: record.read(written)),
        "record_bytes": len(written),
    }


def main() -> None:
    """Measure and print."""
    gc.disable()
    json.dump({name: _measured(form) for name, form in FORMS.items()}, sys.stdout, indent=2)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
