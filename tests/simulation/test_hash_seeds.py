"""A run with claims of any kind, MIG slices or node pools is the same in processes that hash strings otherwise.

Runs with users as drawn are in test_seeds.py. ``make test-all`` compares a seed of three kinds, ``make nightly`` 30 of
each kind.
"""

from __future__ import annotations

import pytest

from tests.simulation.digests import Kind, in_another_process
from tests.whole import IS_WHOLE

pytestmark = pytest.mark.thorough

#: The one of claims was another run under PYTHONHASHSEED=5 once, by the order of sets.
_FIRST = {Kind.CLAIMS: 4, Kind.DRIVERS: 9, Kind.MIG: 8, Kind.POOLS: 1, Kind.EXTENDED: 1}
_SEEDS = 30 if IS_WHOLE else 1
_KINDS = list(_FIRST) if IS_WHOLE else [Kind.CLAIMS, Kind.MIG, Kind.POOLS]


@pytest.mark.timeout(5 * 3_600 if IS_WHOLE else 600)
def test_one_seed_is_one_run_however_strings_are_hashed() -> None:
    runs = [(kind, _FIRST[kind] + more) for kind in _KINDS for more in range(_SEEDS)]
    one, other = (in_another_process(runs, hash_seed=hash_seed) for hash_seed in ("1", "5"))
    assert len(one) == len(other) == len(runs)
    assert [run for run, mine, theirs in zip(runs, one, other, strict=True) if mine != theirs] == []
