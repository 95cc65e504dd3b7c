// Lists: pods that wait, all pods, events. Each can be searched, filtered and sorted; the choices are in the address.
import { el, link, number, podLink, whole } from "./dom.js";
import { clock } from "./format.js";
import { groupKey, queueOf } from "./store.js";
import { ListView } from "./listview.js";
import { ago, bounded, groupLink, lines, ownerLink, queueLink, why } from "./view.js";

const POD = { name: "Pod", text: (pod) => `${pod.namespace}/${pod.name}`, cell: (pod) => podLink(pod.namespace, pod.name) };
const QUEUE = { name: "Queue", text: (pod) => pod.queue ?? "", cell: (pod) => queueLink(pod.queue) };
const GROUP = { name: "Group", text: (pod) => pod.podGroup ?? "", cell: (pod) => groupLink(pod.namespace, pod.podGroup) };
const OWNER = { name: "Owner", text: (pod) => pod.owner ?? "", cell: (pod) => ownerLink(pod.namespace, pod.owner) };
/** Since when: a long age is an early time, so the order is turned round. */
const age = (name) => ({ name, order: (pod) => pod.created ?? "", isTurned: true, cell: (pod) => ago(pod.created) });

const FILTERS = {
  namespace: (pod) => pod.namespace,
  queue: queueOf,
  group: (pod) => (pod.podGroup ? groupKey({ namespace: pod.namespace, name: pod.podGroup }) : ""),
  owner: (pod) => (pod.owner ? `${pod.namespace}/${pod.owner}` : ""),
};

/** Pods that wait, and why. */
export class WaitingView extends ListView {
  constructor(page) {
    super(page, "Waiting pods", {
      caption: "Waiting pods, the oldest first",
      columns: [
        POD,
        QUEUE,
        age("For"),
        { name: "Asks", text: (pod) => (pod.asks ?? []).join(" "), cell: (pod) => lines(pod.asks) },
        { name: "Why", text: (pod) => `${pod.reason ?? ""} ${pod.message ?? ""} ${pod.lastFailure ?? ""}`, cell: why },
      ],
      filters: { ...FILTERS, reason: (pod) => pod.reason ?? "" },
      offered: ["namespace", "queue", "reason"],
      empty: "No pod waits.",
    });
  }

  items() {
    return this.page.store.waiting();
  }
}

/** All pods that have to do with GPUs. */
export class PodsView extends ListView {
  constructor(page) {
    super(page, "Pods", {
      caption: "Pods that request GPUs",
      columns: [
        POD,
        { name: "Phase", text: (pod) => pod.phase ?? "" },
        {
          name: "Node",
          text: (pod) => pod.node ?? "",
          cell: (pod) => (pod.node ? el("a", { href: link("node", pod.node) }, pod.node) : ""),
        },
        QUEUE,
        GROUP,
        OWNER,
        age("Age"),
      ],
      filters: { ...FILTERS, phase: (pod) => pod.phase ?? "" },
      offered: ["namespace", "queue", "phase"],
      first: "Pod",
      empty: "No pod requests GPUs.",
    });
  }

  items() {
    return [...this.page.store.pods.values()];
  }
}

const WHO = (event) => `${event.namespace}/${event.pod}`;
const EVENT_COLUMNS = [
  { name: "At", order: (event) => event.at ?? "", cell: (event) => el("time", { datetime: event.at }, clock(event.at)) },
  {
    name: "Type",
    text: (event) => event.type ?? "",
    cell: (event) => (event.type === "Warning" ? el("strong", {}, event.type) : (event.type ?? "")),
  },
  { name: "Pod", text: (event) => event.group ?? WHO(event), cell: about },
  { name: "Reason", text: (event) => event.reason ?? "" },
  { name: "What", text: (event) => event.note ?? "", cell: (event) => el("div", { class: "reason" }, event.note ?? "") },
  { name: "By", text: (event) => event.by ?? "", cell: (event) => el("span", whole(event.by ?? ""), event.by ?? "") },
  { ...number("Times"), order: (event) => event.count ?? 1, cell: (event) => String(event.count ?? 1) },
];

/** What was reported of pods. What was reported of several pods of one group is one row. */
export class EventsView extends ListView {
  constructor(page) {
    super(page, "Events", {
      caption: "Events, the newest first",
      columns: EVENT_COLUMNS,
      filters: { namespace: (event) => event.namespace, type: (event) => event.type ?? "", reason: (event) => event.reason ?? "" },
      offered: ["namespace", "type", "reason"],
      first: "-At",
      empty: "There are no events.",
    });
  }

  items() {
    return folded([...this.page.store.events.values()], this.page.store.groupsOfPods());
  }
}

/** Events with the same words about pods of one group as one event, which has `group` and `pods`. */
function folded(events, groups) {
  const rows = new Map();
  for (const event of events) {
    const group = groups.get(WHO(event));
    const key = JSON.stringify([group ?? event.key, event.type, event.reason, event.note, event.by]);
    const known = rows.get(key);
    if (!known) rows.set(key, { ...event, group: undefined, of: group, names: new Set([event.pod]) });
    else {
      known.names.add(event.pod);
      known.count = Math.max(known.count ?? 1, event.count ?? 1);
      if ((event.at ?? "") > (known.at ?? "")) known.at = event.at;
    }
  }
  return [...rows.values()].map((row) => (row.names.size > 1 ? { ...row, group: row.of, pods: row.names.size } : row));
}

/** The pod of an event, or the group of several. */
function about(event) {
  if (!event.group) return podLink(event.namespace, event.pod);
  const name = event.group.slice(event.namespace.length + 1);
  return el("span", {}, "group ", groupLink(event.namespace, name), ` (${event.pods} pods)`);
}

/** Events as a table. */
export function eventTable(page, events) {
  const rows = events.map((event) => EVENT_COLUMNS.map((column) => (column.cell ?? column.text)(event)));
  return bounded(page, "events", "Events, the newest first", EVENT_COLUMNS, rows);
}
