"""Lists: selectors, order, pages and snapshots."""

from __future__ import annotations

import pytest

from kube.client.api import field_is
from tests.contract.cluster import Cluster, config_map, pod

#: kube-controller-manager puts a ConfigMap of its own into every real namespace; those of the tests are labelled.
OURS = "ours=yes"


async def _fill(api_server: Cluster, *names: str) -> None:
    for name in names:
        await api_server.made(api_server.config_maps, config_map(name, labels={"ours": "yes"}))


async def test_a_list_names_its_kind_and_its_items_do_not(api_server: Cluster) -> None:
    await _fill(api_server, "b", "a")
    listed = await api_server.get(api_server.config_maps, labelSelector=OURS)
    assert (listed.body["kind"], listed.body["apiVersion"]) == ("ConfigMapList", "v1")
    assert listed.names == ["a", "b"]
    assert "kind" not in listed.body["items"][0]


async def test_an_empty_list_is_a_list(api_server: Cluster) -> None:
    listed = await api_server.get(api_server.pods)
    assert listed.body["items"] == []
    assert int(listed.rv) > 0


async def test_a_list_without_namespace_is_of_all_of_them(api_server: Cluster) -> None:
    await _fill(api_server, "here")
    listed = await api_server.get("/api/v1/configmaps", fieldSelector=f"metadata.namespace={api_server.namespace}")
    assert "here" in listed.names
    one = await api_server.get(
        "/api/v1/configmaps", fieldSelector=f"metadata.namespace={api_server.namespace}", labelSelector=OURS
    )
    assert one.names == ["here"]


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("tier=a", ["one"]),
        ("tier==a", ["one"]),
        ("tier!=a", ["none", "two"]),
        ("tier", ["one", "two"]),
        ("!tier", ["none"]),
        ("tier in (a, b)", ["one", "two"]),
        ("tier notin (a)", ["none", "two"]),
        ("tier in (a,b),tier!=b", ["one"]),
        ("tier=", []),
        ("tier in (a)", ["one"]),
        ("tier notin (a, b)", ["none"]),
        ("tier in (b , a),tier", ["one", "two"]),
        ("!tier,ours", ["none"]),
        ("tier!=", ["none", "one", "two"]),
        (" tier = a ", ["one"]),
    ],
)
async def test_labels_select(api_server: Cluster, selector: str, names: list[str]) -> None:
    for name, labels in (("one", {"tier": "a"}), ("two", {"tier": "b"}), ("none", {})):
        await api_server.made(api_server.config_maps, config_map(name, labels={**labels, "ours": "yes"}))
    assert (await api_server.get(api_server.config_maps, labelSelector=f"{OURS},{selector}")).names == names


@pytest.mark.parametrize(
    "selector",
    [
        "a===b",
        "a in b",
        "=a",
        "a=b,",
        "a in (b",
        "a b",
        "a,,b",
        "!",
        "a in )",
        "a=b c",
        "a=(",
        "a near (b)",
        "a in (b) c",
    ],
)
async def test_a_label_selector_that_is_none_is_refused(api_server: Cluster, selector: str) -> None:
    assert (await api_server.get(api_server.pods, labelSelector=selector)).failure == (400, "BadRequest")


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("metadata.name=a", ["a"]),
        ("metadata.name!=a", ["b", "c"]),
        ("spec.nodeName=", ["a", "c"]),
        ("spec.nodeName=n1", ["b"]),
        ("spec.schedulerName=moorage", ["c"]),
        ("status.phase=Pending", ["a", "b"]),
        ("status.phase!=Pending,spec.schedulerName=moorage", ["c"]),
    ],
)
async def test_fields_select(api_server: Cluster, selector: str, names: list[str]) -> None:
    await api_server.made(api_server.pods, pod("a"))
    await api_server.made(api_server.pods, pod("b", nodeName="n1"))
    await api_server.made(api_server.pods, pod("c", schedulerName="moorage"))
    await api_server.patch(f"{api_server.pods}/c/status", {"status": {"phase": "Running"}})
    assert (await api_server.get(api_server.pods, fieldSelector=selector)).names == names


@pytest.mark.parametrize("path", ["pods", "configmaps"])
async def test_an_unknown_field_is_refused(api_server: Cluster, path: str) -> None:
    answer = await api_server.get(f"/api/v1/namespaces/{api_server.namespace}/{path}", fieldSelector="spec.other=x")
    assert answer.failure == (400, "BadRequest")


async def test_pages_are_of_one_snapshot(api_server: Cluster) -> None:
    await _fill(api_server, "a", "b", "c", "d", "e")
    first = await api_server.get(api_server.config_maps, limit="2")
    assert first.names == ["a", "b"]
    await _fill(api_server, "bb")
    await api_server.delete(f"{api_server.config_maps}/d")
    await api_server.patch(f"{api_server.config_maps}/c", {"data": {"later": "yes"}})
    names, answer = list(first.names), first
    while token := answer.body["metadata"].get("continue"):
        answer = await api_server.get(api_server.config_maps, **{"limit": "2", "continue": token})
        assert answer.rv == first.rv
        names += answer.names
        for item in answer.body["items"]:
            assert "later" not in (item.get("data") or {})
    assert [name for name in names if name != "kube-root-ca.crt"] == ["a", "b", "c", "d", "e"]


async def test_a_page_tells_how_many_are_left_unless_it_selects(api_server: Cluster) -> None:
    for name in ("a", "b", "c"):
        await api_server.made(api_server.pods, pod(name))
    assert (await api_server.get(api_server.pods, limit="1")).body["metadata"]["remainingItemCount"] == 2
    selected = await api_server.get(api_server.pods, limit="1", labelSelector="!x")
    assert "remainingItemCount" not in selected.body["metadata"]
    assert "continue" in selected.body["metadata"]


async def test_the_last_page_has_no_token(api_server: Cluster) -> None:
    await api_server.made(api_server.pods, pod("a"))
    assert "continue" not in (await api_server.get(api_server.pods, limit="1")).body["metadata"]


async def test_a_made_up_token_is_refused(api_server: Cluster) -> None:
    answer = await api_server.get(api_server.pods, **{"limit": "1", "continue": "zzz"})
    assert answer.failure == (400, "BadRequest")


async def test_an_exact_version_lists_the_past(api_server: Cluster) -> None:
    await _fill(api_server, "a")
    then = await api_server.get(api_server.config_maps, labelSelector=OURS)
    await _fill(api_server, "b")
    await api_server.delete(f"{api_server.config_maps}/a")
    past = await api_server.get(
        api_server.config_maps, labelSelector=OURS, resourceVersion=then.rv, resourceVersionMatch="Exact"
    )
    assert (past.names, past.rv) == (["a"], then.rv)
    newer = await api_server.get(
        api_server.config_maps, labelSelector=OURS, resourceVersion=then.rv, resourceVersionMatch="NotOlderThan"
    )
    assert newer.names == ["b"]


async def test_a_version_that_does_not_exist_yet_is_not_listed(api_server: Cluster) -> None:
    answer = await api_server.get(api_server.pods, resourceVersion="999999999")
    assert answer.failure == (504, "Timeout")
    assert answer.body["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


@pytest.mark.parametrize("value", ["a,metadata.name!=b", "a=b", "a\\,b", "a,b"])
async def test_an_escaped_value_of_a_field_selector_is_one_value(api_server: Cluster, value: str) -> None:
    await _fill(api_server, "a", "b")
    assert (await api_server.get(api_server.config_maps, fieldSelector=field_is("metadata.name", value))).names == []


async def test_pages_of_one_list_may_differ_in_size(api_server: Cluster) -> None:
    await _fill(api_server, *"abcdefgh")
    found: list[str] = []
    token: dict[str, str] = {}
    for limit in ("1", "3", "2", "500"):
        page = await api_server.get(api_server.config_maps, labelSelector=OURS, limit=limit, **token)
        assert len(page.names) <= int(limit)
        found += page.names
        token = {"continue": page.body["metadata"].get("continue", "")}
    assert (found, token) == (list("abcdefgh"), {"continue": ""})
