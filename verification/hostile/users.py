"""Which users a soak's runs have: drawn from each seed, or in every run those who want a certain thing."""

from __future__ import annotations

import enum
from collections.abc import Collection

from verification.hostile import enriching, extending, slicing, tenant
from verification.hostile.scenario import Scenario, scenario_of


class Users(enum.Enum):
    """Who is in every run. The value is the option of a soak."""

    ANY = ""
    CLAIMS = "claims"
    DRIVERS = "drivers"
    MIG = "mig"
    EXTENDED = "extended"
    TENANT = "tenant"


def scenario_with(users: Users, seed: int, kinds: Collection[str] | None = None) -> Scenario:
    """Make a scenario from a seed. ``kinds``: the faults that may occur (None: all, (): none).

    Raises ValueError for a kind that is not known.
    """
    if users is Users.DRIVERS:
        return enriching.scenario(seed, kinds=kinds)
    if users is Users.MIG:
        return slicing.scenario(seed, kinds=kinds)
    if users is Users.EXTENDED:
        return extending.scenario(seed, kinds=kinds)
    if users is Users.TENANT:
        return tenant.scenario(seed, kinds=kinds)
    return scenario_of(seed, kinds, with_claims=users is Users.CLAIMS)
