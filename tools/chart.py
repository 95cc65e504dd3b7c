"""What of the chart is made from the code: ``python -m tools.chart write``, and ``check`` for what is not up to date.

CRDs, rights, policies and webhook configurations each have one source (docs/design/installing.md); the chart holds
copies, since Helm renders nothing that lies outside of it. Templates are written by hand and not touched.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml
from typing_extensions import override

from admission.manifests import ServiceEndpoint, all_manifests
from admission.policies import policy_manifests
from tools.dashboard import dashboard

ROOT: Final = Path(__file__).parent.parent
CHART: Final = ROOT / "helm" / "moorage"
_COMPONENTS: Final = ("admission", "binder", "cli", "nodeagent", "reservation", "scheduler", "workloads")
#: The folder of a component whose name is another.
_FOLDERS: Final = {"workloads": "podgrouper"}
_MADE: Final = "# Made by `make chart` from {source}: change that.\n"


def made_files() -> Mapping[str, str]:
    """Return what belongs into the chart, by its path there."""
    return dict(_files())


def _files() -> Iterator[tuple[str, str]]:
    for path in sorted((ROOT / "wire" / "crds" / "yaml").glob("*.yaml")):
        yield f"crds/{path.name}", _copied(path)
    for component in _COMPONENTS:
        yield f"manifests/rbac-{component}.yaml", _copied(ROOT / _FOLDERS.get(component, component) / "rbac.yaml")
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
