// Why a pod waits in full: the answer of `moorage explain`, asked for when somebody opens it. It is of the moment at
// which it was asked for, and says which; nothing renews it but its button.
import { el, table } from "./dom.js";
import { clock } from "./format.js";
import { note } from "./view.js";

export class ExplainPanel {
  /** Of a pod of a page. `root` is one element for as long as the view of the pod is shown. */
  constructor(page, key) {
    this.page = page;
    this.key = key;
    this.asked = 0;
    this.answer = el("div", {});
    const again = el("button", { type: "button" }, "Ask again");
    again.addEventListener("click", () => this.ask());
    this.root = el("details", { class: "explain" }, el("summary", {}, "What keeps it, and what would help"), this.answer, again);
    this.root.open = page.query.get("explain") === "1";
    this.root.addEventListener("toggle", () => this.toggled());
    if (this.root.open) this.ask();
  }

  /** The address says that it is open, so that a link shows it to others. */
  toggled() {
    const { open } = this.root;
    if ((this.page.query.get("explain") === "1") !== open) this.page.go({ explain: open ? "1" : "" });
    if (open && !this.asked) this.ask();
  }

  async ask() {
    this.asked += 1;
    const number = this.asked;
    this.say(el("p", { class: "note", role: "status" }, "The answer is being worked out."));
    try {
      const { connection, winding } = this.page;
      const found = await connection.json(`api/explain/${this.key.map(encodeURIComponent).join("/")}${winding.query()}`);
      if (number === this.asked) this.say(...told(found));
    } catch (error) {
      if (number === this.asked) this.say(note(String(error.message)));
    }
  }

  say(...children) {
    this.answer.replaceChildren(...children);
  }
}

/** An answer: sentences and tables, as the command prints them, and what they rest on. */
function told(found) {
  const by = found.notByScheduler ? ` The scheduler gave no answer: ${found.notByScheduler}.` : "";
  return [
    ...(found.tables ?? []).flatMap(part),
    note(["As of ", el("time", { datetime: found.at, title: found.at }, clock(found.at)), `, by ${found.by}.${by}`]),
    found.unread?.length ? note(`Not looked at: ${found.unread.join("; ")}.`) : null,
  ].filter((each) => each !== null);
}

function part({ title, columns, rows }) {
  if (!columns?.length) return [el("p", {}, title)];
  const named = columns.map((name) => name || "Note");
  const shown = columns.map((_, at) => rows.some((row) => row[at]));
  const kept = (cells) => cells.filter((_, at) => shown[at]);
  return [el("h3", {}, title), table(title, kept(named), rows.map((row) => kept(row.map(text))))];
}

/** Lines of a cell are its own. */
const text = (cell) => (cell.includes("\n") ? el("div", {}, cell.split("\n").map((line) => el("div", {}, line))) : cell);
