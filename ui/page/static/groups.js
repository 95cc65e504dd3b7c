// Groups: pods that start together, and GPUs that are shared, each with the reservation that holds it and its book.
import { choiceLink, deviceLink, el, number, podLink, whole } from "./dom.js";
import { closedText, deviceName, hasPage, isUnsure, percentDown, percentUp, tenantName, tenantState } from "./format.js";
import { groupKey, natural } from "./store.js";
import { View, bounded, note, queueLink } from "./view.js";

export class GroupsView extends View {
  constructor(page) {
    super(page, "Groups");
  }

  show() {
    this.put(
      el("section", { class: "panel" }, el("h2", {}, "Pods that start together"), this.podGroups()),
      el("section", { class: "panel" }, el("h2", {}, "Shared GPUs and their books"), this.gpuGroups()),
    );
  }

  podGroups() {
    const groups = [...this.page.store.groups.values()].sort(
      (a, b) => natural.compare(a.namespace, b.namespace) || natural.compare(a.name, b.name),
    );
    const rows = groups.map((group) => [
      choiceLink("pods", { group: groupKey(group) }, groupKey(group)),
      queueLink(group.queue),
      String(group.minMember ?? 0),
      String(group.pods ?? 0),
      String(group.bound ?? 0),
      String(group.running ?? 0),
      standing(group),
    ]);
    const columns = ["Group", "Queue", number("Needed"), number("Pods"), number("Bound"), number("Running"), "State"];
    return rows.length ? bounded(this.page, "groups", "Groups that start together", columns, rows) : note(this.page.isInPart() ? "No PodGroup may be seen here." : "There is no PodGroup.");
  }

  gpuGroups() {
    const { store } = this.page;
    const rows = store.inOrder().flatMap((node) =>
      (node.devices ?? []).flatMap((device, place) => (device.group || device.reservation || device.device ? [held(node, device, place)] : [])),
    );
    const columns = ["GPU", "Who has it", number("Used"), number("Free"), "State", "Group and reservation"];
    if (rows.length) return bounded(this.page, "shared", "Shared GPUs with their tenants", columns, rows);
    if (!store.nodes.size) return note(this.page.nothing());
    return note(this.page.isInPart() ? "No shared GPU is known here." : "No GPU is shared.");
  }
}

function standing(group) {
  const bound = group.bound ?? 0;
  const needed = group.minMember ?? 0;
  if (!bound) return "waits";
  return bound >= needed ? "has its minimum" : `below its minimum by ${needed - bound}`;
}

/** A device that a reservation holds, or that claims give in parts: who has how much of it. */
function held(node, device, place) {
  const closed = device.closed?.map(closedText).join(", ");
  const name = `${node.name} ${deviceName(device, place)}`;
  return [
    el("a", { href: deviceLink(node, device, place), ...whole(name) }, name),
    el("div", { class: "book" }, (device.tenants ?? []).map(entry)),
    percentUp(device.usedNano ?? 0),
    closed ? "" : isUnsure(device) ? "not known" : percentDown(device.freeNano ?? 0),
    closed ? `closed: ${closed}` : device.tenants?.length ? "shared" : "held, idle",
    el("div", { class: "held" }, [device.group, device.reservation, device.device].filter(Boolean).map((name) => el("div", {}, name))),
  ];
}

function entry(tenant) {
  const name = hasPage(tenant) ? podLink(tenant.namespace, tenant.name) : tenantName(tenant);
  return el("div", {}, name, el("span", { class: "amount" }, percentUp(tenant.nano), tenantState(tenant)));
}
