// Queues: what each has in use, what waits in it and for how long, and what is written in it.
import { choiceLink, el, number } from "./dom.js";
import { NANO, gpusUp, ofGpu } from "./format.js";
import { NO_QUEUE, natural, queueOf } from "./store.js";
import { View, ago, bounded, note } from "./view.js";

const COLUMNS = ["Queue", number("GPUs used"), number("Running"), number("Waiting"), "Oldest waits", number("Quota"), number("Limit"), number("Weight")];
const AS_WRITTEN =
  "Each row counts the pods that name the queue, not those of queues below it. Quotas, limits and weights are shown as they " +
  "are written.";
const IN_PART = "Only pods that are shown here are counted. Others may use more of a queue, and wait in it.";

export class QueuesView extends View {
  constructor(page) {
    super(page, "Queues");
  }

  show() {
    const { store } = this.page;
    const counts = countsOf(store);
    const tree = inTree(store.queues, counts.keys());
    const sums = sumsOf(tree, store.queues, counts);
    const rows = tree.map(([name, depth]) => this.row(name, depth, counts.get(name), sums.get(name)));
    if (!rows.length) return this.put(note(`There are no queues, and no pod ${this.page.isInPart() ? "that is shown here " : ""}names one.`));
    const told = [note(AS_WRITTEN)];
    if (this.page.isInPart()) told.unshift(note(IN_PART));
    if (!store.queues.size) told.push(note("No Queue object is known here: there is none, or it may not be read."));
    this.put(bounded(this.page, "queues", "Queues, those below others after them", COLUMNS, rows), ...told);
    this.body.querySelector(".chosen")?.closest("tr").setAttribute("class", "chosen");
  }

  /** `sum`: what the queue and those below it use, in nano-GPU. */
  row(name, depth, count, sum) {
    const written = this.page.store.queues.get(name);
    const { nano = 0, running = 0, waiting = [] } = count ?? {};
    const least = this.page.isInPart() ? "≥ " : "";
    const isChosen = this.page.query.get("queue") === name;
    const title = el("div", { class: isChosen ? "branch chosen" : "branch" }, choiceLink("map", { by: "queue", only: name }, name));
    title.style.paddingInlineStart = `${depth * 20}px`;
    if (written?.displayName) title.append(" ", el("span", { class: "amount" }, written.displayName));
    if (!written && name !== NO_QUEUE && this.page.store.queues.size) title.append(" ", el("span", { class: "state" }, "no such Queue"));
    if (isAbove(sum, written?.gpuQuota)) title.append(" ", el("span", { class: "state" }, "above its quota"));
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
const counted = (pods, least, view, queue) => (pods ? choiceLink(view, { queue }, `${least}${pods}`) : `${least}0`);

/** Whether more is used than a quota of GPUs, as it is written, deserves. */
function isAbove(nano, quota) {
  const gpus = Number.parseFloat(quota ?? "");
  return gpus >= 0 && nano > gpus * NANO;
}

/** What each queue uses with those below it. `tree` has those below a queue after it. */
function sumsOf(tree, queues, counts) {
  const sums = new Map(tree.map(([name]) => [name, counts.get(name)?.nano ?? 0]));
  for (const [name, depth] of [...tree].reverse()) {
    const parent = queues.get(name)?.parent;
    if (depth > 0 && sums.has(parent)) sums.set(parent, sums.get(parent) + sums.get(name));
  }
  return sums;
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
