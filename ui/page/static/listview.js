// A list that can be searched, filtered and sorted. What was chosen is in the address: `find`, `sort` (a column's name,
// with "-" before it for the other direction), and each filter by its name.
import { el } from "./dom.js";
import { natural } from "./store.js";
import { View, bounded, note } from "./view.js";

/** Columns have `name`, `text(item)` (searched, sorted by, and shown where there is no `cell(item)`) or `order(item)`.
 * `filters`: name -> value of an item; those `offered` can be chosen here, the others come with links. `first`: how the
 * list is sorted at first; without it as `items()` has them. */
export class ListView extends View {
  constructor(page, title, { caption, columns, filters, offered, first = "", empty }) {
    super(page, title);
    Object.assign(this, { caption, columns, filters, first, empty });
    this.find = el("input", { type: "search", id: "find", autocomplete: "off", spellcheck: "false" });
    this.find.addEventListener("input", () => page.go({ find: this.find.value }));
    this.selects = new Map(offered.map((name) => [name, this.select(name)]));
    const choices = [...this.selects].map(([name, select]) => el("label", {}, `${name} `, select));
    this.root.insertBefore(el("div", { class: "tools" }, el("label", { class: "find" }, "Find ", this.find), choices), this.body);
  }

  select(name) {
    const made = el("select", { name });
    made.addEventListener("change", () => this.page.go({ [name]: made.value }));
    return made;
  }

  show() {
    const { query } = this.page;
    const all = this.items();
    if (document.activeElement !== this.find) this.find.value = query.get("find") ?? "";
    for (const [name, select] of this.selects) this.offer(name, select, all);
    const chosen = Object.keys(this.filters).filter((name) => query.get(name));
    const items = this.sorted(this.found(all.filter((item) => chosen.every((name) => this.filters[name](item) === query.get(name)))));
    const rows = items.map((item) => this.columns.map((column) => (column.cell ?? column.text)(item)));
    const body = rows.length ? bounded(this.page, "list", this.caption, this.heads(), rows) : note(all.length ? "Nothing matches." : this.empty);
    this.put(this.said(chosen, items.length, all.length), body);
  }

  /** The values that a filter can have, in order. What is open stays as it is. */
  offer(name, select, all) {
    if (document.activeElement === select && select.options.length) return;
    const now = this.page.query.get(name) ?? "";
    const values = new Set([...all.map(this.filters[name]), now].filter(Boolean));
    const options = [...values].sort(natural.compare).map((value) => el("option", { value, selected: value === now }, value));
    select.replaceChildren(el("option", { value: "", selected: !now }, "all"), ...options);
  }

  found(items) {
    const find = this.page.query.get("find")?.toLowerCase();
    if (!find) return items;
    const texts = this.columns.filter((column) => column.text).map((column) => column.text);
    return items.filter((item) => texts.some((text) => text(item).toLowerCase().includes(find)));
  }

  sorted(items) {
    const { column, isDown } = this.order();
    if (!column) return items;
    const value = column.order ?? column.text;
    const compare = (a, b) => (typeof a === "number" ? a - b : natural.compare(a, b));
    const sign = isDown === Boolean(column.isTurned) ? 1 : -1;
    return items
      .map((item) => [value(item), item])
      .sort(([a], [b]) => sign * compare(a, b))
      .map(([, item]) => item);
  }

  order() {
    const text = this.page.query.get("sort") || this.first;
    const name = text.replace(/^-/, "");
    return { column: this.columns.find((column) => column.name === name), isDown: text.startsWith("-") };
  }

  /** The heads of the table: each a link that sorts by its column, and the other way round where it does so already. */
  heads() {
    const { column, isDown } = this.order();
    return this.columns.map((each) => {
      const isBy = each === column;
      const sort = isBy && !isDown ? `-${each.name}` : each.name;
      const title = el("a", { href: this.page.with({ sort }) }, each.name);
      return { ...each, title, sort: isBy ? (isDown ? "descending" : "ascending") : null };
    });
  }

  /** What is left out by filters, with a link that takes them away. */
  said(chosen, shown, all) {
    if (!chosen.length) return el("p", { class: "note", role: "status" }, this.page.query.get("find") ? `${shown} of ${all}` : "");
    const none = Object.fromEntries(chosen.map((name) => [name, ""]));
    const words = chosen.flatMap((name) => [`, of ${name} `, el("b", {}, this.page.query.get(name))]);
    return el("p", { class: "note", role: "status" }, `${shown} of ${all}`, words, "; ", el("a", { href: this.page.with(none) }, "show all"));
  }
}
