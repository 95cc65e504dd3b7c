// The map: node by node, device by device, each tenant's share to scale. Few nodes are drawn large, with names in them;
// many are drawn small. One tab stop, arrow keys within: four thousand devices are no four thousand presses of a key.
import { el, link } from "./dom.js";
import { NANO, deviceText, gpusUp, percentUp, tenantName } from "./format.js";

const MOST_LARGE = 40;
//: A tenant of a large device is named inside it from this share on.
const ROOM_FOR_A_NAME = 0.14 * NANO;

export class MapView {
  title = "GPU map";

  constructor(page) {
    this.page = page;
    this.cards = new Map();
    this.shares = new Map();
    this.isLarge = true;
    this.grid = el("ul", { class: "nodes", "aria-label": "Nodes with their GPUs" });
    this.summary = el("section", { class: "summary", "aria-label": "The cluster in sum" });
    this.legend = el("section", { class: "legend", "aria-label": "Legend" });
    this.find = el("input", { type: "search", id: "find", placeholder: "node, pod or namespace", autocomplete: "off" });
    this.find.addEventListener("input", () => this.page.go({ find: this.find.value }));
    this.grid.addEventListener("keydown", (event) => this.move(event));
    this.grid.addEventListener("focusin", (event) => this.enter(event.target));
    this.empty = el("p", { class: "note" });
    this.root = el(
      "div",
      { class: "map" },
      el("h1", { class: "unseen", tabindex: "-1" }, this.title),
      this.summary,
      el("div", { class: "tools" }, this.legend, this.choices(), el("label", { class: "find" }, "Find ", this.find)),
      this.empty,
      this.grid,
    );
  }

  choices() {
    this.by = ["namespace", "queue"].map((what) => el("a", { href: "#" }, what));
    return el("span", { class: "choice", role: "group", "aria-label": "Colour by" }, "Colour by ", this.by);
  }

  /** Draw it all, as after a new state or another choice. */
  show() {
    const { store, query } = this.page;
    for (const choice of this.by) {
      choice.href = this.page.with({ by: choice.textContent, only: "" });
      choice.toggleAttribute("aria-current", choice.textContent === this.kind());
    }
    if (document.activeElement !== this.find) this.find.value = query.get("find") ?? "";
    const nodes = store.inOrder();
    this.isLarge = query.get("size") ? query.get("size") === "large" : nodes.length <= MOST_LARGE;
    this.grid.className = this.isLarge ? "nodes large" : "nodes small";
    this.shares = new Map(nodes.map((node) => [node.name, this.sharesOf(node)]));
    this.meet(this.shares.values());
    this.cards = new Map(nodes.map((node) => [node.name, this.draw(node)]));
    this.grid.replaceChildren(...this.cards.values());
    this.grid.querySelector("a.device")?.setAttribute("tabindex", "0");
    this.sumUp();
  }

  /** Draw these nodes anew. */
  update(names) {
    const { store } = this.page;
    if (names.some((name) => store.nodes.has(name) !== this.cards.has(name))) return this.show();
    for (const name of names) {
      const node = store.nodes.get(name);
      if (node) this.shares.set(name, this.sharesOf(node));
    }
    this.meet(names.map((name) => this.shares.get(name) ?? new Map()));
    for (const name of names) {
      const old = this.cards.get(name);
      if (!old) continue;
      const places = [...old.querySelectorAll("a")];
      const focused = places.indexOf(document.activeElement);
      const stop = places.findIndex((place) => place.tabIndex === 0 && place.matches(".device"));
      const drawn = this.draw(store.nodes.get(name));
      // The card itself stays: else the grid would be laid out and painted as a whole.
      old.className = drawn.className;
      old.replaceChildren(...drawn.childNodes);
      const now = old.querySelectorAll("a");
      if (stop >= 0) (now[stop] ?? now[now.length - 1]).tabIndex = 0;
      if (focused >= 0) (now[focused] ?? now[now.length - 1]).focus({ preventScroll: true });
    }
    this.sumUp();
  }

  kind() {
    return this.page.query.get("by") === "queue" ? "queue" : "namespace";
  }

  category(tenant) {
    if (tenant.isHidden) return "";
    if (this.kind() === "namespace") return tenant.namespace;
    return this.page.store.pods.get(tenant.uid)?.queue || "(no queue)";
  }

  /** Who has how much of a node; "" is who may not be seen. Kept by node: an update adds up few numbers. */
  sharesOf(node) {
    const sums = new Map();
    for (const device of node.devices ?? []) {
      for (const tenant of device.tenants ?? []) add(sums, this.category(tenant), tenant.nano);
    }
    return sums;
  }

  meet(shares) {
    this.page.colours(this.kind()).meet(new Set([...shares].flatMap((sums) => [...sums.keys()].filter(Boolean))));
  }

  // --- drawing ----------------------------------------------------------------------------------------------------

  draw(node) {
    const devices = (node.devices ?? []).map((device, place) => this.drawDevice(node, device, place));
    for (let lost = 0; lost < (node.unhealthyGpus ?? 0); lost += 1) devices.push(missing("unhealthy"));
    for (let lost = 0; lost < (node.lostGpus ?? 0); lost += 1) devices.push(missing("lost"));
    const used = `${gpusUp(node.usedNano ?? 0)}/${node.gpus ?? 0}`;
    const name = el("a", { href: link("node", node.name), title: node.name }, node.name);
    const head = el(
      "h2",
      {},
      name,
      el("span", { class: "amount", title: "GPUs used, of those offered" }, used),
      ...states(node).map((state) => el("span", { class: "state" }, state)),
    );
    const isClosed = node.isNotReady || node.isCordoned;
    return el("li", { class: isClosed ? "node closed" : "node" }, head, el("ol", { class: "devices" }, devices));
  }

  drawDevice(node, device, place) {
    const { isLit } = this;
    const text = deviceText(device, place);
    const isStranded = node.isNotReady || node.isCordoned || device.closed?.length;
    const shares = (device.tenants ?? []).map((tenant) => {
      const share = el("span", { class: `share ${this.page.colours(this.kind()).of(this.category(tenant))}` });
      share.style.flexGrow = String(Math.max(tenant.nano, NANO / 200));
      if (tenant.isHidden) share.classList.add("hidden");
      if (tenant.isOnItsWay) share.classList.add("coming");
      if (!isLit.call(this, node, tenant)) share.classList.add("dim");
      if (this.isLarge && tenant.nano >= ROOM_FOR_A_NAME) {
        share.append(el("b", {}, tenant.isHidden ? "somebody" : tenant.name || tenant.uid), el("i", {}, percentUp(tenant.nano)));
      }
      return share;
    });
    const rest = Math.max(0, NANO - (device.usedNano ?? 0));
    if (rest) {
      const left = el("span", { class: isStranded ? "left stranded" : device.kind === "free" ? "left idle" : "left" });
      left.style.flexGrow = String(rest);
      shares.push(left);
    }
    const where = `${link("node", node.name)}?gpu=${place}`;
    const label = `${node.name} ${text}`;
    const shown = el("a", { class: "device", href: where, tabindex: "-1", "aria-label": label, title: text }, shares);
    return el("li", {}, shown);
  }

  /** Whether a share is among what somebody looks for. */
  isLit(node, tenant) {
    const only = this.page.query.get("only");
    if (only && this.category(tenant) !== only) return false;
    const find = this.page.query.get("find")?.toLowerCase();
    return !find || `${node.name} ${tenantName(tenant)}`.toLowerCase().includes(find);
  }

  sumUp() {
    const sums = { used: 0, pieces: 0, idle: 0, stranded: 0 };
    let gpus = 0;
    for (const node of this.page.store.nodes.values()) {
      gpus += node.gpus ?? 0;
      sums.used += node.usedNano ?? 0;
      sums.pieces += node.piecesNano ?? 0;
      sums.idle += node.idleNano ?? 0;
      sums.stranded += node.strandedNano ?? 0;
    }
    const told = [
      ["used", "used", sums.used],
      ["pieces", "left of shared GPUs", sums.pieces],
      ["idle", "idle", sums.idle],
      ["stranded", "stranded", sums.stranded],
    ];
    const bar = el("div", { class: "whole-bar", "aria-hidden": "true" });
    const all = told.reduce((sum, [, , nano]) => sum + nano, 0) || 1;
    for (const [kind, , nano] of told) {
      const part = el("span", { class: `part ${kind}` });
      part.style.flexGrow = String(nano / all);
      bar.append(part);
    }
    const figures = told.map(([kind, name, nano]) =>
      el("div", { class: "figure" }, el("dt", {}, el("span", { class: `swatch ${kind}` }), name), el("dd", {}, gpusUp(nano))),
    );
    const of = el("div", { class: "figure" }, el("dt", {}, "GPUs"), el("dd", {}, String(gpus)));
    const on = el("div", { class: "figure" }, el("dt", {}, "nodes"), el("dd", {}, String(this.page.store.nodes.size)));
    this.summary.replaceChildren(el("dl", {}, of, on, figures), bar);
    this.explain();
    this.empty.textContent = this.page.store.nodes.size ? "" : this.page.nothing();
  }

  /** The legend: who has how much, most first; each a link that shows them alone. */
  explain() {
    const sums = new Map();
    for (const [name, shares] of this.shares) {
      if (this.page.store.nodes.has(name)) for (const [category, nano] of shares) add(sums, category, nano);
    }
    const hidden = sums.get("") ?? 0;
    sums.delete("");
    const only = this.page.query.get("only");
    const colours = this.page.colours(this.kind());
    const entries = [...sums].sort((a, b) => b[1] - a[1]).map(([name, nano]) =>
      el(
        "a",
        { href: this.page.with({ only: only === name ? "" : name }), "aria-current": only === name ? "true" : null },
        el("span", { class: `swatch ${colours.of(name)}` }),
        el("span", {}, name),
        el("span", { class: "amount" }, gpusUp(nano)),
      ),
    );
    if (hidden) entries.push(el("span", {}, el("span", { class: "swatch hidden" }), "others ", gpusUp(hidden)));
    this.legend.replaceChildren(...entries);
  }

  // --- keys -------------------------------------------------------------------------------------------------------

  /** Arrow keys go from device to device, with Control to the next node; Home and End to the first and last. */
  move(event) {
    const at = event.target.closest?.("a.device");
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: "down", ArrowUp: "up", Home: "first", End: "last" };
    const step = steps[event.key];
    if (!at || step === undefined || event.altKey || event.metaKey) return;
    const devices = [...this.grid.querySelectorAll("a.device")];
    const place = devices.indexOf(at);
    const aims = { first: 0, last: devices.length - 1, down: this.beside(devices, place, 1), up: this.beside(devices, place, -1) };
    const aim = devices[aims[step] ?? place + step];
    event.preventDefault();
    aim?.focus();
  }

  /** The same device of the next node, or of the one before. */
  beside(devices, place, step) {
    const card = devices[place].closest(".node");
    const within = [...card.querySelectorAll("a.device")].indexOf(devices[place]);
    let next = step > 0 ? card.nextElementSibling : card.previousElementSibling;
    while (next && !next.querySelector("a.device")) next = step > 0 ? next.nextElementSibling : next.previousElementSibling;
    const there = next ? [...next.querySelectorAll("a.device")] : [];
    return there.length ? devices.indexOf(there[Math.min(within, there.length - 1)]) : place;
  }

  enter(target) {
    if (!target.matches?.("a.device")) return;
    for (const stop of this.grid.querySelectorAll('a.device[tabindex="0"]')) stop.tabIndex = -1;
    target.tabIndex = 0;
  }
}

function add(sums, key, nano) {
  sums.set(key, (sums.get(key) ?? 0) + nano);
}

/** What is to be known of a node, in words. */
export function states(node) {
  return [
    node.isNotReady && "not ready",
    node.isCordoned && "cordoned",
    node.isMig && "MIG",
    node.isMultiplied && "GPUs offered several times",
    node.unhealthyGpus && `${node.unhealthyGpus} unhealthy`,
    node.lostGpus && `${node.lostGpus} lost`,
  ].filter(Boolean);
}

function missing(why) {
  const label = `a GPU that is ${why}`;
  const box = el("span", { class: "device", role: "img", "aria-label": label, title: label }, el("span", { class: "left stranded" }, ""));
  box.firstChild.style.flexGrow = "1";
  return el("li", {}, box);
}

