// Queues: what each has in use, what waits in it and for how long, and what is written in it.
import { el, number, table, whole } from "./dom.js";
import { gpusUp, ofGpu } from "./format.js";
import { NO_QUEUE, natural, queueOf } from "./store.js";
import { View, ago, note } from "./view.js";

const COLUMNS = ["Queue", number("GPUs used"), number("Running"), number("Waiting"), "Oldest waits", number("Quota"), number("Limit"), number("Weight")];
const AS_WRITTEN =
  "Each row counts the pods that name the queue, not those of queues below it. Quotas, limits and weights are shown as they " +
  "are written: Moorage does not enforce them yet.";
const IN_PART = "Only pods that are shown here are counted. Others may use more of a queue, and wait in it.";

export class QueuesView extends View {
  constructor(page) {
    super(page, "Queues");
  }

  show() {
    const { store } = this.page;
    const counts = countsOf(store);
    const rows = inTree(store.queues, counts.keys()).map(([name, depth]) => this.row(name, depth, counts.get(name)));
    if (!rows.length) return this.put(note(`There are no queues, and no pod ${this.page.isInPart() ? "that is shown here " : ""}names one.`));
    const told = [note(AS_WRITTEN)];
    if (this.page.isInPart()) told.unshift(note(IN_PART));
    if (!store.queues.size) told.push(note("No Queue object is known here: there is none, or it may not be read."));
    this.put(table("Queues, those below others after them", COLUMNS, rows), ...told);
  }

  row(name, depth, count) {
    const written = this.page.store.queues.get(name);
    const { nano = 0, running = 0, waiting = [] } = count ?? {};
    const least = this.page.isInPart() ? "≥ " : "";
    const title = el("div", { class: "branch" }, showing(name, "map", { by: "queue", only: name }));
    title.style.paddingInlineStart = `${depth * 20}px`;
    if (written?.displayName) title.append(" ", el("span", { class: "amount" }, written.displayName));
    if (!written && name !== NO_QUEUE && this.page.store.queues.size) title.append(" ", el("span", { class: "state" }, "no such Queue"));
    return [
      title,
      this.page.store.nodes.size ? `${least}${gpusUp(nano)}` : "not known",
      counted(running, least, "pods", name),
      counted(waiting.length, least, "waiting", name),
      waiting.length ? ago(waiting[0].created) : "",
      amount(written?.gpuQuota),
      amount(written?.gpuLimit),
      written?.gpuWeight ?? "",
    ];
  }
}

/** So many pods, with a link to them where there are any. */
const counted = (pods, least, view, queue) => (pods ? showing(`${least}${pods}`, view, { queue }) : `${least}0`);

function showing(text, view, choices) {
  return el("a", { href: `#/${view}?${new URLSearchParams(choices)}`, ...whole(text) }, text);
}

const amount = (text) => (text === "-1" ? "unlimited" : (text ?? ""));

/** By queue: what its pods use, how many run, and those that wait, the oldest first. */
function countsOf(store) {
  const counts = new Map();
  const of = (pod) => {
    const name = queueOf(pod);
    if (!counts.has(name)) counts.set(name, { nano: 0, running: 0, waiting: [] });
    return counts.get(name);
  };
  for (const pod of store.pods.values()) of(pod).running += pod.phase === "Running" ? 1 : 0;
  for (const pod of store.waiting()) of(pod).waiting.push(pod);
  for (const node of store.nodes.values()) {
    for (const device of node.devices ?? []) {
      for (const tenant of device.tenants ?? []) if (!tenant.isHidden) of(store.pods.get(tenant.uid)).nano += ofGpu(device, tenant);
    }
  }
  return counts;
}

/** Names with how deep they stand: those below a queue come after it, those that stand in a circle last. */
function inTree(queues, named) {
  const isLast = (name) => Number(name === NO_QUEUE);
  const names = [...new Set([...queues.keys(), ...named])].sort((a, b) => isLast(a) - isLast(b) || natural.compare(a, b));
  const below = Map.groupBy(names, (name) => queues.get(name)?.parent ?? "");
  const met = new Map();
  const meet = (name, depth) => {
    if (met.has(name)) return;
    met.set(name, depth);
    for (const child of below.get(name) ?? []) meet(child, depth + 1);
  };
  for (const name of names) if (!queues.has(queues.get(name)?.parent)) meet(name, 0);
  for (const name of names) meet(name, 0);
  return [...met];
}
