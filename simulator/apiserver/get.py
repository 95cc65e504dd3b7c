"""GET: one object; lists with selectors, snapshots and pages; and with ?watch= a stream of what changes.

A watcher gets first what there is, then changes and bookmarks, until its time is over or it is cut.
"""

from __future__ import annotations

import base64
import binascii
import random
from typing import Any

import anyio
import msgspec

from kube.client.errors import Unreachable
from simulator.apiserver.calls import Call, bad_request, expired, internal, not_found, too_large_resource_version
from simulator.apiserver.faults import Faults
from simulator.apiserver.selectors import Predicate, everything, pinned, selection
from simulator.apiserver.store import Store, Stored, Table, Watcher, event_line, within
from simulator.apiserver.types import ResourceType


class ContinueToken(msgspec.Struct, frozen=True):
    """Which snapshot a paged list reads, and where its next page begins.

    ``rv`` is the snapshot's version, -1 for the current one (after the snapshot was compacted away).
    """

    rv: int
    #: The first key that may be on the next page.
    start: str

    def encode(self) -> str:
        """Return the token as text; clients must not look into it."""
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode()


def decode_token(text: str) -> ContinueToken:
    """Read a token. Raises Refusal (400)."""
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(text), type=ContinueToken)
    except (binascii.Error, ValueError, msgspec.DecodeError) as error:
        raise bad_request(f"invalid continue token: continue key is not valid: {error}") from error


_PAGE_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)
_LIST_TOO_OLD = "The resourceVersion for the provided list is too old."


class _View(msgspec.Struct, frozen=True):
    """One type's objects at one version."""

    rv: int
    objects: dict[str, Stored]
    keys: list[str]


class Reading:
    """Reads objects."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def get(self, call: Call) -> Stored:
        """GET one object. Raises Refusal."""
        stored = self._store.get(call.kind, call.key)
        if stored is None:
            raise not_found(call.kind, call.name)
        return stored

    def list(self, call: Call) -> bytes:
        """GET a collection. Raises Refusal."""
        matches = selector_of(call)
        limit = _number(call, "limit")
        token = call.query.get("continue", "")
        table = self._store.table(call.kind)
        prefix = f"{call.namespace}/" if call.namespace else ""
        view, start = self._continued(table, prefix, token) if token else (self._view(table, call), "")
        page, rest = _page(view, within(_keys(table, view, call), prefix, prefix + start), matches, limit)
        meta: dict[str, object] = {"resourceVersion": str(view.rv)}
        if rest:
            meta["continue"] = ContinueToken(view.rv, rest[0].removeprefix(prefix)).encode()
            if not call.query.get("labelSelector") and not call.query.get("fieldSelector"):
                meta["remainingItemCount"] = len(rest)
        return list_body(call.kind, meta, page)

    def _continued(self, table: Table, prefix: str, text: str) -> tuple[_View, str]:
        token = decode_token(text)
        if token.rv == -1:
            return self._current(table), token.start
        if token.rv < self._store.compacted_rv:
            refusal = expired(_PAGE_TOO_OLD)
            refusal.continue_token = ContinueToken(-1, token.start).encode()
            raise refusal
        return self._snapshot(table, token.rv), token.start

    def _view(self, table: Table, call: Call) -> _View:
        asked = call.query.get("resourceVersion", "")
        match = call.query.get("resourceVersionMatch", "")
        if asked in ("", "0"):
            return self._current(table)
        rv = parse_rv(asked)
        if rv > self._store.rv:
            raise too_large_resource_version(rv, self._store.rv)
        if match != "Exact":
            return self._current(table)
        if rv < self._store.compacted_rv:
            raise expired(_LIST_TOO_OLD)
        return self._snapshot(table, rv)

    def _current(self, table: Table) -> _View:
        return _View(self._store.rv, table.objects, table.keys)

    def _snapshot(self, table: Table, rv: int) -> _View:
        if not table.log.has_after(rv):
            return _View(rv, table.objects, table.keys)
        objects = table.at(rv)
        return _View(rv, objects, sorted(objects))


def selector_of(call: Call) -> Predicate:
    """Return the predicate that a list or a watch asks for. Raises Refusal."""
    query = call.query
    fields = query.get("fieldSelector", "")
    if call.name:
        fields = f"metadata.name={call.name}"
    return selection(call.kind, namespace=call.namespace, labels=query.get("labelSelector", ""), fields=fields)


def _keys(table: Table, view: _View, call: Call) -> list[str]:
    """All keys of a view; of the current one only those that have the field's value that is asked for."""
    wanted = pinned(call.kind, call.query.get("fieldSelector", ""))
    if wanted is None or view.objects is not table.objects:
        return view.keys
    return table.keys_having(*wanted)


def _page(view: _View, keys: list[str], matches: Predicate, limit: int) -> tuple[list[Stored], list[str]]:
    """Return up to ``limit`` (0: all) matching objects, and the keys from the next matching one on."""
    if not limit and matches is everything:
        return [view.objects[key] for key in keys], []
    page: list[Stored] = []
    for at, key in enumerate(keys):
        stored = view.objects[key]
        if not matches(stored.obj):
            continue
        if limit and len(page) == limit:
            return page, keys[at:]
        page.append(stored)
    return page, []


def list_body(kind: ResourceType, meta: dict[str, object], items: list[Stored]) -> bytes:
    """Return a List. Items of built-in types go without kind and apiVersion, as the real server writes them."""
    head = msgspec.json.encode({"kind": f"{kind.kind}List", "apiVersion": kind.api_version, "metadata": meta})
    return b'%s,"items":[%s]}' % (head[:-1], b",".join([_item(kind, each) for each in items]))


def _item(kind: ResourceType, stored: Stored) -> bytes:
    prefix = b'{"kind":"%s","apiVersion":"%s",' % (kind.kind.encode(), kind.api_version.encode())
    if kind.custom or not stored.raw.startswith(prefix):
        return stored.raw
    return b"{" + stored.raw[len(prefix) :]


def parse_rv(text: str) -> int:
    """Read a resourceVersion from a query. Raises Refusal (500, as the real server)."""
    if not text.isdecimal():
        raise internal(f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax')
    return int(text)


def _number(call: Call, name: str) -> int:
    text = call.query.get(name) or "0"
    if not text.isdecimal():
        raise bad_request(f"{name}: not a number: {text!r}")
    return int(text)


_INITIAL_END = {"k8s.io/initial-events-end": "true"}
#: The real server's default: a minute apart, and once more shortly before the end.
_BOOKMARK_EVERY_S = 60.0
_BOOKMARK_BEFORE_END_S = 2.0
_MIN_TIMEOUT_S = 1800
_TOO_OLD = "The resourceVersion for the provided watch is too old."


def expired_line() -> bytes:
    """Return the line that ends a watch whose version is too old."""
    return event_line("ERROR", expired(_TOO_OLD).body())


class WatchStream:
    """The lines of one watch, in order. Ends with the time-out; raises Unreachable when it is cut."""

    def __init__(
        self, watcher: Watcher, store: Store, *, kind: ResourceType, timeout_s: float, bookmarks: bool
    ) -> None:
        self._watcher = watcher
        self._store = store
        self._kind = kind
        self._end = anyio.current_time() + timeout_s
        self._bookmarks = bookmarks
        self._next_bookmark = self._after(anyio.current_time())

    def __aiter__(self) -> WatchStream:
        """Iterate once; a stream can't be restarted."""
        return self

    async def __anext__(self) -> bytes:
        """Return the next line."""
        while True:
            line = self._ready(anyio.current_time())
            if line is not None:
                return line
            await self._wait()

    def close(self) -> None:
        """Stop following."""
        self._store.table(self._kind).log.watchers.pop(self._watcher, None)

    def _ready(self, now: float) -> bytes | None:
        watcher = self._watcher
        if watcher.cut:
            raise Unreachable("the watch was cut")
        if watcher.lines and watcher.lines[0][0] <= now:
            return watcher.lines.popleft()[1]
        if now >= self._end or (watcher.over and not watcher.lines):
            raise StopAsyncIteration
        if self._bookmarks and not watcher.lines and now >= self._next_bookmark:
            self._next_bookmark = self._after(now)
            return bookmark_line(self._kind, self._store.rv, {})
        return None

    async def _wait(self) -> None:
        watcher = self._watcher
        until = self._end
        if watcher.lines:
            until = min(until, watcher.lines[0][0])
        elif self._bookmarks:
            until = min(until, self._next_bookmark)
        watcher.news = anyio.Event()
        with anyio.move_on_at(until):
            await watcher.news.wait()

    def _after(self, now: float) -> float:
        last = self._end - _BOOKMARK_BEFORE_END_S
        if now >= last:
            return self._end
        return min(now + _BOOKMARK_EVERY_S, last)


def bookmark_line(kind: ResourceType, rv: int, annotations: dict[str, str]) -> bytes:
    """Return a BOOKMARK: an object of the type with nothing but a version (and what Go writes for the rest)."""
    meta: dict[str, Any] = {"resourceVersion": str(rv), **({"annotations": annotations} if annotations else {})}
    obj = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": meta}
    raw = msgspec.json.encode(obj)
    return event_line("BOOKMARK", b"%s,%s}" % (raw[:-1], kind.blank) if kind.blank else raw)


class Watching:
    """Opens watches."""

    def __init__(self, store: Store, faults: Faults, *, rng: random.Random) -> None:
        self._store = store
        self._faults = faults
        self._rng = rng

    def open(self, call: Call) -> WatchStream:
        """Open a watch. Raises Refusal for what can't be understood; a version that is too old gets an ERROR event."""
        matches, now = selector_of(call), anyio.current_time()
        asked = call.query.get("resourceVersion", "")
        rv = parse_rv(asked) if asked else 0
        faults = self._faults
        watcher = Watcher(call=call, matches=matches, delay_s=faults.watch_delay_s, repeats=faults.watch_repeats)
        stream = WatchStream(
            watcher,
            self._store,
            kind=call.kind,
            timeout_s=self._timeout_s(call),
            bookmarks=_flag(call, "allowWatchBookmarks"),
        )
        log = self._store.table(call.kind).log
        if rv == 0:
            self._push_initial(watcher, now)
        elif rv < self._store.compacted_rv:
            watcher.push(expired_line(), now)
            watcher.over = True
            return stream
        else:
            for change in log.after(rv):
                watcher.offer(change, now)
        log.watchers[watcher] = None
        return stream

    def _push_initial(self, watcher: Watcher, now: float) -> None:
        call = watcher.call
        table = self._store.table(call.kind)
        for key in table.keys_within(f"{call.namespace}/" if call.namespace else ""):
            stored = table.objects[key]
            if watcher.matches(stored.obj):
                watcher.push(event_line("ADDED", stored.raw), now)
        if _flag(call, "sendInitialEvents") and _flag(call, "allowWatchBookmarks"):
            watcher.push(bookmark_line(call.kind, self._store.rv, _INITIAL_END), now)

    def _timeout_s(self, call: Call) -> float:
        text = call.query.get("timeoutSeconds") or "0"
        if not text.isdecimal():
            raise bad_request(f"timeoutSeconds: not a number: {text!r}")
        return float(text) if int(text) else _MIN_TIMEOUT_S * (1 + self._rng.random())


def _flag(call: Call, name: str) -> bool:
    return call.query.get(name, "") in ("true", "1")
