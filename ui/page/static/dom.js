// Elements from data. Names of pods and messages are anybody's: they only ever become text and attributes' values here,
// never HTML. Links go to views of this page, and to where whoever runs it keeps traces.

const LONGEST_WHOLE = 40;

/** Make an element; `attributes` that are null, undefined or false are left out, children that are null as well. */
export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) {
      made.setAttribute(name, value === true ? "" : String(value));
    }
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

/** A column of numbers. */
export const number = (name) => ({ name, kind: "number" });

/** A table with a caption for those who hear it; `rows` are lists of cells, each text or a node.
 * A column is its name, or has `name`, `kind`, and for its head `sort` (as aria-sort has it) and `title`, a node. */
export function table(caption, columns, rows) {
  const cell = (of) => el("th", { scope: "col", role: "columnheader", class: of.kind, "aria-sort": of.sort }, of.title ?? of.name ?? of);
  const head = el("tr", { role: "row" }, columns.map(cell));
  const lines = rows.map((cells) => el("tr", { role: "row" }, cells.map((cell, place) => tableCell(columns[place], cell))));
  return el(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    el("table", { role: "table" }, el("caption", { class: "unseen" }, caption), el("thead", {}, head), el("tbody", {}, lines)),
  );
}

/** The roles say what a table is also where it is laid out as something else. */
function tableCell(column, cell) {
  return el("td", { role: "cell", class: column.kind, "data-column": column.name ?? column }, cell);
}

/** Where a view is: `link("pod", ns, name)` is `#/pod/ns/name`. */
export function link(view, ...parts) {
  return `#/${[view, ...parts].map(encodeURIComponent).join("/")}`;
}

/** Where a device is shown: on its node's page, by its number; a MIG slice, which has none, by its place. */
export const deviceLink = (node, device, place) => `${link("node", node.name)}?gpu=${device.number ?? `slice-${place}`}`;

/** A link to a view with these choices; without a value there is nothing to choose, and no link. */
export function choiceLink(view, choices, text) {
  return text ? el("a", { href: `#/${view}?${new URLSearchParams(choices)}`, ...whole(text) }, text) : "";
}

/** A link to another site, which is not told from where. */
export function outside(address, text) {
  return el("a", { href: address, target: "_blank", rel: "noreferrer noopener" }, text);
}

/** What is not broken into lines, unless it is long. */
export const whole = (text) => ({ class: text.length <= LONGEST_WHOLE ? "whole" : null });

/** A link to a pod. */
export function podLink(namespace, name) {
  const text = `${namespace}/${name}`;
  return el("a", { href: link("pod", namespace, name), ...whole(text) }, text);
}
