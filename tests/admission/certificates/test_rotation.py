"""The shell around the rules: rights that are missing, objects that come and go, and a life of a minute."""

from __future__ import annotations

import anyio
import pytest

from admission.certificates.pair import YEAR_S
from admission.certificates.rotation import Rotation
from admission.certificates.steps import Held, Keep, Make, Publish, Serve, Step, View, decide, health
from tests.admission.certificates.shell import LIFETIME_S, WEBHOOKS, Site, ready, replica, site
from tests.admission.certificates.worlds import NAMES, NOW_S, pair, view, webhook_state

VIRTUAL_TIME = True

#: Longer than any pause of a replica before it tries again what was refused.
LONG_S = 60.0
#: What the server answers to a client without the right.
REFUSED = "injected: Forbidden"


@pytest.mark.thorough
async def test_certificates_of_a_minute_are_renewed_and_no_review_fails() -> None:
    """Two replicas for three minutes, each asked every second."""
    async with site() as cluster, replica(cluster) as one, replica(cluster) as two:
        await ready(one, two)
        pairs, reviews = set(), 0
        for _ in range(3 * LIFETIME_S):
            for each in (one, two):
                assert await cluster.asked(each) == []
                assert each.unready() == ""
                reviews += 1
            pairs.add((await cluster.secret())["tls.crt"])
            await anyio.sleep(1)
        assert reviews == 360
        # Each lasts for two thirds of its life, and for the 5 s that API servers may take to follow.
        assert 4 <= len(pairs) <= 6
        assert {bundle.count(b"BEGIN") for bundle in await cluster.bundles()} <= {1, 2}, "ended CAs leave"


async def test_a_review_is_seen_to_fail_where_it_does() -> None:
    """Else the test above could not fail."""
    async with site() as cluster, replica(cluster) as one:
        assert await cluster.asked(one) == ["there is no CA in the configuration"] * WEBHOOKS
        await ready(one)
        assert await cluster.asked(one) == []
        cluster.forbidden |= {("patch", "secrets")}
        await anyio.sleep(2 * LIFETIME_S)
        assert any("cert is not valid at validation time" in why for why in await cluster.asked(one))


VALIDATING = "ValidatingWebhookConfiguration moorage-pods and ValidatingWebhookConfiguration moorage-queues"
RIGHTS = {
    "to list the Secret": (("list", "secrets"), "Secret moorage-webhook-certificates not known yet: "),
    "to watch the Secret": (("watch", "secrets"), "there is no certificate yet: "),
    "to write the Secret": (
        ("patch", "secrets"),
        "there is no certificate yet: making a new certificate and keeping it in the Secret: ",
    ),
    "to list the mutating configurations": (
        ("list", "mutatingwebhookconfigurations"),
        "MutatingWebhookConfiguration moorage-adoption and MutatingWebhookConfiguration moorage-pods not known yet: ",
    ),
    "to watch the validating configuration": (
        ("watch", "validatingwebhookconfigurations"),
        f"the CA of the certificate is not in {VALIDATING} yet: ",
    ),
    "to write the validating configuration": (
        ("patch", "validatingwebhookconfigurations"),
        f"the CA of the certificate is not in {VALIDATING} yet: "
        "writing our CA into ValidatingWebhookConfiguration moorage-pods: ",
    ),
}


@pytest.mark.parametrize(("right", "said"), RIGHTS.values(), ids=RIGHTS)
async def test_who_lacks_a_right_says_so_is_not_ready_and_goes_on_when_it_is_given(
    right: tuple[str, str], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with site() as cluster:
        cluster.forbidden.add(right)
        async with replica(cluster, lifetime_s=YEAR_S) as one:
            await anyio.sleep(LONG_S)
            assert one.unready().startswith(said)
            assert one.unready().endswith(REFUSED)
            assert REFUSED in caplog.text
            cluster.forbidden.clear()
            await ready(one)
            assert await cluster.asked(one) == []
            assert one.warnings() == ()


async def test_a_right_that_is_lost_later_costs_no_review_before_the_certificate_ends() -> None:
    async with site() as cluster, replica(cluster) as one:
        await ready(one)
        cluster.forbidden |= {("patch", "secrets")}
        with anyio.fail_after(10 * LIFETIME_S):
            while not one.unready():
                assert await cluster.asked(one) == []
                await anyio.sleep(1)
        assert "the certificate ended on " in one.unready()
        assert one.unready().endswith(REFUSED)
        cluster.forbidden.clear()
        await ready(one)
        assert await cluster.asked(one) == []


@pytest.mark.parametrize(
    "content", [None, {"tls.crt": "aGVsbG8="}, {"tls.key": "%%%"}], ids=["none", "words", "broken"]
)
async def test_what_a_secret_loses_is_written_back_without_a_review_that_fails(content: dict[str, str] | None) -> None:
    async with site() as cluster, replica(cluster, lifetime_s=YEAR_S) as one:
        await ready(one)
        before = await cluster.secret()
        await cluster.fill_secret(content)
        await _asked_for_a_while(cluster, one)
        assert await cluster.secret() == before


async def _asked_for_a_while(cluster: Site, *replicas: Rotation) -> None:
    for _ in range(30):
        for each in replicas:
            assert await cluster.asked(each) == []
            assert each.unready() == ""
        await anyio.sleep(1)


async def test_without_any_secret_nobody_is_ready_and_it_is_said_what_to_do() -> None:
    async with site(secret=False) as cluster, replica(cluster) as one:
        await anyio.sleep(LONG_S)
        assert "there is no certificate: the Secret " in one.unready()
        assert "apply admission/rbac.yaml" in " ".join(one.warnings())
        assert await cluster.bundles() == [b""] * WEBHOOKS
        await cluster.bring_secret()
        await ready(one)
        assert await cluster.asked(one) == []


async def test_configurations_that_come_later_get_the_ca_at_once() -> None:
    async with site(configurations=False) as cluster, replica(cluster, lifetime_s=YEAR_S) as one:
        await ready(one)
        await anyio.sleep(LONG_S)
        await cluster.bring_configurations()
        await anyio.sleep(1)
        assert one.unready() == ""
        assert await cluster.asked(one) == []


async def test_where_cert_manager_is_to_write_the_bundles_we_do_not() -> None:
    async with site() as cluster:
        await cluster.annotate("kai-scheduler/moorage-admission", only=[1])
        async with replica(cluster, lifetime_s=YEAR_S) as one:
            await anyio.sleep(LONG_S)
            adoption, pods, *others = await cluster.bundles()
            assert pods == b""
            assert {adoption, *others} == {adoption} != {b""}
            (warning,) = one.warnings()
            assert warning.startswith("MutatingWebhookConfiguration moorage-pods has the annotation cert-manager.io/")
            assert one.unready() == (
                "the CA of the certificate is not in MutatingWebhookConfiguration moorage-pods yet"
            )
            await cluster.annotate(None, only=[1])
            await ready(one)
            assert await cluster.asked(one) == []
            assert one.warnings() == ()


async def test_a_bundle_that_cert_manager_takes_over_is_left_as_it_is() -> None:
    async with site() as cluster, replica(cluster) as one:
        await ready(one)
        await cluster.annotate("kai-scheduler/moorage-admission")
        before = await cluster.bundles()
        await anyio.sleep(3 * LIFETIME_S)
        assert await cluster.bundles() == before
        assert len(one.warnings()) >= 3
        assert one.unready() != "", "nobody wrote the CA of a certificate in use"


async def test_a_pair_that_lies_in_the_secret_is_taken_over_by_whoever_starts() -> None:
    async with site() as cluster:
        async with replica(cluster, lifetime_s=YEAR_S) as first:
            await ready(first)
        before = await cluster.secret()
        async with replica(cluster, lifetime_s=YEAR_S) as second:
            await ready(second)
            assert await cluster.secret() == before
            assert await cluster.asked(second) == []


# What is done next, in a table: each row is a state of the world and what follows from it.

A = pair("a")
#: Made when A was to be renewed.
B = pair("b", begins_s=1_000_040)
OLD = pair("old", begins_s=999_000)
LATER = NOW_S + 25
FOREVER = 100
OTHER_NAME = frozenset({"gpu-admission.kai-scheduler.svc"})


def held(current: object = None, following: object = None, *, unreadable: str = "") -> Held:
    return Held("3", current, following, unreadable)  # type: ignore[arg-type]


def keep(current: object, following: object = None) -> Keep:
    return Keep("3", current, following)  # type: ignore[arg-type]


def make(current: object = None, *, first: bool = False, names: frozenset[str] = NAMES) -> Make:
    return Make("3", current, is_first=first, names=names)  # type: ignore[arg-type]


def publish(*pairs: object, name: str = "pods") -> Publish:
    return Publish(name, "7", (tuple(each.authority for each in pairs),))  # type: ignore[attr-defined]


BOTH = (A.authority, B.authority)
TABLE: dict[str, tuple[View, list[Step]]] = {
    # --- the first certificate
    "an empty Secret: a first pair": (view(held(), webhook_state()), [make(first=True)]),
    "no configurations yet (helm makes them last): a pair all the same": (view(held()), [make(first=True)]),
    "a pair, and nobody trusts it: it is served and published": (
        view(held(A), webhook_state(name="pods"), webhook_state(name="adoption")),
        [Serve(A), publish(A), publish(A, name="adoption")],
    ),
    "all is well": (view(held(A), webhook_state(A.authority), served=A), []),
    "a replica that starts serves what stands": (view(held(A), webhook_state(A.authority)), [Serve(A)]),
    # --- renewal
    "two thirds of its life are over: a successor beside it": (
        view(held(A), webhook_state(A.authority), served=A, now_s=LATER),
        [make(A)],
    ),
    "a successor is published before it is served": (
        view(held(A, B), webhook_state(A.authority), served=A, now_s=LATER),
        [publish(A, B)],
    ),
    "API servers may not follow yet: nothing": (
        view(held(A, B), webhook_state(*BOTH, since_s=97), served=A, now_s=LATER),
        [],
    ),
    "one configuration was changed just now: nothing": (
        view(
            held(A, B), webhook_state(*BOTH), webhook_state(*BOTH, since_s=98, name="adoption"), served=A, now_s=LATER
        ),
        [],
    ),
    "all follow: it is the current one": (
        view(held(A, B), webhook_state(*BOTH, since_s=95), served=A, now_s=LATER),
        [keep(B)],
    ),
    "the current one is another: it is served": (
        view(held(B), webhook_state(*BOTH), served=A, now_s=LATER),
        [Serve(B)],
    ),
    "the current one is another, and does not stand long enough in our eyes: not yet": (
        view(held(B), webhook_state(*BOTH, since_s=98), served=A, now_s=LATER),
        [],
    ),
    "what we serve is trusted no more, and the current one is: it is served at once": (
        view(held(B), webhook_state(B.authority, since_s=99), served=A, now_s=LATER),
        [Serve(B), publish(B, A)],
    ),
    "a replica that starts between the two serves the older one": (
        view(held(A, B), webhook_state(*BOTH, since_s=100), now_s=LATER),
        [Serve(A)],
    ),
    "the old CA has ended: it leaves the configuration": (
        view(held(B), webhook_state(OLD.authority, B.authority), served=B, now_s=LATER),
        [publish(B)],
    ),
    "the old CA has not ended: it stays": (view(held(B), webhook_state(*BOTH), served=B, now_s=LATER), []),
    # --- what others do
    "the bundle was emptied": (view(held(A), webhook_state(since_s=99), served=A, proven=True), [publish(A)]),
    "a foreign CA stands beside ours": (
        view(held(A), webhook_state(A.authority, is_clean=False), served=A),
        [publish(A)],
    ),
    "cert-manager writes the bundles: we keep out": (
        view(held(A), webhook_state(injected_by="cert-manager.io/inject-ca-from"), served=A),
        [],
    ),
    "the Secret was deleted: what is served goes on": (view(None, webhook_state(A.authority), served=A), []),
    "the Secret was deleted and the bundle emptied: what is served is published": (
        view(None, webhook_state(), served=A),
        [publish(A)],
    ),
    "the Secret came back empty: what is served is written back": (
        view(held(), webhook_state(A.authority), served=A),
        [keep(A)],
    ),
    "the Secret is garbage: the same": (
        view(held(unreadable="tls.crt"), webhook_state(A.authority), served=A),
        [keep(A)],
    ),
    "the Secret is garbage, and this replica serves nothing: others may": (
        view(held(unreadable="tls.crt"), webhook_state(A.authority)),
        [make()],
    ),
    "the pair that it made then has to be followed first": (
        view(held(None, B), webhook_state(*BOTH, since_s=98), served=B, now_s=LATER),
        [],
    ),
    "and when it is, it is the current one": (
        view(held(None, B), webhook_state(*BOTH), served=B, now_s=LATER),
        [keep(B)],
    ),
    "one that is served and not trusted for sure is written back as the next": (
        view(held(), webhook_state(*BOTH, since_s=98), served=B, now_s=LATER),
        [keep(None, B)],
    ),
    "but as the current one if it was proven once": (
        view(held(), webhook_state(*BOTH, since_s=98), served=B, now_s=LATER, proven=True),
        [keep(B)],
    ),
    "beside a good pair stands garbage: it is tidied": (
        view(held(A, unreadable="next-tls.crt"), webhook_state(A.authority), served=A),
        [keep(A)],
    ),
    # --- time
    "the Secret's pair has ended: a first one again": (
        view(held(OLD), webhook_state(OLD.authority), served=OLD),
        [make(first=True)],
    ),
    "it ended while its successor waited: at once": (
        view(held(OLD, A), webhook_state(OLD.authority, A.authority, since_s=99), served=OLD),
        [Serve(A), publish(A), keep(A)],
    ),
    "the API server's clock was put back before it began": (
        view(held(A), webhook_state(A.authority), served=A, now_s=900_000),
        [make()],
    ),
    "the API server's clock was put on past its end": (
        view(held(A), webhook_state(A.authority), served=A, now_s=2_000_000),
        [make(first=True)],
    ),
    # --- names
    "the Service has another name: a pair for both names": (
        view(held(A), webhook_state(A.authority), served=A, names=OTHER_NAME),
        [make(A, names=NAMES | OTHER_NAME)],
    ),
}


@pytest.mark.parametrize(("seen", "steps"), TABLE.values(), ids=TABLE)
def test_what_is_done_next(seen: View, steps: list[Step]) -> None:
    assert list(decide(seen).steps) == steps


@pytest.mark.parametrize(
    ("seen", "again_in_s"),
    [
        (view(held(A), webhook_state(A.authority), served=A), 20),
        (view(held(A, B), webhook_state(*BOTH, since_s=97), served=A, now_s=LATER), 2),
        (view(held(A), webhook_state(OLD.authority, A.authority), served=A, now_s=999_059), 1),
        (view(None), 3600),
    ],
    ids=["a renewal", "followed", "an end", "nothing"],
)
def test_when_time_alone_changes_something(seen: View, again_in_s: int) -> None:
    assert decide(seen).again_in_s == again_in_s


READY: dict[str, tuple[View, str]] = {
    "all is well": (view(held(A), webhook_state(A.authority), served=A), ""),
    "no configurations: nobody is asked": (view(held(A), served=A), ""),
    "the first pair does not wait for API servers": (
        view(held(A), webhook_state(A.authority, since_s=100), served=A),
        "",
    ),
    "a proven pair does not either": (
        view(None, webhook_state(*BOTH, since_s=100), served=A, now_s=LATER, proven=True),
        "",
    ),
    "the Secret was deleted": (view(None, webhook_state(A.authority), served=A), ""),
    "no Secret, no certificate": (view(None), "does not exist"),
    "no certificate yet": (view(held()), "no certificate yet"),
    "not published": (
        view(held(A), webhook_state(), webhook_state(name="adoption"), served=A),
        "in pods and adoption yet",
    ),
    "ended": (view(held(OLD), webhook_state(OLD.authority), served=OLD), "ended on 1970-01-12 13:31:00 UTC"),
    "not begun": (
        view(held(A), webhook_state(A.authority), served=A, now_s=999_999),
        "valid from 1970-01-12 13:46:40 UTC",
    ),
    "for another name": (
        view(held(A), webhook_state(A.authority), served=A, names=OTHER_NAME),
        "not for gpu-admission",
    ),
    "others may be trusted, and this one is not yet": (
        view(held(None, B), webhook_state(*BOTH, since_s=98), served=B, now_s=LATER),
        "given 3 more seconds",
    ),
}


@pytest.mark.parametrize(("seen", "said"), READY.values(), ids=READY)
def test_who_is_ready_and_why_not(seen: View, said: str) -> None:
    unready = health(seen).unready
    assert said in unready
    assert bool(unready) == bool(said)


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (view(None, webhook_state(A.authority), served=A), "apply admission/rbac.yaml"),
        (view(held(A, unreadable="next-tls.crt: no"), webhook_state(A.authority), served=A), "next-tls.crt: no"),
        (
            view(held(A), webhook_state(injected_by="x/inject-ca-from"), served=A),
            "take the annotation away, or give --cert",
        ),
        (view(held(A), webhook_state(A.authority), served=A, now_s=NOW_S + 36), "its successor is not in use yet"),
    ],
)
def test_what_an_administrator_has_to_see_to_is_a_sentence(seen: View, said: str) -> None:
    (warning,) = health(seen).warnings
    assert said in warning


def test_no_warning_where_all_is_well() -> None:
    assert health(view(held(A), webhook_state(A.authority), served=A)).warnings == ()


def test_nobody_who_shows_a_pair_shows_its_key() -> None:
    assert "key" not in f"{held(A)!r} {view(held(A), served=A)!r} {keep(A)!r} {make(A)!r}"
