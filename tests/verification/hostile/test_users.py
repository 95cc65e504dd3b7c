"""Which users a soak's runs have."""

from __future__ import annotations

from verification.hostile import made_claims, slicing, tenant
from verification.hostile.claiming import has_claims
from verification.hostile.scenario import scenario_of
from verification.hostile.soak import Users, scenario_with


def test_without_a_choice_a_seed_is_what_it_always_was() -> None:
    assert [scenario_with(Users.ANY, seed) for seed in range(10)] == [scenario_of(seed) for seed in range(10)]


def test_users_are_those_that_were_chosen() -> None:
    assert all(has_claims(scenario_with(Users.CLAIMS, seed).actions) for seed in range(10))
    assert scenario_with(Users.DRIVERS, 3, ("crash",)) == made_claims.enriched_scenario(3, kinds=("crash",))
    assert scenario_with(Users.EXTENDED, 3, ("crash",)) == made_claims.scenario(3, kinds=("crash",))
    assert scenario_with(Users.MIG, 3, ("crash",)) == slicing.scenario(3, kinds=("crash",))
    assert scenario_with(Users.TENANT, 3, ("crash",)) == tenant.scenario(3, kinds=("crash",))
