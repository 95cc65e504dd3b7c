"""Which ResourceClaims a pod uses."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler.core.convert.constraints import MOST_CLAIMS, claim_uses
from scheduler.core.model.device_requests import ResourceClaimUse
from wire.core import Pod

_TEMPLATE = {"name": "own", "resourceClaimTemplateName": "t"}


def test_of_a_pod_with_very_many_claims_one_more_is_read_than_it_may_have() -> None:
    entries = [{"name": f"x{number}", "resourceClaimName": f"c{number}"} for number in range(10_000)]
    assert len(claim_uses(msgspec.convert({"spec": {"resourceClaims": entries}}, Pod))) == MOST_CLAIMS + 1


@pytest.mark.parametrize(
    ("entries", "made", "expected"),
    [
        ([], [], ()),
        ([{"name": "x", "resourceClaimName": "c"}], [], (ResourceClaimUse("x", "c"),)),
        ([_TEMPLATE], [], (ResourceClaimUse("own", is_own=True),)),
        (
            [_TEMPLATE],
            [{"name": "own", "resourceClaimName": "p-own-1"}],
            (ResourceClaimUse("own", "p-own-1", is_own=True),),
        ),
        # The status says that no claim is needed.
        ([_TEMPLATE], [{"name": "own"}], ()),
        # What names neither is no claim that can be read: the pod waits for another reason.
        ([{"name": "x"}, {"name": "y", "resourceClaimName": "c"}], [], (ResourceClaimUse("y", "c"),)),
    ],
)
def test_claims_are_named_or_made_from_templates(
    entries: list[dict[str, Any]], made: list[dict[str, Any]], expected: tuple[ResourceClaimUse, ...]
) -> None:
    pod = msgspec.convert({"spec": {"resourceClaims": entries}, "status": {"resourceClaimStatuses": made}}, Pod)
    assert claim_uses(pod) == expected


@pytest.mark.parametrize(("written", "group"), [({"podGroupName": "g"}, "g"), ({"podGroupName": 1}, ""), (None, "")])
def test_a_claim_from_a_template_may_be_that_of_the_pod_s_group(written: dict[str, Any] | None, group: str) -> None:
    made = [{"name": "own", "resourceClaimName": "of-g"}]
    spec = {"resourceClaims": [_TEMPLATE], "schedulingGroup": written}
    pod = msgspec.convert({"spec": spec, "status": {"resourceClaimStatuses": made}}, Pod)
    assert claim_uses(pod) == (ResourceClaimUse("own", "of-g", is_own=True, group=group),)
