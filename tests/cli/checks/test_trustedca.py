"""What ``moorage check`` says of a CA that ends."""

from __future__ import annotations

import base64

import pytest

from admission.certificates.pair import serving_certificate
from admission.manifests import ServiceEndpoint, queue_manifest
from cli.checks.reader import Level
from cli.checks.webhooks import of_ca, of_objects

DAY_S = 86_400
MADE = serving_certificate(dns_names=["hook"], addresses=[], now_ns=0, lifetime_s=365 * DAY_S)
HOOK = {"clientConfig": {"caBundle": base64.b64encode(MADE.ca).decode()}}


class Day:
    """A clock that shows one day."""

    def __init__(self, number: int) -> None:
        self.number = number

    def now_ns(self) -> int:
        return self.number * DAY_S * 10**9


@pytest.mark.parametrize(
    ("day", "level"), [(300, None), (350, Level.WARNING), (366, Level.FAILED)], ids=["long", "soon", "over"]
)
def test_a_ca_that_ends_soon_is_told_and_one_that_has_ended_fails(day: int, level: Level | None) -> None:
    assert [each.level for each in of_ca("a hook", HOOK, Day(day))] == ([] if level is None else [level])


def test_a_webhook_without_a_ca_of_its_own_says_nothing() -> None:
    assert of_ca("a hook", {"clientConfig": {}}, Day(366)) == []


def test_the_ca_of_the_webhooks_for_queues_and_pod_groups_is_judged_too() -> None:
    manifest = queue_manifest(ServiceEndpoint(), ca=MADE.ca)
    assert [each.level for each in of_objects([manifest], Day(350))] == [Level.WARNING, Level.WARNING]
