// What the page knows: the last whole state, with every change since then put in.

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
    const pod = (line) => line.uid;
    const group = (line) => `${line.namespace}/${line.name}`;
    put(this.nodes, changes.nodes, (node) => node.name, changes.goneNodes);
    put(this.pods, changes.pods, pod, changes.gonePods);
    put(this.events, changes.events, (event) => event.key, changes.goneEvents);
    put(this.groups, changes.groups, group, changes.goneGroups);
    return [...(changes.nodes ?? []).map((node) => node.name), ...(changes.goneNodes ?? [])];
  }

  /** Nodes in the order in which people count: node-2 before node-10. */
  inOrder() {
    return [...this.nodes.values()].sort((a, b) => natural.compare(a.name, b.name));
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
