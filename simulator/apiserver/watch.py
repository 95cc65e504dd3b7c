"""GET with ?watch=: what a watcher gets first, then what changes, bookmarks, and the end."""

from __future__ import annotations

import random
from typing import Any

import anyio
import msgspec

from kube.client.errors import Unreachable
from simulator.apiserver.calls import Call
from simulator.apiserver.fault_responses import expired_line
from simulator.apiserver.faults import Faults
from simulator.apiserver.get import parse_rv, selector_of
from simulator.apiserver.refusals import bad_request
from simulator.apiserver.store import Store
from simulator.apiserver.types import ResourceType
from simulator.apiserver.watchlog import Watcher, event_line

_INITIAL_END = {"k8s.io/initial-events-end": "true"}
#: The real server's default: a minute apart, and once more shortly before the end.
_BOOKMARK_EVERY_S = 60.0
_BOOKMARK_BEFORE_END_S = 2.0
_MIN_TIMEOUT_S = 1800


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
