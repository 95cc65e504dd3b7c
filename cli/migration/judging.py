"""All rows about a cluster, in the order in which an administrator goes on. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from cli.migration.configuring import config_rows, shard_rows
from cli.migration.found import Found
from cli.migration.grouping import group_rows, queue_rows
from cli.migration.rows import Code, Level, Row, row
from cli.migration.running import running_rows
from cli.migration.sharing import share_rows
from cli.migration.waiting import waiting_rows

_ORDER = list(Level)


def judge(found: Found) -> list[Row]:
    """Rows by level: what has to be done first comes first. Equal rows are reported once."""
    rows = {(each.code, each.about, *each.values.items()): each for each in _rows(found)}
    return sorted(rows.values(), key=lambda each: _ORDER.index(each.level))


def _rows(found: Found) -> Iterator[Row]:
    for what, why in found.unread:
        yield row(Code.UNREAD, what, why=why)
    yield from running_rows(found)
    for config in found.configs:
        yield from config_rows(config)
    for shard in found.shards:
        yield from shard_rows(shard)
    yield from queue_rows(found)
    yield from group_rows(found.groups)
    yield from share_rows(found)
    yield from waiting_rows(found)
