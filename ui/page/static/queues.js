// Queues as a tree: what each is due, uses and waits for, as the server counts it; this page only draws it.
import { choiceLink, el, number } from "./dom.js";
import { NANO, gpusUp, ofGpu } from "./format.js";
import { NO_QUEUE, natural, queueOf } from "./store.js";
import { View, ago, bounded, note } from "./view.js";

const COLUMNS = [
  "Queue", "Use", number("GPUs used"), number("Fair share"), number("Quota"), number("Limit"), number("GPUs awaited"),
  number("Running"), number("Waiting"), "Oldest waits", number("Weight"),
];
const COUNTED =
  "GPUs of a queue are those of its pods and of the queues below it. Running and waiting are the pods that name it and request " +
  "GPUs. The bars have one scale.";
const KEY = [["used", "used within the fair share"], ["above", "used above it"], ["due", "due and not used"]];
const IN_PART = "Only pods that are shown here are counted. Others may use more of a queue, and wait in it.";

const IN_PART_COUNTED = "Running and waiting count the pods that are shown here alone, GPUs all pods.";

export class QueuesView extends View {
  constructor(page) {
    super(page, "Queues");
  }

  show() {
    const { store } = this.page;
    const counts = countsOf(store);
    const tree = inTree(store.queues, counts.keys());
    const sums = sumsOf(tree, store.queues, counts);
    const most = Math.max(0, ...[...store.queues.values()].flatMap((queue) => [queue.fairNano ?? 0, queue.usedNano ?? 0]));
    const rows = tree.map(([name, depth]) => this.row(name, depth, counts.get(name), { sum: sums.get(name), most }));
    if (!rows.length) return this.put(note(`There are no queues, and no pod ${this.page.isInPart() ? "that is shown here " : ""}names one.`));
    const told = [el("p", { class: "note key" }, KEY.map(([kind, text]) => el("span", {}, el("span", { class: `swatch ${kind}` }), text)))];
    told.push(note(COUNTED));
    const isCounted = [...store.queues.values()].some((queue) => queue.isCounted);
    if (this.page.isInPart()) told.unshift(note(isCounted ? IN_PART_COUNTED : IN_PART));
    if (!store.queues.size) told.push(note("No Queue object is known here: there is none, or it may not be read."));
    this.put(bounded(this.page, "queues", "Queues, those below others after them", COLUMNS, rows), ...told);
    this.body.querySelector(".chosen")?.closest("tr").setAttribute("class", "chosen");
  }

  /** `sum`: what pods that are shown use of the queue and of those below it, `most`: the longest bar, in nano-GPU. */
  row(name, depth, count, { sum, most }) {
    const written = this.page.store.queues.get(name);
    const { nano = 0, running = 0, waiting = [] } = count ?? {};
    const least = this.page.isInPart() ? "≥ " : "";
    const known = written?.isCounted ? written : undefined;
    const isChosen = this.page.query.get("queue") === name;
    const title = el("div", { class: isChosen ? "branch chosen" : "branch" }, choiceLink("map", { by: "queue", only: name }, name));
    title.style.paddingInlineStart = `${depth * 20}px`;
    const say = (text, why) => title.append(" ", el("span", { class: "state", title: why }, text));
    if (written?.nodePool) title.append(" ", el("span", { class: "amount" }, `node pool ${written.nodePool}`));
    if (written?.displayName) title.append(" ", el("span", { class: "amount" }, written.displayName));
    if (!written && name !== NO_QUEUE && this.page.store.queues.size) say("no such Queue");
    if (known?.unusable) say("takes nobody", known.unusable);
    if (isAbove(known ? (known.usedNano ?? 0) : sum, written?.gpuQuota)) say("above its quota");
    const shown = this.page.store.nodes.size ? `${least}${gpusUp(nano)}` : "not known";
    return [
      title,
      known ? bar(known, most) : "",
      known ? gpusUp(known.usedNano ?? 0) : shown,
      known ? gpusUp(known.fairNano ?? 0) : "",
      amount(written?.gpuQuota),
      amount(written?.gpuLimit),
      known ? gpusUp(known.waitingNano ?? 0) : "",
      counted(running, least, "pods", name),
      counted(waiting.length, least, "waiting", name),
      waiting.length ? ago(waiting[0].created) : "",
      written?.gpuWeight ?? "",
    ];
  }
}

/** What a queue uses and is due, to the scale of `most`. The numbers stand beside it, so it is for the eye alone. */
function bar(queue, most) {
  const { fairNano: fair = 0, usedNano: used = 0, leavingNano: leaving = 0 } = queue;
  const made = el("div", { class: "whole-bar of-queue", "aria-hidden": "true", title: leaving ? `${gpusUp(leaving)} of it terminating` : null });
  const parts = { used: Math.min(fair, used), above: Math.max(0, used - fair), due: Math.max(0, fair - used), rest: most - Math.max(fair, used) };
  for (const [kind, nano] of Object.entries(parts)) {
    const part = el("span", { class: `part ${kind}` });
    part.style.flexGrow = String(nano / (most || 1));
    made.append(part);
  }
  return made;
}

/** So many pods, with a link to them where there are any. */
const counted = (pods, least, view, queue) => (pods ? choiceLink(view, { queue }, `${least}${pods}`) : `${least}0`);

/** Whether more is used than a quota of GPUs, as it is written, guarantees. */
function isAbove(nano, quota) {
  const gpus = Number.parseFloat(quota ?? "");
  return gpus >= 0 && nano > gpus * NANO;
}

/** What pods that are shown use of each queue with those below it. `tree` has those below a queue after it. */
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
