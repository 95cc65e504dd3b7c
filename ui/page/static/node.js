// A node, device by device.
import { states } from "./card.js";
import { el, number, podLink, table } from "./dom.js";
import { NANO, closedText, deviceName, gpusUp, hasPage, isUnsure, memory, percentDown, percentUp, span, tenantName, tenantState, tenantUse } from "./format.js";
import { now } from "./time.js";
import { View, listed, note } from "./view.js";

/** A node's devices, one by one. */
export class NodeView extends View {
  constructor(page, name) {
    super(page, `Node ${name}`);
    this.name = name;
  }

  show() {
    const node = this.page.store.nodes.get(this.name);
    if (!node) return this.put(note("There is no such node with GPUs."));
    this.page.colours("namespace").meet(this.page.store.tenantNamespaces());
    const said = states(node).join(", ") || "ready";
    const chosen = this.page.query.get("gpu");
    const least = node.isPartlyKnown ? "at least " : "";
    const facts = [
      ["State", said],
      ["GPUs", `${least}${gpusUp(node.usedNano ?? 0)} of ${node.gpus ?? 0} used`],
      ["Product", node.product ?? ""],
      ["Node pool", node.nodePool ?? ""],
      ["Use", reported(node)],
      ["MIG slices being made", (node.partitionings ?? []).join("; ")],
      ["MIG", (node.slices ?? []).map((one) => `${one.profile}: ${least}${one.used} of ${one.total} used`).join(", ")],
    ];
    const rows = (node.devices ?? []).map((device, place) => {
      const key = String(device.number ?? `slice-${place}`);
      return this.device(device, place, key, key === chosen);
    });
    const columns = ["Device", "State", number("Used"), number("Free"), number("Memory"), "Shares", "Who holds it"];
    this.put(listed(facts), table(`Devices of ${this.name}`, columns, rows), nameless(node));
    this.body.querySelector(".chosen")?.closest("tr").setAttribute("class", "chosen");
  }

  device(device, place, key, isChosen) {
    const closed = device.closed?.map(closedText).join(", ");
    const kind = { free: "idle", unknown: "not known" }[device.kind] ?? device.kind;
    const state = closed ? `closed: ${closed}` : kind;
    const modes = [...(device.modes ?? []), device.computePercent && `${device.computePercent}% of compute`].filter(Boolean);
    const held = [
      ["UUID", device.uuid],
      ["group", device.group],
      ["reservation", device.reservation],
      ["device of claims", device.device],
    ].filter(([, value]) => value);
    return [
      el("span", { class: isChosen ? "whole chosen" : "whole", id: `gpu-${key}` }, deviceName(device, place)),
      [state, ...modes].join(", "),
      percentUp(device.usedNano ?? 0),
      closed ? "for nobody" : isUnsure(device) ? "not known" : percentDown(device.freeNano ?? 0),
      device.memMib ? memory(device.memMib) : "",
      el("div", { class: "shares" }, this.strip(device), ...(device.tenants ?? []).map((tenant) => this.tenant(tenant))),
      el("div", { class: "held" }, held.map(([name, value]) => el("div", {}, `${name} ${value}`))),
    ];
  }

  tenant(tenant) {
    const name = hasPage(tenant) ? podLink(tenant.namespace, tenant.name) : tenantName(tenant);
    const amount = `${percentUp(tenant.nano)}${tenant.memMib ? `, ${memory(tenant.memMib)}` : ""}`;
    const use = tenantUse(tenant);
    const limit = tenant.strength ? `memory limit: ${tenant.strength} (${tenant.enforced})` : "";
    return el(
      "div",
      {},
      name,
      " ",
      el("span", { class: "amount" }, amount, tenantState(tenant)),
      ...[use, limit].filter(Boolean).map((text) => el("div", { class: "amount" }, text)),
    );
  }

  /** To scale, and in the map's colours. */
  strip(device) {
    const colours = this.page.colours("namespace");
    const made = el("div", { class: "strip", "aria-hidden": "true" });
    const add = (kind, nano) => {
      const part = el("span", { class: `part ${kind}` });
      part.style.flexGrow = String(nano / NANO);
      made.append(part);
    };
    for (const tenant of device.tenants ?? []) add(tenant.isHidden ? "hidden" : colours.of(tenant.namespace), tenant.nano);
    const left = isUnsure(device) ? "unknown" : device.closed?.length ? "stranded" : "idle";
    add(left, Math.max(0, NANO - (device.usedNano ?? 0)));
    return made;
  }
}

/** How far what is shown of use counts; "" where no agent has reported. */
function reported(node) {
  if (!node.use) return "";
  const at = Date.parse(node.useSince ?? "");
  const age = Number.isNaN(at) ? "" : ` for ${span(now() - at)}`;
  if (node.use === "stale") return `not known: the agent of this node has not worked${age}`;
  const sure = node.use === "unsure" ? "; whether its agent works is not known" : "";
  return (node.useWhy ? `not measured: ${node.useWhy}` : "reported by the agent of this node, of 5 minutes") + sure;
}

/** What the numbers of devices are worth. */
function nameless(node) {
  const isNameless = (node.devices ?? []).some((device) => device.number !== undefined && device.index === undefined);
  return isNameless
    ? note("Kubernetes does not report which GPU is idle or given out whole: these GPUs have the numbers that no shared GPU reports.")
    : "";
}
