// What views have in common. Each has `title`, `root`, and `show()`, which draws it anew.
import { choiceLink, el, link, table } from "./dom.js";
import { span } from "./format.js";
import { now } from "./time.js";

export class View {
  constructor(page, title) {
    this.page = page;
    this.title = title;
    this.heading = el("h1", { tabindex: "-1" }, title);
    this.body = el("div", {});
    this.root = el("article", {}, this.heading, this.body);
  }

  update() {
    this.show();
  }

  /** Put a new body in, but leave the focus where it was: on what is put in again, or on the link of the same address. */
  put(...children) {
    const active = this.body.contains(document.activeElement) ? document.activeElement : null;
    const focused = active?.getAttribute("href");
    this.body.replaceChildren(...children);
    if (active?.isConnected) active.focus({ preventScroll: true });
    else if (focused) this.body.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  }
}

/** For how long something is there. */
export const ago = (text) => {
  const at = Date.parse(text ?? "");
  return Number.isNaN(at) ? "" : el("time", { datetime: text, title: text }, span(now() - at));
};
/** What is said where there is nothing to show. */
export const note = (text) => el("p", { class: "note" }, text);

/** Why a pod waits, as far as anybody has said. */
export function why(pod) {
  const said = [];
  if (pod.onItsWayTo) said.push(el("p", {}, "On its way to ", el("a", { href: link("node", pod.onItsWayTo) }, pod.onItsWayTo)));
  if (pod.reason || pod.message) said.push(el("p", {}, el("b", {}, pod.reason ?? ""), pod.message ? `: ${pod.message}` : ""));
  if (pod.lastFailure && !pod.node) said.push(el("p", {}, `Last attempt: ${pod.lastFailure}`));
  if (!said.length) said.push(el("p", {}, pod.node ? "starting" : "nobody has looked at it yet"));
  return el("div", { class: "reason" }, said);
}

/** Texts, one below the other. */
export const lines = (texts) => el("div", {}, (texts ?? []).map((text) => el("div", {}, text)));

/** Names and values; those without a value are left out. */
export function listed(facts) {
  const told = facts.filter(([, value]) => value !== "" && !(value instanceof Node && !value.textContent));
  return el("dl", { class: "facts" }, told.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}

const ROWS = 200;

/** A table of so many rows at most, with a link that shows more of them; `choice` names it in the address. */
export function bounded(page, choice, caption, columns, rows) {
  const most = Math.max(ROWS, Number.parseInt(page.query.get(`${choice}-rows`) ?? "", 10) || 0);
  const made = table(caption, columns, rows.slice(0, most));
  if (rows.length <= most) return made;
  const more = el("a", { href: page.with({ [`${choice}-rows`]: String(most + 5 * ROWS) }) }, "show more");
  return el("div", {}, made, el("p", { class: "note" }, `${most} of ${rows.length} rows are shown; `, more));
}

/** A link to the row of a queue. */
export const queueLink = (queue) => choiceLink("queues", { queue: queue ?? "" }, queue);

/** A link to the pods of a group. */
export const groupLink = (namespace, group) => (group ? choiceLink("pods", { group: `${namespace}/${group}` }, group) : "");

/** A link to the pods of an owner. */
export const ownerLink = (namespace, owner) => (owner ? choiceLink("pods", { owner: `${namespace}/${owner}` }, owner) : "");
