"""Three replicas, in any order, late, stopped and crashing: no review fails, and in the end all is well."""

from __future__ import annotations

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from admission.certificates.pair import Bundle, Pair
from admission.certificates.steps import Held
from tests.admission.certificates.simulated import Configuration, World, world
from tests.admission.certificates.worlds import pair
from tests.whole import examples

pytestmark = pytest.mark.thorough

#: At the beginning, 1,000,000: young, to be renewed, about to end, ended, not begun.
PAIRS = {
    "young": pair("young", begins_s=999_990),
    "aged": pair("aged", begins_s=999_955),
    "ending": pair("ending", begins_s=999_943),
    "ended": pair("ended", begins_s=999_000),
    "of the future": pair("future", begins_s=1_000_500),
}

some_pair = st.sampled_from([None, *PAIRS.values()])
secrets = st.builds(Held, st.just(""), some_pair, some_pair, st.sampled_from(["", "tls.crt: garbage"]))
bundles = st.builds(
    Bundle,
    st.lists(st.sampled_from([each.authority for each in PAIRS.values()]), unique=True, max_size=3).map(tuple),
    st.booleans(),
)
configurations = st.one_of(st.none(), bundles.map(lambda one: (one,)))
seeds = st.integers(0, 2**32)
#: A seed does not get simpler by being smaller, and a run takes a second.
_unshrunk = settings(phases=(Phase.explicit, Phase.reuse, Phase.generate))


@settings(_unshrunk, max_examples=examples(8))
@given(seeds, secrets, st.tuples(configurations, configurations, configurations))
def test_from_any_beginning_it_heals_and_then_no_review_fails(
    seed: int, secret: Held, webhook_state: tuple[Configuration | None, ...]
) -> None:
    simulated = world(seed, secret, webhook_state)
    simulated.run(30, crashes=0.1)
    simulated.failed.clear()
    simulated.run(170, crashes=0.1)
    simulated.run(15)
    assert simulated.failed == []
    assert simulated.unhealthy() == []


@_unshrunk
@given(seeds, st.lists(st.sampled_from(["deleted", "emptied", "garbage", "put back"]), min_size=1, max_size=4))
def test_whatever_becomes_of_the_secret_no_review_fails(seed: int, acts: list[str]) -> None:
    """Before it is to be renewed: in the last third of a life what is lost may be too late to be made again."""
    simulated = world(seed, Held("", PAIRS["young"]), [(Bundle((PAIRS["young"].authority,)),)] * 3)
    simulated.run(simulated.rng.randint(0, 20))
    for act in acts:
        _spoil(simulated, act)
        simulated.run(simulated.rng.randint(1, 2))
    _bring_back(simulated)
    simulated.run(30)
    assert simulated.failed == []
    assert simulated.unhealthy() == []


def _spoil(simulated: World, act: str) -> None:
    states: dict[str, Held | None] = {
        "deleted": None,
        "emptied": Held(""),
        "garbage": Held("", None, None, "tls.crt: garbage"),
        "put back": simulated.secret.states[simulated.rng.randint(0, simulated.secret.version)][1],
    }
    simulated.secret.write(simulated.now_s, states[act])


def _bring_back(simulated: World) -> None:
    if simulated.secret.last is None:
        simulated.secret.write(simulated.now_s, Held(""))


@_unshrunk
@given(seeds, st.lists(st.sampled_from(["emptied", "deleted", "put back", "foreign"]), min_size=1, max_size=8))
def test_whoever_overwrites_configurations_they_are_healed(seed: int, acts: list[str]) -> None:
    simulated = world(seed, Held("", PAIRS["young"]), [(Bundle((PAIRS["young"].authority,)),)] * 3)
    for act in acts:
        one = simulated.configurations[simulated.rng.choice(list(simulated.configurations))]
        states: dict[str, Configuration | None] = {
            "emptied": (Bundle(),),
            "deleted": None,
            "put back": one.states[simulated.rng.randint(0, one.version)][1],
            "foreign": (Bundle((), is_clean=False),),
        }
        one.write(simulated.now_s, states[act])
        simulated.run(simulated.rng.randint(1, 25), crashes=0.02)
    simulated.run(30)
    assert simulated.unhealthy() == []
    simulated.failed.clear()
    simulated.run(100)
    assert simulated.failed == []
    for one in simulated.configurations.values():
        assert one.last is None or all(bundle.is_clean for bundle in one.last)


def test_two_replicas_that_begin_at_once_on_an_empty_cluster_agree() -> None:
    for seed in range(50):
        simulated = world(seed, Held(""), [(Bundle(),)] * 3)
        simulated.run(10)
        assert simulated.failed == [] or all("does not trust" in each for each in simulated.failed)
        (first,) = {replica.served for replica in simulated.replicas}
        assert isinstance(first, Pair)
        assert simulated.unhealthy() == []


def test_certificates_are_renewed_as_often_as_they_should_be() -> None:
    simulated = world(1, Held("", PAIRS["young"]), [(Bundle((PAIRS["young"].authority,)),)] * 3)
    simulated.run(600)
    assert simulated.failed == []
    # Each lasts for two thirds of 65 s, less the 5 s by which it is backdated.
    assert simulated.made == pytest.approx(600 / 38, abs=2)


def test_api_servers_that_follow_later_than_they_may_are_noticed() -> None:
    """Else the tests above could not fail."""
    simulated = world(1, Held("", PAIRS["young"]), [(Bundle((PAIRS["young"].authority,)),)] * 3, server_lag_s=15)
    simulated.run(300)
    assert any("does not trust" in each for each in simulated.failed)
