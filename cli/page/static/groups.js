// Groups of pods that start together.
import { table } from "./dom.js";
import { natural } from "./store.js";
import { View, note } from "./view.js";

/** PodGroups. */
export class GroupsView extends View {
  constructor(page) {
    super(page, "Groups");
  }

  show() {
    const groups = [...this.page.store.groups.values()].sort((a, b) => natural.compare(a.name, b.name));
    const rows = groups.map((group) => [
      `${group.namespace}/${group.name}`,
      group.queue ?? "",
      String(group.minMember ?? 0),
      String(group.pods ?? 0),
      String(group.bound ?? 0),
      String(group.running ?? 0),
      standing(group),
    ]);
    const columns = ["Group", "Queue", "Needed", "Pods", "Bound", "Running", "State"];
    this.put(rows.length ? table("Groups that start together", columns, rows) : note("There is no group."));
  }
}

function standing(group) {
  const bound = group.bound ?? 0;
  const needed = group.minMember ?? 0;
  if (!bound) return "waits";
  return bound >= needed ? "has its minimum" : `below its minimum by ${needed - bound}`;
}
