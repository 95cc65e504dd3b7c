"""How hard parsers of what users write are fuzzed: in CI some 60 s of a processor, all of them together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import hypothesis

_Test = TypeVar("_Test", bound=Callable[..., object])

#: How many times the examples of other properties are tried (tests/conftest.py).
_MORE: Final = 3


def fuzzed(test: _Test) -> _Test:
    """Try a property (under ``@given``) with more examples than others: it has to hold for whatever comes."""
    return hypothesis.settings(max_examples=_MORE * hypothesis.settings().max_examples)(test)
