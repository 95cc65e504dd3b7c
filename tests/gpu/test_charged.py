from __future__ import annotations

import pytest

from gpu import grant
from gpu.grant import Charged
from wire import names


@pytest.mark.parametrize(
    "what",
    [Charged("team", True), Charged("team", False), Charged("team", True, "a100"), Charged("t", True, "")],
    ids=["preemptible", "not preemptible", "of a node pool", "of the default pool"],
)
def test_what_a_binding_writes_is_read_back(what: Charged) -> None:
    assert grant.read_charged(grant.render_charged(what)) == what


def test_what_many_pods_share_is_kept_once() -> None:
    written = grant.render_charged(Charged("team", True))
    again = grant.render_charged(Charged("team", True))
    assert grant.read_charged(written) is grant.read_charged(again)
    assert grant.read_charged(written) is grant.charged("team", None, is_preemptible=True)


def test_a_later_version_may_say_more() -> None:
    assert grant.read_charged({names.CHARGED: '{"queue":"t","preemptible":true,"later":1}'}) == Charged("t", True)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"queue":"t"}', '{"queue":"","preemptible":true}', '{"queue":1,"preemptible":true}', "x" * 5000,
     '{"queue":"' + "t" * 2000 + '","preemptible":true}', "[" * 1000],
    ids=["empty", "broken", "a list", "half", "no queue", "a number", "long", "a long queue", "deep"],
)  # fmt: skip
def test_what_cannot_be_read_is_none(text: str) -> None:
    assert grant.read_charged({names.CHARGED: text}) is None


def test_a_pod_without_it_has_none() -> None:
    assert (grant.read_charged(None), grant.read_charged({}), grant.render_charged(None)) == (None, None, {})
