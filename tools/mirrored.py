"""Whether tests mirror modules: ``python -m tools.mirrored``.

A module has a test file of its name in the mirrored folder, or ``BY`` names the file that tests it. Tests
of several modules are in folders named ``stories``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

FOLDERS: Final = ("binder/core", "gpu", "scheduler/core", "sharing")
STORIES: Final = "stories"
#: Module -> test file of another name that tests it.
BY: Final[Mapping[str, str]] = {
    "gpu/configmaps.py": "tests/binder/test_configmaps.py",
    "gpu/dialects/agreeing.py": "tests/gpu/dialects/test_combine.py",
    "gpu/dialects/assembly.py": "tests/gpu/dialects/test_combine.py",
    "gpu/dialects/clearmlforms.py": "tests/gpu/dialects/test_clearml.py",
    "gpu/dialects/clearmllabel.py": "tests/gpu/dialects/test_clearml.py",
    "gpu/dialects/koordinatorsums.py": "tests/gpu/dialects/test_koordinator.py",
    "gpu/dialects/nodesettings.py": "tests/gpu/dialects/test_bynodes.py",
    "gpu/dialects/nvannotations.py": "tests/gpu/dialects/test_nvfractions.py",
    "gpu/dialects/plugin.py": "tests/gpu/dialects/test_hami.py",
    "gpu/dialects/replicaentries.py": "tests/gpu/dialects/test_replicas.py",
    "gpu/dialects/sayings.py": "tests/gpu/dialects/test_saying.py",
    "gpu/dialects/settings.py": "tests/gpu/dialects/test_settingsfile.py",
    "gpu/dialects/vgpu.py": "tests/gpu/dialects/test_hami.py",
    "gpu/dialects/vgpupod.py": "tests/gpu/dialects/test_hami.py",
    "gpu/dialects/volcanoshare.py": "tests/gpu/dialects/test_volcano.py",
    "gpu/recordedasks.py": "tests/gpu/test_record.py",
    "gpu/refusal.py": "tests/gpu/test_asked.py",
    "gpu/translation.py": "tests/gpu/test_asked.py",
    "scheduler/core/assumed/attempt.py": "tests/scheduler/core/assumed/test_assumed.py",
    "scheduler/core/assumed/in_flight.py": "tests/scheduler/core/assumed/test_assumed.py",
    "scheduler/core/backlog/kept_off.py": "tests/scheduler/core/stories/test_berths_machine.py",
    "scheduler/core/backlog/learned.py": "tests/scheduler/core/backlog/test_notes.py",
    "scheduler/core/backlog/waiting_gang.py": "tests/scheduler/core/backlog/test_backlog.py",
    "scheduler/core/cluster_marks.py": "tests/scheduler/core/test_cluster.py",
    "scheduler/core/cluster_state.py": "tests/scheduler/core/test_cluster.py",
    "scheduler/core/model/extended_resource.py": "tests/scheduler/core/claims/test_backed.py",
    "scheduler/core/claims/asks.py": "tests/scheduler/core/claims/test_allocating.py",
    "scheduler/core/convert/constraints.py": "tests/scheduler/core/convert/test_blockers.py",
    "scheduler/core/convert/device_env.py": "tests/scheduler/core/convert/test_blockers.py",
    "scheduler/core/convert/selectors.py": "tests/scheduler/core/nodes/test_anti_affinity.py",
    "scheduler/core/model/mig_card.py": "tests/scheduler/core/convert/test_gpu_nodes.py",
    "scheduler/core/model/numa.py": "tests/scheduler/core/convert/test_numa.py",
    "scheduler/core/decide/alone.py": "tests/scheduler/core/decide/test_decide.py",
    "scheduler/core/decide/as_if.py": "tests/scheduler/core/decide/test_changes.py",
    "scheduler/core/decide/berth_candidates.py": "tests/scheduler/core/stories/test_berths.py",
    "scheduler/core/decide/berth_choice.py": "tests/scheduler/core/stories/test_berths.py",
    "scheduler/core/decide/berth_holders.py": "tests/scheduler/core/stories/test_berths.py",
    "scheduler/core/decide/berth_rights.py": "tests/scheduler/core/stories/test_berths.py",
    "scheduler/core/decide/berthing.py": "tests/scheduler/core/stories/test_berths.py",
    "scheduler/core/decide/charging.py": "tests/scheduler/core/decide/test_making.py",
    "scheduler/core/decide/beside_gang.py": "tests/scheduler/core/stories/test_places.py",
    "scheduler/core/decide/costs.py": "tests/scheduler/core/decide/test_attempts.py",
    "scheduler/core/decide/domain_rooms.py": "tests/scheduler/core/decide/test_domain_search.py",
    "scheduler/core/decide/draft.py": "tests/scheduler/core/decide/test_changes.py",
    "scheduler/core/decide/gang_start.py": "tests/scheduler/core/decide/test_filing.py",
    "scheduler/core/decide/gang_trying.py": "tests/scheduler/core/decide/test_filing.py",
    "scheduler/core/decide/gang_waits.py": "tests/scheduler/core/decide/test_gangs.py",
    "scheduler/core/decide/held_back.py": "tests/scheduler/core/decide/test_making.py",
    "scheduler/core/decide/kept_nodes.py": "tests/scheduler/core/decide/test_attempts.py",
    "scheduler/core/decide/known_classes.py": "tests/scheduler/core/decide/test_attempts.py",
    "scheduler/core/decide/needed.py": "tests/scheduler/core/decide/test_making.py",
    "scheduler/core/decide/needs.py": "tests/scheduler/core/decide/test_making.py",
    "scheduler/core/decide/place_bounds.py": "tests/scheduler/core/stories/test_places.py",
    "scheduler/core/decide/returning.py": "tests/scheduler/core/stories/test_moving.py",
    "scheduler/core/decide/shapes.py": "tests/scheduler/core/backlog/test_backlog.py",
    "scheduler/core/decide/supposed_nodes.py": "tests/scheduler/core/autoscale/test_unmet_demand.py",
    "scheduler/core/explain/ruled_out.py": "tests/scheduler/core/stories/test_compute.py",
    "scheduler/core/explain/shortfall.py": "tests/scheduler/core/explain/test_explain.py",
    "scheduler/core/what_if/units.py": "tests/scheduler/core/what_if/test_endings.py",
    "scheduler/core/explain/units.py": "tests/scheduler/core/explain/test_explain.py",
    "scheduler/core/filters/counted_parts.py": "tests/scheduler/core/filters/test_pod_anti_affinity.py",
    "scheduler/core/filters/filter.py": "tests/scheduler/core/stories/test_adding_a_filter.py",
    "scheduler/core/filters/pod_rule.py": "tests/scheduler/core/filters/test_spread.py",
    "scheduler/core/filters/pod_terms.py": "tests/scheduler/core/filters/test_pod_anti_affinity.py",
    "scheduler/core/filters/readiness.py": "tests/scheduler/core/filters/test_place.py",
    "scheduler/core/filters/requirements.py": "tests/scheduler/core/filters/test_node_affinity.py",
    "scheduler/core/model/budget_record.py": "tests/scheduler/core/convert/test_budgets.py",
    "scheduler/core/model/copying.py": "tests/scheduler/core/decide/test_changes.py",
    "scheduler/core/model/device_allocation.py": "tests/scheduler/core/convert/test_claim_allocations.py",
    "scheduler/core/model/device_need.py": "tests/scheduler/core/convert/test_resource_claims.py",
    "scheduler/core/model/device_record.py": "tests/scheduler/core/convert/test_resource_slices.py",
    "scheduler/core/model/facts.py": "tests/scheduler/core/nodes/test_storage.py",
    "scheduler/core/model/plan.py": "tests/scheduler/core/decide/test_placer.py",
    "scheduler/core/model/pod_preferences.py": "tests/scheduler/core/convert/test_pod_preferences.py",
    "scheduler/core/model/pod_rules.py": "tests/scheduler/core/filters/test_host_ports.py",
    "scheduler/core/model/priority_order.py": "tests/scheduler/core/decide/test_decide.py",
    "scheduler/core/model/room.py": "tests/scheduler/core/room/test_search.py",
    "scheduler/core/model/settings.py": "tests/scheduler/core/decide/test_exclusions.py",
    "scheduler/core/model/topology.py": "tests/scheduler/core/convert/test_topologies.py",
    "scheduler/core/model/volume_need.py": "tests/scheduler/core/convert/test_volume_needs.py",
    "scheduler/core/nodes/table.py": "tests/scheduler/core/snapshot/test_statement.py",
    "scheduler/core/recount.py": "tests/scheduler/core/stories/test_machine.py",
    "scheduler/core/room/answers.py": "tests/scheduler/core/room/test_search.py",
    "scheduler/core/room/estimates.py": "tests/scheduler/core/room/test_nodewise.py",
    "scheduler/core/room/going.py": "tests/scheduler/core/room/test_search.py",
    "scheduler/core/room/ground.py": "tests/scheduler/core/room/test_search.py",
    "scheduler/core/room/joint.py": "tests/scheduler/core/room/test_nodewise.py",
    "scheduler/core/room/need.py": "tests/scheduler/core/room/test_search.py",
    "scheduler/core/room/sets.py": "tests/scheduler/core/room/test_search.py",
    "scheduler/core/room/tenants.py": "tests/scheduler/core/room/test_counting.py",
    "scheduler/core/room/trial.py": "tests/scheduler/core/decide/test_room_trial.py",
    "scheduler/core/scores/preferences/preference.py": "tests/scheduler/core/scores/preferences/test_preferred.py",
    "scheduler/core/scores/preferences/registry.py": "tests/scheduler/core/scores/preferences/test_preferred.py",
    "scheduler/core/scores/registry.py": "tests/scheduler/core/scores/test_score.py",
    "scheduler/core/scores/spread.py": "tests/scheduler/core/scores/test_score.py",
    "scheduler/core/model/claim_choice.py": "tests/scheduler/core/nodes/test_claim_statement.py",
    "scheduler/core/model/claim_use.py": "tests/scheduler/core/convert/test_claim_uses.py",
    "scheduler/core/snapshot/copies.py": "tests/scheduler/core/nodes/test_claim_statement.py",
    "scheduler/core/snapshot/counting.py": "tests/scheduler/core/snapshot/test_statement.py",
    "scheduler/core/snapshot/rule_columns.py": "tests/scheduler/core/snapshot/test_pod_counts.py",
    "scheduler/core/snapshot/supposed.py": "tests/scheduler/core/snapshot/test_statement.py",
    "sharing/attempt.py": "tests/sharing/test_rebuilding.py",
    "sharing/state.py": "tests/sharing/test_step.py",
}


def wrong(root: Path, folders: tuple[str, ...] = FOLDERS, by: Mapping[str, str] = BY) -> Iterator[str]:
    """Yield a sentence for each module without tests, each test file without module, and each name of no use."""
    modules = [path.relative_to(root) for folder in folders for path in sorted((root / folder).rglob("*.py"))]
    for module in modules:
        own, other = Path("tests", module.parent, f"test_{module.name}"), by.get(str(module))
        if module.name == "__init__.py":
            continue
        if (root / own).exists() and other is not None:
            yield f"{module}: has {own}; take it out of BY (tools/mirrored.py)"
        elif not (root / own).exists() and (other is None or not (root / other).exists()):
            yield f"{module}: has no tests; make {own}, or name in BY (tools/mirrored.py) the file that tests it"
    for name in sorted(by.keys() - set(map(str, modules))):
        yield f"{name}: no such module; take it out of BY (tools/mirrored.py)"
    for folder in folders:
        for test in sorted((root / "tests" / folder).rglob("test_*.py")):
            mirrored = test.relative_to(root / "tests").with_name(test.name.removeprefix("test_"))
            if STORIES not in test.parts and mirrored not in modules:
                yield f"{test.relative_to(root)}: no module {mirrored}; name it after one, or move it to {STORIES}/"


def main() -> int:
    """Print what is wrong; return the exit code."""
    found = list(wrong(Path(__file__).parents[1]))
    for sentence in found:
        print(sentence, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
