"""Watches: what comes first, what comes then, and how they end."""

from __future__ import annotations

import msgspec
import pytest

from tests.contract.cluster import MERGE, Cluster, Event, config_map, pod


async def test_a_watch_from_a_version_sees_what_comes_after_it(api_server: Cluster) -> None:
    await api_server.made(api_server.pods, pod("before"))
    rv = await api_server.now(api_server.pods)
    created = await api_server.made(api_server.pods, pod("a"))
    changed = await api_server.patch(f"{api_server.pods}/a", {"metadata": {"labels": {"a": "b"}}})
    await api_server.made(api_server.pods, pod("b"))
    events = await api_server.watch(api_server.pods, 3, resourceVersion=rv)
    assert [each.brief for each in events] == [("ADDED", "a"), ("MODIFIED", "a"), ("ADDED", "b")]
    assert [each.object for each in events[:2]] == [created.body, changed.body]


async def test_a_watch_resumes_after_the_last_version_seen(api_server: Cluster) -> None:
    rv = await api_server.now(api_server.pods)
    for name in ("a", "b", "c"):
        await api_server.made(api_server.pods, pod(name))
    (first,) = await api_server.watch(api_server.pods, 1, resourceVersion=rv)
    seen = first.object["metadata"]["resourceVersion"]
    rest = await api_server.watch(api_server.pods, 2, resourceVersion=seen)
    assert [each.brief for each in rest] == [("ADDED", "b"), ("ADDED", "c")]


@pytest.mark.parametrize("query", [{}, {"resourceVersion": "0"}])
async def test_a_watch_from_nowhere_begins_with_all_there_is(api_server: Cluster, query: dict[str, str]) -> None:
    for name in ("b", "a"):
        await api_server.made(api_server.pods, pod(name))
    await api_server.patch(f"{api_server.pods}/a", {"metadata": {"labels": {"a": "b"}}})
    # So that the real server's watch cache has seen them all.
    await api_server.watch(api_server.pods, 2, resourceVersion=await _before(api_server, "b"))
    events = await api_server.watch(api_server.pods, 2, **query)
    assert sorted(each.brief for each in events) == [("ADDED", "a"), ("ADDED", "b")]


async def _before(api_server: Cluster, name: str) -> str:
    created = await api_server.get(f"{api_server.pods}/{name}")
    return str(int(created.rv) - 1)


async def test_initial_events_end_with_a_marked_bookmark(api_server: Cluster) -> None:
    created = await api_server.made(api_server.pods, pod("a"))
    added, bookmark = await api_server.watch(
        api_server.pods, 2, sendInitialEvents="true", resourceVersionMatch="NotOlderThan", allowWatchBookmarks="true"
    )
    assert added.brief == ("ADDED", "a")
    assert bookmark.type == "BOOKMARK"
    assert bookmark.object["kind"] == "Pod"
    assert bookmark.object["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert int(bookmark.object["metadata"]["resourceVersion"]) >= int(created.rv)


async def test_a_deletion_shows_the_last_state_under_its_own_version(api_server: Cluster) -> None:
    created = await api_server.made(api_server.config_maps, config_map("a", {"k": "v"}))
    await api_server.delete(f"{api_server.config_maps}/a")
    (gone,) = await api_server.watch(
        api_server.config_maps, 1, resourceVersion=created.rv, fieldSelector="metadata.name=a"
    )
    assert gone.type == "DELETED"
    assert gone.object["data"] == {"k": "v"}
    assert int(gone.object["metadata"]["resourceVersion"]) > int(created.rv)


async def test_the_last_finalizer_goes_unseen(api_server: Cluster) -> None:
    created = await api_server.made(api_server.config_maps, config_map("a", finalizers=["x.dev/f"]))
    await api_server.delete(f"{api_server.config_maps}/a")
    patch = {"metadata": {"finalizers": None, "labels": {"last": "words"}}}
    assert (await api_server.patch(f"{api_server.config_maps}/a", patch)).code == 200
    marked, gone = await api_server.watch(
        api_server.config_maps, 2, resourceVersion=created.rv, fieldSelector="metadata.name=a"
    )
    assert marked.type == "MODIFIED"
    assert gone.type == "DELETED"
    assert gone.object["metadata"]["finalizers"] == ["x.dev/f"]
    assert "labels" not in gone.object["metadata"]


async def test_objects_enter_and_leave_a_selection(api_server: Cluster) -> None:
    await api_server.made(api_server.pods, pod("a"))
    rv = await api_server.now(api_server.pods)
    path = f"{api_server.pods}/a"
    versions = []
    for value in ("in", "in2", "out", "in"):
        patch = {"metadata": {"labels": {"x": value[:3].rstrip("2"), "n": value}}}
        versions.append((await api_server.patch(path, patch, MERGE)).rv)
    await api_server.delete(path)
    events = await api_server.watch(api_server.pods, 6, resourceVersion=rv, labelSelector="x=in")
    assert [each.type for each in events] == ["ADDED", "MODIFIED", "DELETED", "ADDED", "MODIFIED", "DELETED"]
    left = events[2].object["metadata"]
    assert (left["resourceVersion"], left["labels"]["n"]) == (versions[2], "in2")


async def test_a_field_selector_follows_the_node(api_server: Cluster) -> None:
    await api_server.made(api_server.pods, pod("a"))
    rv = await api_server.now(api_server.pods)
    binding = {"metadata": {"name": "a"}, "target": {"kind": "Node", "name": "n1"}}
    assert (await api_server.send("POST", f"{api_server.pods}/a/binding", binding)).code == 201
    (arrived,) = await api_server.watch(api_server.pods, 1, resourceVersion=rv, fieldSelector="spec.nodeName=n1")
    (left,) = await api_server.watch(api_server.pods, 1, resourceVersion=rv, fieldSelector="spec.nodeName=")
    assert (arrived.brief, left.brief) == (("ADDED", "a"), ("DELETED", "a"))
    assert "nodeName" not in left.object["spec"]


async def test_a_watch_ends_in_order_at_its_time_out(api_server: Cluster) -> None:
    rv = await api_server.now(api_server.pods)
    assert await api_server.watch_to_its_end(api_server.pods, resourceVersion=rv, timeoutSeconds="1") == []


async def test_a_bookmark_tells_those_who_ask_how_far_a_quiet_watch_is(api_server: Cluster) -> None:
    query = {
        "watch": "true",
        "resourceVersion": await api_server.now(api_server.pods),
        "timeoutSeconds": "5",
        "allowWatchBookmarks": "true",
        "fieldSelector": "metadata.name=nobody",
    }
    async with api_server.transport.stream(api_server.pods, query=query, timeout_s=10) as (_, lines):
        # Something must happen after the watch began, or the real server has nothing to tell.
        created = await api_server.made(api_server.pods, pod("a"))
        events = [msgspec.json.decode(line, type=Event) async for line in lines]
    assert {each.type for each in events} == {"BOOKMARK"}
    bookmark = events[-1]
    assert bookmark.object["kind"] == "Pod"
    # Go writes a pod that has none: decoders must take null for a list.
    assert (bookmark.object["spec"], bookmark.object["status"]) == ({"containers": None}, {})
    assert int(bookmark.object["metadata"]["resourceVersion"]) >= int(created.rv)


async def test_a_watch_from_the_future_sees_nothing_of_the_present(api_server: Cluster) -> None:
    await api_server.made(api_server.pods, pod("a"))
    events = await api_server.watch_to_its_end(api_server.pods, resourceVersion="99999999", timeoutSeconds="1")
    assert events == []


async def test_a_version_that_is_no_number_is_refused(api_server: Cluster) -> None:
    query = {"watch": "true", "resourceVersion": "abc"}
    async with api_server.transport.stream(api_server.pods, query=query, timeout_s=10) as (head, _):
        assert head.status == 500
        assert b"invalid syntax" in head.body


async def test_all_namespaces_can_be_watched(api_server: Cluster) -> None:
    rv = await api_server.now(api_server.pods)
    await api_server.made(api_server.pods, pod("a"))
    (seen,) = await api_server.watch(
        "/api/v1/pods", 1, resourceVersion=rv, fieldSelector=f"metadata.namespace={api_server.namespace}"
    )
    assert seen.brief == ("ADDED", "a")
