"""The shell around the rules: rights that are missing, objects that come and go, and a life of a minute."""

from __future__ import annotations

import anyio
import pytest

from admission.certificates.pair import YEAR_S
from admission.certificates.rotation import Rotation
from kube.client.errors import NotFound
from tests.admission.certificates.shell import LIFETIME_S, WEBHOOKS, Site, ready, replica, site
from tests.conftest import AnyioBackend

#: Longer than any pause of a replica before it tries again what was refused.
LONG_S = 60.0
#: What the server answers to a client without the right.
REFUSED = "injected: Forbidden"


@pytest.fixture(scope="module")
def anyio_backend(virtual_anyio_backend: AnyioBackend) -> AnyioBackend:
    return virtual_anyio_backend


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


async def test_a_secret_that_is_deleted_costs_no_review_and_is_filled_again() -> None:
    """Replicas have no right to create it; who applies rbac.yaml again brings it, empty."""
    async with (
        site() as cluster,
        replica(cluster, lifetime_s=YEAR_S) as one,
        replica(cluster, lifetime_s=YEAR_S) as two,
    ):
        await ready(one, two)
        before = await cluster.secret()
        await cluster.delete_secret()
        async with replica(cluster, lifetime_s=YEAR_S) as late:
            await _asked_for_a_while(cluster, one, two)
            assert "apply admission/rbac.yaml" in " ".join(one.warnings())
            assert "there is no certificate: the Secret " in late.unready()
            with pytest.raises(NotFound):
                await cluster.secret()
            await cluster.bring_secret()
            await _asked_for_a_while(cluster, one, two)
            assert await cluster.secret() == before, "the pair that was in use, and no other"
            await ready(late)
            assert await cluster.asked(late) == []
            assert (one.warnings(), late.warnings()) == ((), ())


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
