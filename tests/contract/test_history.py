"""What is compacted away can't be watched or listed from. Events: the real server keeps no cache of those."""

from __future__ import annotations

from tests.contract.cluster import Cluster, event


async def _compacted(api_server: Cluster) -> tuple[str, str]:
    """Return a version that is too old, and a continue token of it."""
    for name in ("a", "b", "c"):
        await api_server.made(api_server.events, event(name))
    listed = await api_server.get(api_server.events, limit="1")
    await api_server.made(api_server.events, event("bb"))
    await api_server.made(api_server.events, event("d"))
    await api_server.compact()
    return listed.rv, listed.body["metadata"]["continue"]


async def test_a_watch_from_forgotten_history_is_told_so_in_an_event(api_server: Cluster) -> None:
    rv, _ = await _compacted(api_server)
    (error,) = await api_server.watch_to_its_end(api_server.events, resourceVersion=rv, timeoutSeconds="2")
    assert error.type == "ERROR"
    assert (error.object["kind"], error.object["code"], error.object["reason"]) == ("Status", 410, "Expired")


async def test_a_watch_from_the_compacted_version_itself_goes_on(api_server: Cluster) -> None:
    await _compacted(api_server)
    rv = await api_server.now(api_server.events)
    await api_server.made(api_server.events, event("e"))
    (seen,) = await api_server.watch(api_server.events, 1, resourceVersion=rv)
    assert seen.brief == ("ADDED", "e")


async def test_a_page_of_a_forgotten_snapshot_is_gone_but_the_rest_can_be_had(api_server: Cluster) -> None:
    _, token = await _compacted(api_server)
    gone = await api_server.get(api_server.events, **{"limit": "1", "continue": token})
    assert gone.failure == (410, "Expired")
    fresh = gone.body["metadata"]["continue"]
    rest = await api_server.get(api_server.events, **{"continue": fresh})
    assert rest.names == ["b", "bb", "c", "d"]


async def test_a_forgotten_exact_version_is_gone(api_server: Cluster) -> None:
    rv, _ = await _compacted(api_server)
    answer = await api_server.get(api_server.events, resourceVersion=rv, resourceVersionMatch="Exact")
    assert answer.failure == (410, "Expired")
