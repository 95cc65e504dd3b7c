// All views but the map: a node, a pod's path, and lists. Each has `title`, `root`, and `show()`, which draws it anew.
import { el, link, outside, podLink, table } from "./dom.js";
import {
  NANO,
  clock,
  closedText,
  deviceName,
  gpusUp,
  memory,
  percentDown,
  percentUp,
  span,
  tenantName,
} from "./format.js";
import { states } from "./map.js";
import { natural } from "./store.js";
import { now } from "./time.js";

class View {
  constructor(page, title) {
    this.page = page;
    this.title = title;
    this.heading = el("h1", { tabindex: "-1" }, title);
    this.body = el("div", {});
    this.root = el("article", {}, this.heading, this.body);
  }

  update() {
    this.show();
  }

  /** Put a new body in, but leave the focus where it was: on the link of the same address. */
  put(...children) {
    const focused = this.body.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    this.body.replaceChildren(...children);
    if (focused) this.body.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  }
}

const ago = (text) => {
  const at = Date.parse(text ?? "");
  return Number.isNaN(at) ? "" : el("time", { datetime: text, title: text }, span(now() - at));
};
const note = (text) => el("p", { class: "note" }, text);

/** Pods that wait, and why. */
export class WaitingView extends View {
  constructor(page) {
    super(page, "Waiting pods");
  }

  show() {
    const rows = this.page.store.waiting().map((pod) => [
      podLink(pod.namespace, pod.name),
      pod.queue ?? "",
      ago(pod.created),
      lines(pod.asks),
      why(pod),
    ]);
    this.put(
      rows.length
        ? table("Waiting pods, the oldest first", ["Pod", "Queue", "For", "Asks", "Why"], rows)
        : note("No pod waits."),
    );
  }
}

/** All pods that have to do with GPUs. */
export class PodsView extends View {
  constructor(page) {
    super(page, "Pods");
  }

  show() {
    const pods = [...this.page.store.pods.values()].sort(
      (a, b) => natural.compare(a.namespace, b.namespace) || natural.compare(a.name, b.name),
    );
    const rows = pods.map((pod) => [
      podLink(pod.namespace, pod.name),
      pod.phase ?? "",
      pod.node ? el("a", { href: link("node", pod.node) }, pod.node) : "",
      pod.queue ?? "",
      pod.podGroup ?? "",
      ago(pod.created),
    ]);
    this.put(
      rows.length
        ? table("Pods that ask for GPUs", ["Pod", "Phase", "Node", "Queue", "Group", "Age"], rows)
        : note("No pod asks for GPUs."),
    );
  }
}

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

/** What was reported of pods. */
export class EventsView extends View {
  constructor(page) {
    super(page, "Events");
  }

  show() {
    const events = [...this.page.store.events.values()].sort((a, b) => (b.at ?? "").localeCompare(a.at ?? ""));
    this.put(events.length ? eventTable(events) : note("There are no events."));
  }
}

function eventTable(events) {
  const rows = events.map((event) => [
    el("time", { datetime: event.at }, clock(event.at)),
    event.type === "Warning" ? el("strong", {}, event.type) : (event.type ?? ""),
    podLink(event.namespace, event.pod),
    event.reason ?? "",
    el("div", { class: "reason" }, event.note ?? ""),
    event.by ?? "",
    String(event.count ?? 1),
  ]);
  return table("Events, the newest first", ["At", "Type", "Pod", "Reason", "What", "By", "Times"], rows);
}

/** A node's devices, one by one. */
export class NodeView extends View {
  constructor(page, name) {
    super(page, `Node ${name}`);
    this.name = name;
  }

  show() {
    const node = this.page.store.nodes.get(this.name);
    if (!node) return this.put(note("There is no such node with GPUs."));
    const said = states(node).join(", ") || "ready";
    const chosen = this.page.query.get("gpu");
    const facts = [
      ["State", said],
      ["GPUs", `${gpusUp(node.usedNano ?? 0)} of ${node.gpus ?? 0} used`],
      ["Product", node.product ?? ""],
      ["MIG", (node.slices ?? []).map((one) => `${one.profile}: ${one.used} of ${one.total} used`).join(", ")],
    ];
    const rows = (node.devices ?? []).map((device, place) => this.device(device, place, String(place) === chosen));
    const columns = ["Device", "State", "Used", "Free", "Memory", "Shares", "Who holds it"];
    this.put(listed(facts), table(`Devices of ${this.name}`, columns, rows));
    this.body.querySelector(".chosen")?.closest("tr").setAttribute("class", "chosen");
  }

  device(device, place, isChosen) {
    const closed = device.closed?.map(closedText).join(", ");
    const state = closed ? `closed: ${closed}` : device.kind === "free" ? "idle" : device.kind;
    const modes = [...(device.modes ?? []), device.computePercent && `${device.computePercent}% of compute`].filter(Boolean);
    const held = [
      ["UUID", device.uuid],
      ["group", device.group],
      ["reservation", device.reservation],
    ].filter(([, value]) => value);
    return [
      el("span", { class: isChosen ? "chosen" : null, id: `gpu-${place}` }, deviceName(device, place)),
      [state, ...modes].join(", "),
      percentUp(device.usedNano ?? 0),
      closed ? "for nobody" : percentDown(device.freeNano ?? 0),
      device.memMib ? memory(device.memMib) : "",
      el("div", { class: "shares" }, this.strip(device), ...(device.tenants ?? []).map((tenant) => this.tenant(tenant))),
      el("div", { class: "held" }, held.map(([name, value]) => el("div", {}, `${name} ${value}`))),
    ];
  }

  tenant(tenant) {
    const name = tenant.isHidden || !tenant.name ? tenantName(tenant) : podLink(tenant.namespace, tenant.name);
    const amount = `${percentUp(tenant.nano)}${tenant.memMib ? `, ${memory(tenant.memMib)}` : ""}`;
    return el("div", {}, name, " ", el("span", { class: "amount" }, amount, tenant.isOnItsWay ? ", on its way" : ""));
  }

  /** To scale, and in the map's colours. */
  strip(device) {
    const colours = this.page.colours("namespace");
    colours.meet((device.tenants ?? []).filter((tenant) => !tenant.isHidden).map((tenant) => tenant.namespace));
    const made = el("div", { class: "strip", "aria-hidden": "true" });
    const add = (kind, nano) => {
      const part = el("span", { class: `part ${kind}` });
      part.style.flexGrow = String(nano / NANO);
      made.append(part);
    };
    for (const tenant of device.tenants ?? []) add(tenant.isHidden ? "hidden" : colours.of(tenant.namespace), tenant.nano);
    add(device.closed?.length ? "stranded" : "idle", Math.max(0, NANO - (device.usedNano ?? 0)));
    return made;
  }
}

/** A pod's way: its stages with their times, what it was given, why it waits, what was reported. */
export class PodView extends View {
  constructor(page, namespace, name) {
    super(page, `Pod ${namespace}/${name}`);
    this.key = [namespace, name];
    this.asked = 0;
  }

  /** Its path is read when it is looked at, and again when something of it changed. */
  async show() {
    this.asked += 1;
    const number = this.asked;
    try {
      const path = await this.page.connection.json(`api/pods/${this.key.map(encodeURIComponent).join("/")}${this.page.winding.query()}`);
      if (number === this.asked) this.draw(path);
    } catch (error) {
      if (number === this.asked) this.put(note(String(error.message)));
    }
  }

  update(names, changes) {
    const [namespace, name] = this.key;
    const isMine = (line) => line.namespace === namespace && (line.name === name || line.pod === name);
    const touched = [...(changes?.pods ?? []), ...(changes?.events ?? [])].some(isMine);
    if (!changes || touched || changes.gonePods?.length) this.show();
  }

  draw(path) {
    const { pod } = path;
    const facts = [
      ["Phase", pod.phase ?? ""],
      ["Asks", lines(pod.asks)],
      ["In the words of", path.dialect ?? ""],
      ["Refused", path.refused ?? ""],
      ["Queue", pod.queue ?? ""],
      ["Group", pod.podGroup ?? ""],
      ["Node", pod.node ? el("a", { href: link("node", pod.node) }, pod.node) : ""],
      ["Whole GPUs", path.wholeGpus ? String(path.wholeGpus) : ""],
      ["Not enforced", path.notEnforced ?? ""],
      ["Trace", path.traceUrl ? outside(path.traceUrl, path.trace) : (path.trace ?? "")],
    ];
    const given = (path.given ?? []).map((part) => [
      part.index === undefined ? (part.uuid ?? "") : `GPU ${part.index}`,
      part.nano ? percentUp(part.nano) : "",
      part.memMib ? memory(part.memMib) : "",
      part.uuid ?? "",
      part.reservation ?? "",
    ]);
    this.put(
      listed(facts),
      pod.waits ? el("section", { class: "panel why" }, el("h2", {}, "Why it waits"), why(pod)) : null,
      el("section", { class: "panel" }, el("h2", {}, "Its way"), way(path.stages ?? [])),
      given.length
        ? el("section", { class: "panel" }, el("h2", {}, "What it was given"), table("Parts of devices", ["Device", "Share", "Memory", "UUID", "Reservation"], given))
        : null,
      el("section", { class: "panel" }, el("h2", {}, "Events"), path.events?.length ? eventTable([...path.events].reverse()) : note("None are kept.")),
    );
  }

  put(...children) {
    super.put(...children.filter((child) => child !== null));
  }
}

/** Stages with their times, and how long after the one before. */
function way(stages) {
  let before = Number.NaN;
  const steps = stages.map((stage) => {
    const at = Date.parse(stage.at ?? "");
    const later = at - before;
    if (!Number.isNaN(at)) before = at;
    return el(
      "li",
      { class: stage.isReached ? "reached" : "open" },
      el("b", {}, stage.name),
      stage.at ? el("time", { datetime: stage.at, title: stage.at }, clock(stage.at)) : el("span", {}, stage.isReached ? "" : "not yet"),
      Number.isNaN(later) ? null : el("span", { class: "amount" }, `+${span(later)}`),
      stage.note ? el("span", { class: "note" }, stage.note) : null,
    );
  });
  return el("ol", { class: "way" }, steps);
}

function why(pod) {
  const said = [];
  if (pod.onItsWayTo) said.push(el("p", {}, "On its way to ", el("a", { href: link("node", pod.onItsWayTo) }, pod.onItsWayTo)));
  if (pod.reason || pod.message) said.push(el("p", {}, el("b", {}, pod.reason ?? ""), pod.message ? `: ${pod.message}` : ""));
  if (pod.lastFailure && !pod.node) said.push(el("p", {}, `Last attempt: ${pod.lastFailure}`));
  if (!said.length) said.push(el("p", {}, pod.node ? "starting" : "nobody has looked at it yet"));
  return el("div", { class: "reason" }, said);
}

const lines = (texts) => el("div", {}, (texts ?? []).map((text) => el("div", {}, text)));

function listed(facts) {
  const told = facts.filter(([, value]) => value !== "" && !(value instanceof Node && !value.textContent));
  return el("dl", { class: "facts" }, told.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}

