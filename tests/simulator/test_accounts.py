"""ServiceAccounts that pods name."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.installation import SERVICE_ACCOUNTS
from simulator.manifests import Reader


def pod(name: str, account: str = "", *, field: str = "serviceAccountName", **meta: Any) -> dict[str, Any]:
    spec = {"containers": [{"name": "c", "image": "x"}], **({field: account} if account else {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **meta}, "spec": spec}


def account(name: str, **meta: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, **meta}}


@pytest.mark.parametrize(
    ("objects", "made", "lines"),
    [
        ([pod("a"), pod("b", "default")], [], []),
        ([account("runner"), pod("a", "runner")], [("default", "runner")], []),
        ([pod("a", "runner"), pod("b", "runner")], [("default", "runner")], ["default/runner"]),
        ([pod("a", "runner", field="serviceAccount")], [("default", "runner")], ["default/runner"]),
        (
            [account("runner"), pod("a", "runner", namespace="team")],
            [("team", "runner"), ("default", "runner")],
            ["team/runner"],
        ),
    ],
    ids=["the namespace's own", "among the manifests", "named by two pods", "by the old field", "in another namespace"],
)
def test_an_account_that_a_pod_names_is_created_and_a_line_names_it_where_the_manifests_lack_it(
    objects: list[dict[str, Any]], made: list[tuple[str, str]], lines: list[str]
) -> None:
    reader = Reader()
    found = reader.grouped(reader.read(objects, origin="f"))
    created = [(each.namespace, each.body["metadata"]["name"]) for each in found if each.resource is SERVICE_ACCOUNTS]
    assert created == made
    told = "ServiceAccounts that pods name and the manifests lack, taken as present: "
    assert list(reader.passed.lines()) == [told + line for line in lines]


def test_a_line_names_ten_accounts() -> None:
    reader = Reader()
    reader.grouped(reader.read([pod(f"p-{at}", f"a-{at}") for at in range(12)], origin="f"))
    (line,) = reader.passed.lines()
    assert line.endswith("default/a-9, 2 more")


def test_accounts_are_created_before_pods() -> None:
    reader = Reader()
    found = reader.grouped(reader.read([pod("a", "runner")], origin="f"))
    assert [each.resource.kind for each in found] == ["ServiceAccount", "Pod"]
