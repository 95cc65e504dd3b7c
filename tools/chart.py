"""What of the chart is made from the code: ``python -m tools.chart write``, and ``check`` for what is not up to date.

CRDs, rights, policies and webhook configurations each have one source (docs/design/installing.md); the chart holds
copies, since Helm renders nothing that lies outside of it. Templates are written by hand and not touched.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml
from typing_extensions import override

from admission.manifests import ServiceEndpoint, all_manifests
from admission.policies import policy_manifests
from runtime.metrics import declared as have
from runtime.metrics import nodeagent
from runtime.metrics.declared import Metric

_WIDTH: Final = 12
_HEIGHT: Final = 8
_RATE: Final = "$__rate_interval"


class Panel(msgspec.Struct, frozen=True):
    """One graph. ``queries``: PromQL and what its lines are called. ``unit``: Grafana's name of it."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]


def _rate(metric: Metric, by: str, *, where: str = "") -> str:
    return f"sum by ({by}) (rate({metric.name}{where}[{_RATE}]))"


def _quantile(metric: Metric, by: str = "", *, of: float = 0.99, where: str = "") -> str:
    labels = f"{by}, le" if by else "le"
    return f"histogram_quantile({of}, sum by ({labels}) (rate({metric.name}_bucket{where}[{_RATE}])))"


PANELS: Final = (
    Panel("Pods that wait, by reason", "short", ((f"max by (reason) ({have.WAITING.name}) > 0", "{{reason}}"),)),
    Panel(
        "GPUs, by use",
        "short",
        ((f"max by (node_pool, product, state) ({have.POOLS.name}) / 1e9", "{{node_pool}} {{product}} {{state}}"),),
    ),
    Panel(
        "GPUs that are free and fit no pod, by cause",
        "short",
        (
            (
                f"max by (node_pool, product, cause) ({have.UNUSABLE.name}) / 1e9 > 0",
                "{{node_pool}} {{product}} {{cause}}",
            ),
        ),
    ),
    Panel(
        "GPUs of queues",
        "short",
        (
            (f"max by (queue_metadata_name) ({have.QUEUE_ALLOCATED[0].name})", "{{queue_metadata_name}}"),
            (f"max by (queue_metadata_name) ({have.QUEUE_REQUESTED[0].name})", "{{queue_metadata_name}}, requested"),
            (f"max by (queue_metadata_name) ({have.QUEUE_FAIR[0].name})", "{{queue_metadata_name}}, fair share"),
        ),
    ),
    Panel(
        "Seen first to bound",
        "s",
        ((_quantile(have.WAITED, of=0.5), "median"), (_quantile(have.WAITED), "99 %")),
    ),
    Panel(
        "Binds a second",
        "ops",
        (
            (_rate(have.COMMITS, "outcome"), "direct: {{outcome}}"),
            (_rate(have.BINDS, "outcome"), "by the binder: {{outcome}}"),
        ),
    ),
    Panel(
        "Evictions, in an hour",
        "short",
        ((f'sum by (action) (increase({have.EVICTIONS.name}{{result="evicted"}}[1h]))', "{{action}}"),),
    ),
    Panel(
        "Evictions without a start, in an hour",
        "short",
        (
            (f"sum(increase({have.EVICTED_IN_VAIN.name}[1h]))", "pods evicted for pods that did not start"),
            (f"max by (action) ({have.NOMINATIONS.name})", "nominations that stand: {{action}}"),
        ),
    ),
    Panel(
        "GPUs held by idle shares",
        "short",
        (
            (
                f"sum by (namespace) ({nodeagent.TENANT_NANO.name} and on (uuid, pod_uid) "
                f"{nodeagent.TENANT_IDLE.name}) / 1e9",
                "{{namespace}}",
            ),
        ),
    ),
    Panel("Decisions a second", "ops", ((_rate(have.DECISIONS, "kind"), "{{kind}}"),)),
    Panel(
        "Questions why pods wait",
        "short",
        (
            (f"sum by (outcome) (increase({have.EXPLAIN_SECONDS.name}_count[1h]))", "{{outcome}}, in an hour"),
            (_quantile(have.EXPLAIN_SECONDS, "outcome"), "{{outcome}}: seconds, 99 %"),
            (_quantile(have.EXPLAIN_SLICE_SECONDS, "job"), "slice of a decision's time: seconds, 99 %"),
        ),
    ),
    Panel("New reasons to wait, a second", "ops", ((_rate(have.VERDICTS, "reason"), "{{reason}}"),)),
    Panel("Scheduler: stages, 99 %", "s", ((_quantile(have.STAGE_SECONDS, "stage"), "{{stage}}"),)),
    Panel("Binder: stages, 99 %", "s", ((_quantile(have.BIND_STAGE_SECONDS, "stage"), "{{stage}}"),)),
    Panel("From BindRequest to the end, 99 %", "s", ((_quantile(have.BIND_SECONDS, "outcome"), "{{outcome}}"),)),
    Panel("Reservations", "short", ((f"max by (state) ({have.RESERVATIONS.name})", "{{state}}"),)),
    Panel(
        "Shared GPUs",
        "short",
        ((f"max({have.GROUPS.name})", "GPUs"), (f"max({have.TENANTS.name})", "pods on them")),
    ),
    Panel(
        "What must be 0",
        "short",
        (
            (f"max by (kind) ({have.DRIFT.name})", "books: {{kind}}"),
            (f"sum(increase({have.LEDGER_DIFFERENCES.name}[1h]))", "ledger, in an hour"),
            (f"max by (job, resource) ({have.WATCH_UNREADABLE.name})", "unreadable {{resource}} ({{job}})"),
        ),
    ),
    Panel(
        "Writes a second",
        "ops",
        ((_rate(have.API_REQUESTS, "verb, resource", where='{verb!~"get|list|watch"}'), "{{verb}} {{resource}}"),),
    ),
    Panel(
        "Requests that fail, a second",
        "ops",
        ((_rate(have.API_REQUESTS, "job, code", where='{code!~"2.."}'), "{{job}} {{code}}"),),
    ),
    Panel("Requests, 99 %", "s", ((_quantile(have.API_SECONDS, "verb, resource"), "{{verb}} {{resource}}"),)),
    Panel(
        "Watches",
        "s",
        (
            (_quantile(have.WATCH_LAG, "job, resource"), "lag of {{resource}} at {{job}}, 99 %"),
            (f"max by (job, resource) ({have.WATCH_SILENCE.name})", "silence of {{resource}} at {{job}}"),
        ),
    ),
    Panel("Reviews, 99 %", "s", ((_quantile(have.REVIEW_SECONDS, "webhook"), "{{webhook}}"),)),
    Panel(
        "Reviews a second",
        "ops",
        ((f"sum by (webhook, answer) (rate({have.REVIEW_SECONDS.name}_count[{_RATE}]))", "{{webhook}} {{answer}}"),),
    ),
    Panel("Event loop: lag, 99 %", "s", ((_quantile(have.LOOP_LAG, "job"), "{{job}}"),)),
    Panel("Leaders", "short", ((f"sum by (job) ({have.LEADER.name})", "{{job}}"),)),
)


def dashboard() -> str:
    """Return the dashboard as Grafana imports it; its Prometheus is chosen there.

    Queries name metrics by their declarations, so a metric that is removed takes its panels with it.
    """
    made = {
        "title": "Moorage",
        "uid": "moorage",
        "schemaVersion": 39,
        "tags": ["kubernetes", "gpu"],
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "1m",
        "templating": {
            "list": [{"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}]
        },
        "panels": [_panel(number, panel) for number, panel in enumerate(PANELS)],
    }
    return json.dumps(made, indent=2) + "\n"


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${datasource}"}
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "datasource": source,
        "gridPos": {"x": number % 2 * _WIDTH, "y": number // 2 * _HEIGHT, "w": _WIDTH, "h": _HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + index), "datasource": source, "expr": query, "legendFormat": legend}
            for index, (query, legend) in enumerate(panel.queries)
        ],
    }


ROOT: Final = Path(__file__).parent.parent
CHART: Final = ROOT / "helm" / "moorage"
_COMPONENTS: Final = ("admission", "binder", "cli", "nodeagent", "podgrouper", "reservation", "scheduler")
_MADE: Final = "# Made by `make chart` from {source}: change that.\n"


def made_files() -> Mapping[str, str]:
    """Return what belongs into the chart, by its path there."""
    return dict(_files())


def _files() -> Iterator[tuple[str, str]]:
    for path in sorted((ROOT / "wire" / "crds" / "yaml").glob("*.yaml")):
        yield f"crds/{path.name}", _copied(path)
    for component in _COMPONENTS:
        yield f"manifests/rbac-{component}.yaml", _copied(ROOT / component / "rbac.yaml")
    yield "manifests/rbac-explain.yaml", _copied(ROOT / "ui" / "explain" / "rbac.yaml")
    yield "manifests/rbac-page.yaml", _copied(ROOT / "ui" / "page" / "rbac.yaml")
    yield "manifests/priorityclass-reservation.yaml", _copied(ROOT / "reservation" / "priorityclass.yaml")
    yield "manifests/policies.yaml", _rendered("admission/policies.py", policy_manifests())
    # Admission writes caBundle, or cert-manager does.
    webhooks = all_manifests(ServiceEndpoint(), ca=b"")
    yield "dashboards/moorage.json", dashboard()
    yield "manifests/webhooks.yaml", _rendered("admission/manifests.py", [_without_bundle(made) for made in webhooks])


def _copied(path: Path) -> str:
    return _MADE.format(source=path.relative_to(ROOT)) + path.read_text()


def _rendered(source: str, manifests: Sequence[Mapping[str, Any]]) -> str:
    text: str = yaml.dump_all(manifests, Dumper=_Plain, sort_keys=False, width=120)
    return _MADE.format(source=source) + text


class _Plain(yaml.SafeDumper):
    """Writes everything out: Helm's parser knows references to what was written before, people don't follow them."""

    @override
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _without_bundle(configuration: Mapping[str, Any]) -> dict[str, Any]:
    webhooks = []
    for webhook in configuration["webhooks"]:
        client = {key: value for key, value in webhook["clientConfig"].items() if key != "caBundle"}
        webhooks.append({**webhook, "clientConfig": client})
    return {**configuration, "webhooks": webhooks}


def differing(chart: Path = CHART) -> list[str]:
    """Return the paths in the chart that are missing, are not as they would be made, or would not be made."""
    made = made_files()
    there = {
        str(path.relative_to(chart)): path.read_text()
        for folder in ("crds", "dashboards", "manifests")
        for path in sorted((chart / folder).glob("*"))
    }
    return sorted(path for path in made.keys() | there.keys() if made.get(path) != there.get(path))


def write(chart: Path = CHART) -> list[str]:
    """Make them so; return the paths that changed."""
    changed, made = differing(chart), made_files()
    for path in changed:
        if path in made:
            (chart / path).parent.mkdir(parents=True, exist_ok=True)
            (chart / path).write_text(made[path])
        else:
            (chart / path).unlink()
    return changed


def main(arguments: Sequence[str]) -> int:
    """Write, or check."""
    if list(arguments) not in (["write"], ["check"]):
        print("python -m tools.chart: write or check is allowed", file=sys.stderr)
        return 2
    if arguments[0] == "write":
        for path in write():
            print(f"helm/moorage/{path}: written")
        return 0
    for path in differing():
        print(f"helm/moorage/{path}: is not what `make chart` would make", file=sys.stderr)
    return 1 if differing() else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
