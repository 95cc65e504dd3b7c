// The map: node by node, device by device, each tenant's share to scale. Few nodes are drawn large, with names in them;
// many are drawn small. One tab stop, arrow keys within: four thousand devices are no four thousand presses of a key.
import { card } from "./card.js";
import { el } from "./dom.js";
import { ofGpu, tenantName } from "./format.js";
import { IdlePanel } from "./idle.js";
import { queueOf } from "./store.js";
import { explain, sumUp } from "./summary.js";
import { UnusablePanel } from "./unusable.js";

const MOST_LARGE = 40;

export class MapView {
  title = "GPU map";

  constructor(page) {
    this.page = page;
    this.cards = new Map();
    this.shares = new Map();
    this.isLarge = true;
    this.grid = el("ul", { class: "nodes", "aria-label": "Nodes with their GPUs" });
    this.summary = el("section", { class: "summary", "aria-label": "The cluster in sum" });
    this.unusable = new UnusablePanel(page);
    this.idle = new IdlePanel(page);
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
      this.unusable.root,
      this.idle.root,
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
    this.cards = new Map(nodes.map((node) => [node.name, card(node, this)]));
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
      const stops = "h2 a, a.device";
      const places = [...old.querySelectorAll(stops)];
      const focused = places.indexOf(document.activeElement);
      const stop = places.findIndex((place) => place.tabIndex === 0 && place.matches(".device"));
      const drawn = card(store.nodes.get(name), this);
      // The card itself stays: else the grid would be laid out and painted as a whole.
      old.className = drawn.className;
      old.replaceChildren(...drawn.childNodes);
      const now = old.querySelectorAll(stops);
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
    return queueOf(this.page.store.pods.get(tenant.uid));
  }

  colour(tenant) {
    return this.page.colours(this.kind()).of(this.category(tenant));
  }

  /** Who has how much of a node; "" is who may not be seen. Kept by node: an update adds up few numbers. */
  sharesOf(node) {
    const sums = new Map();
    for (const device of node.devices ?? []) {
      for (const tenant of device.tenants ?? []) add(sums, this.category(tenant), ofGpu(device, tenant));
    }
    return sums;
  }

  meet(shares) {
    this.page.colours(this.kind()).meet(new Set([...shares].flatMap((sums) => [...sums.keys()].filter(Boolean))));
  }

  /** Whether a share is among what somebody looks for. */
  isLit(node, tenant) {
    const only = this.page.query.get("only");
    if (only && this.category(tenant) !== only) return false;
    const find = this.page.query.get("find")?.toLowerCase();
    return !find || `${node.name} ${tenantName(tenant)}`.toLowerCase().includes(find);
  }

  sumUp() {
    const { store, query } = this.page;
    sumUp(this.summary, [...store.nodes.values()]);
    this.unusable.show(store.unusable.values());
    this.idle.show([...store.nodes.values()]);
    const sums = new Map();
    for (const [name, shares] of this.shares) {
      if (store.nodes.has(name)) for (const [category, nano] of shares) add(sums, category, nano);
    }
    const linkTo = (name) => this.page.with({ only: name });
    explain(this.legend, sums, { only: query.get("only"), colours: this.page.colours(this.kind()), linkTo });
    this.empty.textContent = store.nodes.size ? "" : this.page.nothing();
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
