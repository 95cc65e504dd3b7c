// Idle shares: who holds some of a GPU and uses next to none of it, below the sums of the map.
import { el, link, number, podLink, table } from "./dom.js";
import { clock, gpusDown, gpusUp, span } from "./format.js";
import { now } from "./time.js";

const CAPTION = "Shares of which next to nothing is used, by GPU-hours";
const HOUR_MS = 3_600_000;

/** Shares that are idle, as agents that work report it: the dearest first. */
export function idleShares(nodes) {
  const found = [];
  for (const node of nodes) {
    for (const device of node.devices ?? []) {
      for (const tenant of device.tenants ?? []) {
        const since = Date.parse(tenant.idleSince ?? "");
        if (!Number.isNaN(since) && tenant.name) found.push({ node, tenant, ms: Math.max(0, now() - since) });
      }
    }
  }
  return found.sort((a, b) => b.ms * b.tenant.nano - a.ms * a.tenant.nano);
}

export class IdlePanel {
  constructor(page) {
    this.page = page;
    this.shown = "";
    this.head = el("summary", {});
    this.body = el("div", {});
    this.root = el("details", { class: "unusable idle-shares", hidden: true }, this.head, this.body);
    this.root.open = page.query.get("idle") === "1";
    this.root.addEventListener("toggle", () => this.toggled());
  }

  /** The address says that it is open, so that a link shows it to others. */
  toggled() {
    const { open } = this.root;
    if ((this.page.query.get("idle") === "1") !== open) this.page.go({ idle: open ? "1" : "" });
  }

  /** Show idle shares of nodes; what is shown already stays, and the focus in it, as long as the ages are the same. */
  show(nodes) {
    const found = idleShares(nodes);
    const told = JSON.stringify(found.map(({ node, tenant, ms }) => [node.name, tenant.uid, tenant.nano, tenant.idleSince, span(ms)]));
    if (told === this.shown) return;
    this.shown = told;
    this.root.hidden = !found.length;
    this.head.textContent = `Idle shares: ${gpusUp(found.reduce((sum, { tenant }) => sum + tenant.nano, 0))} GPUs`;
    const rows = found.map(({ node, tenant, ms }) => [
      podLink(tenant.namespace, tenant.name),
      el("a", { href: link("node", node.name) }, node.name),
      gpusUp(tenant.nano),
      el("time", { datetime: tenant.idleSince, title: tenant.idleSince }, `${clock(tenant.idleSince)} (${span(ms)})`),
      gpusDown((tenant.nano * ms) / HOUR_MS),
    ]);
    const columns = ["Pod", "Node", number("GPUs"), "Idle since", number("GPU-hours")];
    this.body.replaceChildren(table(CAPTION, columns, rows));
  }
}
