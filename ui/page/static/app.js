// The page: which view is shown is said by the address, what is in it by the store.
import { Colours } from "./colours.js";
import { Connection } from "./connection.js";
import { el } from "./dom.js";
import { span } from "./format.js";
import { GroupsView } from "./groups.js";
import { EventsView, PodsView, WaitingView } from "./lists.js";
import { MapView } from "./map.js";
import { NodeView } from "./node.js";
import { NowhereView } from "./nowhere.js";
import { PodView } from "./pod.js";
import { QueuesView } from "./queues.js";
import { Store } from "./store.js";
import { Winding, momentQuery } from "./winding.js";

const VIEWS = { map: MapView, waiting: WaitingView, pods: PodsView, queues: QueuesView, groups: GroupsView, events: EventsView, node: NodeView, pod: PodView };
const THEMES = { auto: "light dark", light: "light", dark: "dark" };
const byId = (id) => document.getElementById(id);

class Page {
  constructor() {
    this.store = new Store();
    this.query = new URLSearchParams();
    this.view = null;
    this.path = "";
    this.choices = "";
    this.hasState = false;
    this.unread = [];
    this.changed = new Set();
    this.lines = null;
    this.isWaitingToDraw = false;
    this.winding = new Winding(this);
    this.palettes = { namespace: new Colours(), queue: new Colours() };
    this.connection = new Connection({
      query: () => momentQuery(location.hash),
      state: (state) => this.take(state),
      changes: (id, changes) => this.apply(id, changes),
      health: (health) => this.tellHealth(health),
      live: () => this.tell("live", "live"),
      trouble: (why) => this.tell("broken", why === "signing in" ? why : `${why}; trying again`),
      signIn: (again) => this.signIn(again),
    });
  }

  run() {
    addEventListener("hashchange", () => this.route());
    byId("skip").addEventListener("click", (event) => {
      event.preventDefault(); // the address says which view is shown
      byId("main").focus();
    });
    byId("theme").addEventListener("click", () => this.nextTheme());
    this.theme = localStorage.getItem("theme") ?? "auto";
    this.setTheme();
    setInterval(() => this.grow(), 10_000);
    this.connection.run();
  }

  // --- what comes -------------------------------------------------------------------------------------------------

  take(state) {
    this.store.take(state);
    this.winding.meet(state);
    this.hasState = true;
    byId("source").textContent = state.source + (state.isPartlyHidden ? " (in part: what you may see)" : "");
    this.unread = state.unread ?? [];
    this.warn(this.unread);
    this.view = null;
    this.route();
  }

  /** Changes are put in at once and drawn with the next frame of the screen: what comes in a burst is drawn once. */
  apply(id, changes) {
    for (const name of this.store.apply(id, changes)) this.changed.add(name);
    this.lines = merged(this.lines, changes);
    if (this.isWaitingToDraw) return;
    this.isWaitingToDraw = true;
    // A window that nobody sees has no frames, and is drawn all the same: printers and screen readers look there, too.
    requestAnimationFrame(() => this.draw());
    setTimeout(() => this.draw(), 1000);
  }

  draw() {
    if (!this.isWaitingToDraw) return;
    this.isWaitingToDraw = false;
    const names = [...this.changed];
    const { lines } = this;
    this.changed.clear();
    this.lines = null;
    this.view?.update(names, lines);
    this.drawn();
  }

  drawn() {
    const waiting = this.store.waiting().length;
    byId("waiting-count").textContent = waiting ? String(waiting) : "";
    document.documentElement.dataset.shown = this.store.id;
  }

  /** Ages grow while nothing happens. */
  grow() {
    if (this.view && !(this.view instanceof MapView) && !(this.view instanceof PodView)) this.view.show();
  }

  // --- views ------------------------------------------------------------------------------------------------------

  route() {
    if (!this.hasState) return;
    const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
    this.query = new URLSearchParams(query ?? "");
    const [kind, ...parts] = path.split("/").map(decoded);
    const isNew = this.view === null || path !== this.path;
    if (isNew) {
      const isFirst = this.view === null;
      this.path = path;
      this.view = new (kind ? (Object.hasOwn(VIEWS, kind) ? VIEWS[kind] : NowhereView) : MapView)(this, ...parts);
      byId("main").replaceChildren(this.view.root);
      document.title = `${this.view.title} - Moorage`;
      if (!isFirst) this.view.root.querySelector("h1").focus();
    }
    for (const entry of byId("views").children) {
      entry.toggleAttribute("aria-current", entry.getAttribute("href") === `#/${path || "map"}`);
    }
    this.winding.route();
    const choices = this.with({});
    if (isNew || choices !== this.choices) this.view.show(); // another moment alone is drawn when it is there
    this.choices = choices;
    if (this.query.has("gpu") && isNew) byId(`gpu-${this.query.get("gpu")}`)?.scrollIntoView({ block: "nearest" });
    this.drawn();
  }

  /** The address of this view with other choices; "" takes one away. */
  with(choices) {
    const query = new URLSearchParams(this.query);
    query.delete("at"); // a link leads to another view of the same moment, unless it says which
    for (const [name, value] of Object.entries(choices)) {
      if (value) query.set(name, value);
      else query.delete(name);
    }
    const text = query.toString();
    return `#/${this.path || "map"}${text ? `?${text}` : ""}`;
  }

  go(choices) {
    history.replaceState(null, "", this.with(choices));
    this.route();
  }

  colours(kind) {
    return this.palettes[kind];
  }

  /** Whether there may be pods that are not shown: a sum of those that are is no more than the least. */
  isInPart() {
    return this.store.isPartlyHidden || this.unread.some((text) => text.startsWith("pods"));
  }

  nothing() {
    if (this.unread.some((text) => text.startsWith("nodes:"))) return "Nodes can't be read, so there is no map.";
    return this.store.isPartlyHidden ? "You may not list nodes, so there is no map." : "There are no nodes with GPUs.";
  }

  // --- how it stands ----------------------------------------------------------------------------------------------

  /** Set the light: green only where the page is live and the cluster's scheduler and binder work. */
  light(state, text) {
    const live = byId("live");
    live.dataset.state = state;
    if (live.textContent !== text) live.textContent = text;
  }

  tell(state, text) {
    this.light(state, text);
    document.documentElement.dataset.connection = state;
    if (!this.hasState && state === "broken") byId("main").replaceChildren(el("p", { class: "note" }, text));
  }

  tellHealth(health) {
    const silent = health.silentS ? [`nothing was heard from the API server for ${span(health.silentS * 1000)}`] : [];
    const idle = health.idle ?? [];
    this.light(idle.length ? "idle" : "live", idle.length ? "not scheduling" : "live");
    this.warn([...silent, ...(health.unread ?? [])], [...idle, ...(health.warnings ?? [])]);
  }

  warn(missing, others) {
    const banner = byId("banner");
    const said = missing?.length ? [`Not all is shown: ${missing.join("; ")}`] : [];
    const text = [...said, ...(others ?? [])].join(". ");
    banner.hidden = !text;
    if (banner.textContent !== text) banner.textContent = text;
  }

  /** Ask for a token; it goes to the server that this page came from, and is kept in memory alone. */
  signIn(isAgain) {
    const field = el("input", { type: "password", id: "token", autocomplete: "off", required: true, spellcheck: "false" });
    const form = el(
      "form",
      { class: "sign-in" },
      el("h1", { tabindex: "-1" }, "Who are you?"),
      el("p", {}, "This page shows what you may see in the cluster. Show a token of yours, such as one of "),
      el("pre", {}, "kubectl create token ACCOUNT"),
      el("label", { for: "token" }, "Token"),
      field,
      el("button", {}, "Show the page"),
      isAgain ? el("p", { role: "alert" }, "The cluster does not know that token (any more).") : null,
    );
    this.hasState = false;
    this.view = null;
    byId("main").replaceChildren(form);
    field.focus();
    return new Promise((resolve) => {
      form.addEventListener("submit", (event) => {
        event.preventDefault();
        const token = field.value.trim();
        field.value = "";
        resolve(token);
      });
    });
  }

  nextTheme() {
    const names = Object.keys(THEMES);
    this.theme = names[(names.indexOf(this.theme) + 1) % names.length];
    localStorage.setItem("theme", this.theme);
    this.setTheme();
  }

  setTheme() {
    document.documentElement.style.colorScheme = THEMES[this.theme] ?? THEMES.auto;
    byId("theme").textContent = `Theme: ${this.theme}`;
  }
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function merged(before, changes) {
  if (!before) return changes;
  const both = {};
  for (const name of new Set([...Object.keys(before), ...Object.keys(changes)])) {
    both[name] = [...(before[name] ?? []), ...(changes[name] ?? [])];
  }
  return both;
}

new Page().run();
