// What the page knows: the last whole state, with every change since then put in.

//: How the queue of pods is called that name none.
export const NO_QUEUE = "(no queue)";

/** The queue of a pod; of none that is known, too. */
export const queueOf = (pod) => pod?.queue || NO_QUEUE;

/** A group as one text: namespace/name. */
export const groupKey = (group) => `${group.namespace}/${group.name}`;

const KEYS = {
  node: (node) => node.name,
  pod: (pod) => pod.uid,
  event: (event) => event.key,
  group: groupKey,
  queue: (queue) => queue.name,
  unusable: (each) => each.cause,
};

export class Store {
  constructor() {
    this.clear();
  }

  clear() {
    this.id = "";
    this.source = "";
    this.isPartlyHidden = false;
    this.nodes = new Map();
    this.pods = new Map();
    this.events = new Map();
    this.groups = new Map();
    this.queues = new Map();
    this.unusable = new Map();
  }

  /** Take a whole state. */
  take(state) {
    this.clear();
    this.source = state.source;
    this.isPartlyHidden = Boolean(state.isPartlyHidden);
    this.apply(state.id, state.changes);
  }

  /** Put changes in. Returns the names of the nodes that are not what they were. */
  apply(id, changes) {
    this.id = id;
    put(this.nodes, changes.nodes, KEYS.node, changes.goneNodes);
    put(this.pods, changes.pods, KEYS.pod, changes.gonePods);
    put(this.events, changes.events, KEYS.event, changes.goneEvents);
    put(this.groups, changes.groups, KEYS.group, changes.goneGroups);
    put(this.queues, changes.queues, KEYS.queue, changes.goneQueues);
    put(this.unusable, changes.unusable, KEYS.unusable, changes.goneUnusable);
    return [...(changes.nodes ?? []).map((node) => node.name), ...(changes.goneNodes ?? [])];
  }

  /** A whole as changes of what is known: what is not in it is gone. */
  different(whole) {
    const gone = (known, lines, key) => {
      const there = new Set((lines ?? []).map(key));
      return [...known.keys()].filter((name) => !there.has(name));
    };
    return {
      ...whole,
      goneNodes: gone(this.nodes, whole.nodes, KEYS.node),
      gonePods: gone(this.pods, whole.pods, KEYS.pod),
      goneEvents: gone(this.events, whole.events, KEYS.event),
      goneGroups: gone(this.groups, whole.groups, KEYS.group),
      goneQueues: gone(this.queues, whole.queues, KEYS.queue),
      goneUnusable: gone(this.unusable, whole.unusable, KEYS.unusable),
    };
  }

  /** Nodes in the order in which people count: node-2 before node-10. */
  inOrder() {
    return [...this.nodes.values()].sort((a, b) => natural.compare(a.name, b.name));
  }

  /** Whose pods are on devices; the colours of all follow from them, in whichever view they are met first. */
  tenantNamespaces() {
    const devices = [...this.nodes.values()].flatMap((node) => node.devices ?? []);
    const tenants = devices.flatMap((device) => device.tenants ?? []);
    return new Set(tenants.filter((tenant) => !tenant.isHidden).map((tenant) => tenant.namespace));
  }

  /** The group of each pod that names one: "namespace/pod" -> "namespace/group". */
  groupsOfPods() {
    const grouped = [...this.pods.values()].filter((pod) => pod.podGroup);
    return new Map(grouped.map((pod) => [`${pod.namespace}/${pod.name}`, `${pod.namespace}/${pod.podGroup}`]));
  }

  /** Pods that wait, the oldest first. */
  waiting() {
    return [...this.pods.values()].filter((pod) => pod.waits).sort(byAge);
  }
}

export const natural = new Intl.Collator("en", { numeric: true });

const byAge = (a, b) => (a.created ?? "").localeCompare(b.created ?? "") || natural.compare(a.name, b.name);

function put(known, lines, key, gone) {
  for (const line of lines ?? []) {
    known.delete(key(line)); // what is new comes last
    known.set(key(line), line);
  }
  for (const each of gone ?? []) known.delete(each);
}
