"""Rows about KAI's Config and shards: what was set to something else than its default, and what becomes of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from cli.checks.reader import Raw
from cli.migration.options import CONFIG, SHARD, Fate, Option
from cli.migration.rows import Code, Row, row
from cli.migration.values import as_given
from cli.settings import kinds
from cli.settings.declaring import declared
from cli.settings.kinds import Kind
from cli.settings.scheduler import SchedulerOptions

_CODES: Final = {
    Fate.MAPPED: Code.OPTION_MAPPED,
    Fate.UNUSED: Code.OPTION_UNUSED,
    Fate.MISSING: Code.OPTION_MISSING,
    Fate.FIXED: Code.OPTION_FIXED,
}
_SHARING: Final = "admission.gpuSharing"
_RUNTIME_CLASS: Final = "binder.resourceReservation.runtimeClassName"
#: The scheduler's arguments by their place in the chart, with how each is read.
_ARGUMENTS: Final[Mapping[str, Kind]] = {
    f"scheduler.args.{each.key}": each.setting.kind for each in declared(SchedulerOptions)
}
#: Values that mean the same as an absent option.
_EMPTY: Final[tuple[Any, ...]] = (None, {}, [])


def config_rows(config: Raw) -> Iterator[Row]:
    """What a Config says, and what its silence means here."""
    spec, about = config.get("spec") or {}, f"Config {config['metadata']['name']}"
    if _at(spec, _SHARING) in {None, False}:
        yield row(Code.SHARING_OFF, f"{about}: {_SHARING}")
    if not _at(spec, _RUNTIME_CLASS):
        yield row(Code.NO_RUNTIME_CLASS, f"{about}: {_RUNTIME_CLASS}")
    yield from _rows(about, spec, CONFIG)


def shard_rows(shard: Raw) -> Iterator[Row]:
    """What a shard says."""
    spec, about = dict(shard.get("spec") or {}), f"SchedulingShard {shard['metadata']['name']}"
    if partition := spec.pop("partitionLabelValue", ""):
        yield _partition_row(about, partition)
    strategy = spec.get("placementStrategy") or {}
    if strategy.get("gpu") == strategy.get("cpu"):
        spec["placementStrategy"] = strategy.get("gpu")
    yield from _rows(about, spec, SHARD, pool=partition)


def _partition_row(about: str, partition: str) -> Row:
    try:
        kinds.POOL.read(partition)
    except ValueError as error:
        setting = "scheduler.pools[].value"
        return row(Code.OPTION_UNFIT, f"{about}: partitionLabelValue", value=partition, setting=setting, why=str(error))
    return row(Code.SHARD_PARTITION, about, value=partition)


def _rows(about: str, spec: Raw, table: Mapping[str, Option], *, pool: str = "") -> Iterator[Row]:
    for path, value in _set(spec, table):
        option = _option(path, table) or Option(Fate.MISSING)
        if value not in _EMPTY and _lowered(value) != _lowered(option.default):
            yield _row(f"{about}: {path}", value, option, pool=pool)


def _row(about: str, value: Any, option: Option, *, pool: str) -> Row:
    """What becomes of one option. A value that a setting here refuses is reported with the setting's own reason.

    ``pool``: the node pool whose scheduler it is for, "" for the one without a value.
    """
    given, written = as_given(value), option.written(value)
    if option.fate is Fate.MAPPED and not written:
        return row(Code.OPTION_UNUSED, about, value=given)
    if why := _refusal(option.chart, written):
        return row(Code.OPTION_UNFIT, about, value=given, setting=_chart(option, pool), why=why)
    values = {"chart": f"{_chart(option, pool)}={written}", "allowed": str(option.default), "value": given}
    return row(_CODES[option.fate], about, **{name: values[name] for name in _NAMES[option.fate]})


def _chart(option: Option, pool: str) -> str:
    """The value of the chart; what is the scheduler's is that of its node pool."""
    of_scheduler = option.chart.removeprefix("scheduler.")
    return option.chart if not pool or of_scheduler == option.chart else f"scheduler.pools[{pool}].{of_scheduler}"


def _refusal(chart: str, written: str) -> str:
    """Why the scheduler would refuse an argument when it starts; "" if it takes it, or if it is no argument."""
    kind = _ARGUMENTS.get(chart)
    if kind is None:
        return ""
    try:
        kind.read(written)
    except ValueError as error:
        return str(error)
    return ""


def _lowered(value: Any) -> Any:
    """The same without regard to case: capabilities are written in either."""
    if isinstance(value, dict):
        return {key: _lowered(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_lowered(each) for each in value]
    return value.lower() if isinstance(value, str) else value


_NAMES: Final = {
    Fate.MAPPED: ("value", "chart"),
    Fate.UNUSED: ("value",),
    Fate.MISSING: ("value",),
    Fate.FIXED: ("value", "allowed"),
}


def _set(spec: Raw, table: Mapping[str, Option], before: str = "") -> Iterator[tuple[str, Any]]:
    """Options by their paths: as deep as the table knows them, and to the leaves where it does not."""
    for key, value in sorted(spec.items()):
        path = f"{before}{key}"
        if path in table and not any(other.startswith(f"{path}.") for other in table):
            yield path, value
        elif isinstance(value, dict) and value:
            yield from _set(value, table, f"{path}.")
        else:
            yield path, value


def _option(path: str, table: Mapping[str, Option]) -> Option | None:
    parts = path.split(".")
    begun = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((table[each] for each in begun if each in table), None)


def _at(spec: Raw, path: str) -> Any:
    found: Any = spec
    for part in path.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found
