// The cluster in sum: how much is used, left, idle and stranded; and who has how much, which is the map's legend.
import { el } from "./dom.js";
import { gpusDown, gpusUp } from "./format.js";

/** Put these nodes' sums in: `root` is a section. */
export function sumUp(root, nodes) {
  const sums = { used: 0, pieces: 0, idle: 0, stranded: 0, unknown: 0 };
  let gpus = 0;
  for (const node of nodes) {
    gpus += node.gpus ?? 0;
    sums.used += node.usedNano ?? 0;
    sums.pieces += node.piecesNano ?? 0;
    sums.idle += node.idleNano ?? 0;
    sums.stranded += node.strandedNano ?? 0;
    sums.unknown += node.unknownNano ?? 0;
  }
  const inPart = [
    ["used", "used at least", gpusUp],
    ["unknown", "not known", gpusDown],
  ];
  const told = nodes.some((node) => node.isPartlyKnown) ? inPart : [
    ["used", "used", gpusUp],
    ["pieces", "left of shared GPUs", gpusDown],
    ["idle", "idle", gpusDown],
    ["stranded", "stranded", gpusDown],
  ];
  const bar = el("div", { class: "whole-bar", "aria-hidden": "true" });
  const all = Object.values(sums).reduce((sum, nano) => sum + nano, 0) || 1;
  for (const [kind] of told) {
    const part = el("span", { class: `part ${kind}` });
    part.style.flexGrow = String(sums[kind] / all);
    bar.append(part);
  }
  const figures = told.map(([kind, name, rounded]) => figure(rounded(sums[kind]), el("span", { class: `swatch ${kind}` }), name));
  root.replaceChildren(el("dl", {}, figure(String(gpus), "GPUs"), figure(String(nodes.length), "nodes"), figures), bar);
}

function figure(amount, ...name) {
  return el("div", { class: "figure" }, el("dt", {}, ...name), el("dd", {}, amount));
}

/** Put in who has how much, most first, each a link that shows them alone. `sums`: by name, "" for who may not be seen. */
export function explain(root, sums, { only, colours, linkTo }) {
  const entries = [...sums]
    .filter(([name]) => name)
    .sort((a, b) => b[1] - a[1])
    .map(([name, nano]) =>
      el(
        "a",
        { href: linkTo(only === name ? "" : name), "aria-current": only === name ? "true" : null, title: name },
        el("span", { class: `swatch ${colours.of(name)}` }),
        el("span", {}, name),
        el("span", { class: "amount" }, gpusUp(nano)),
      ),
    );
  const hidden = sums.get("") ?? 0;
  if (hidden) entries.push(el("span", {}, el("span", { class: "swatch hidden" }), "others ", gpusUp(hidden)));
  root.replaceChildren(...entries);
}
