// Free GPUs that no pod can take: their number below the sums of the map, and for who opens it the causes.
import { el, number, table } from "./dom.js";
import { gpusDown } from "./format.js";

const CAPTION = "Free GPUs that no waiting or usual pod can take, by cause";

export class UnusablePanel {
  constructor(page) {
    this.page = page;
    this.shown = "";
    this.head = el("summary", {});
    this.body = el("div", {});
    this.root = el("details", { class: "unusable", hidden: true }, this.head, this.body);
    this.root.open = page.query.get("unusable") === "1";
    this.root.addEventListener("toggle", () => this.toggled());
  }

  /** The address says that it is open, so that a link shows it to others. */
  toggled() {
    const { open } = this.root;
    if ((this.page.query.get("unusable") === "1") !== open) this.page.go({ unusable: open ? "1" : "" });
  }

  /** Show causes; what is shown already stays, and the focus in it. */
  show(causes) {
    const found = [...causes].sort((a, b) => b.nano - a.nano);
    const rows = found.map(({ cause, nano, why }) => [cause, gpusDown(nano), why]);
    if (JSON.stringify(rows) === this.shown) return;
    this.shown = JSON.stringify(rows);
    this.root.hidden = !rows.length;
    this.head.textContent = `Free GPUs that fit no pod: ${gpusDown(found.reduce((sum, { nano }) => sum + nano, 0))}`;
    this.body.replaceChildren(table(CAPTION, ["Cause", number("GPUs"), "Why"], rows));
  }
}
