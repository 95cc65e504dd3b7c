// A pod: what it asks, its way, what it was given, why it waits, what was reported of it.
import { el, link, outside, table } from "./dom.js";
import { ExplainPanel } from "./explain.js";
import { clock, memory, percentUp, span } from "./format.js";
import { eventTable } from "./lists.js";
import { View, groupLink, lines, listed, note, ownerLink, queueLink, why } from "./view.js";

/** A pod's way: its stages with their times, what it was given, why it waits, what was reported. */
export class PodView extends View {
  constructor(page, namespace, name) {
    super(page, `Pod ${namespace}/${name}`);
    this.key = [namespace, name];
    this.asked = 0;
    this.node = "";
    this.why = null;
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
    // What a pod was given is told by its node's reservations.
    const touched = names.includes(this.node) || [...(changes?.pods ?? []), ...(changes?.events ?? [])].some(isMine);
    if (!changes || touched || changes.gonePods?.length) this.show();
  }

  draw(path) {
    const { pod } = path;
    this.node = pod.node || pod.onItsWayTo || "";
    const facts = [
      ["Phase", pod.phase ?? ""],
      ["Asks", lines(pod.asks)],
      ["In the words of", path.dialect ?? ""],
      ["Refused", path.refused ?? ""],
      ["Queue", queueLink(pod.queue)],
      ["Group", groupLink(pod.namespace, pod.podGroup)],
      ["Owner", ownerLink(pod.namespace, pod.owner)],
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
      part.reservation ?? part.device ?? "",
    ]);
    this.why = pod.waits ? (this.why ?? new Why(this.page, this.key)) : null;
    this.why?.show(pod);
    this.put(
      listed(facts),
      this.why?.root ?? null,
      el("section", { class: "panel" }, el("h2", {}, "Its way"), way(path.stages ?? [])),
      given.length
        ? el("section", { class: "panel" }, el("h2", {}, "What it was given"), table("Parts of devices", ["Device", "Share", "Memory", "UUID", "Reservation"], given))
        : null,
      el("section", { class: "panel" }, el("h2", {}, "Events"), path.events?.length ? eventTable(this.page, [...path.events].reverse()) : note("None are kept.")),
    );
  }

  put(...children) {
    super.put(...children.filter((child) => child !== null));
  }
}

/** Why it waits: in short, and in full for who opens that. It stays one element, so that an answer and the focus stay. */
class Why {
  constructor(page, key) {
    this.short = el("div", {});
    const full = new ExplainPanel(page, key);
    this.root = el("section", { class: "panel why" }, el("h2", {}, "Why it waits"), this.short, full.root);
  }

  show(pod) {
    this.short.replaceChildren(why(pod));
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
