// Lists: pods that wait, all pods, events.
import { el, link, number, podLink, table, whole } from "./dom.js";
import { clock } from "./format.js";
import { natural, queueOf } from "./store.js";
import { View, ago, lines, note, why } from "./view.js";

/** The pods of one queue where the address names one, and a link that shows all. */
function chosen(page, pods) {
  const queue = page.query.get("queue");
  if (!queue) return [pods, []];
  const all = el("a", { href: page.with({ queue: "" }) }, "show all");
  return [pods.filter((pod) => queueOf(pod) === queue), [el("p", { class: "note" }, "Of queue ", el("b", {}, queue), " alone; ", all)]];
}

/** Pods that wait, and why. */
export class WaitingView extends View {
  constructor(page) {
    super(page, "Waiting pods");
  }

  show() {
    const [pods, told] = chosen(this.page, this.page.store.waiting());
    const rows = pods.map((pod) => [
      podLink(pod.namespace, pod.name),
      pod.queue ?? "",
      ago(pod.created),
      lines(pod.asks),
      why(pod),
    ]);
    this.put(
      ...told,
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
    const [pods, told] = chosen(this.page, [...this.page.store.pods.values()]);
    pods.sort(
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
      ...told,
      rows.length
        ? table("Pods that ask for GPUs", ["Pod", "Phase", "Node", "Queue", "Group", "Age"], rows)
        : note("No pod asks for GPUs."),
    );
  }
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

/** Events as a table. */
export function eventTable(events) {
  const rows = events.map((event) => [
    el("time", { datetime: event.at }, clock(event.at)),
    event.type === "Warning" ? el("strong", {}, event.type) : (event.type ?? ""),
    podLink(event.namespace, event.pod),
    event.reason ?? "",
    el("div", { class: "reason" }, event.note ?? ""),
    el("span", whole(event.by ?? ""), event.by ?? ""),
    String(event.count ?? 1),
  ]);
  return table("Events, the newest first", ["At", "Type", "Pod", "Reason", "What", "By", number("Times")], rows);
}
