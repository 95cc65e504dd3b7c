// What views have in common. Each has `title`, `root`, and `show()`, which draws it anew.
import { el, link } from "./dom.js";
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

  /** Put a new body in, but leave the focus where it was: on the link of the same address. */
  put(...children) {
    const focused = this.body.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    this.body.replaceChildren(...children);
    if (focused) this.body.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
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
