// A recorded run is wound to any moment: back, forth, played, faster. The server draws the moment that is asked for, and
// tells what is different there from what this page shows; so a page that plays asks four times a second, or as often as
// it is answered, and readers of one run have nothing to do with each other. The moment is in the address: `at=83.2s`.
import { el } from "./dom.js";
import { many } from "./format.js";
import { stopAt } from "./time.js";

const EVERY_MS = 250;
const AGAIN_MS = 2000;
const SLOW_MS = 400;
const STAMP_MS = 1000;
const SPEEDS = [0.5, 1, 2, 5, 10, 60, 300, 1000];
//: What players do with these keys, in ms.
const STEPS = { ArrowLeft: -5000, ArrowRight: 5000, ArrowDown: -5000, ArrowUp: 5000, ",": -100, ".": 100 };
//: Of these, what a page does not need itself: up and down roll it.
const FREE_KEYS = [" ", "ArrowLeft", "ArrowRight"];
const SKIP_MS = 10_000;

/** The moment in an address, in ms after the beginning; null: none. */
export function momentIn(hash) {
  const text = new URLSearchParams(hash.split("?")[1] ?? "").get("at") ?? "";
  const found = /^(\d{1,9})(?:\.(\d{1,3})\d*)?s?$/.exec(text);
  return found ? Number(found[1]) * 1000 + Number((found[2] ?? "").padEnd(3, "0")) : null;
}

/** The same in an address. */
export const momentText = (ms) => `${ms / 1000}s`;

/** What to add to the address of an API, so that it answers of the moment in an address of the page. */
export function momentQuery(hash) {
  const at = momentIn(hash);
  return at === null ? "" : `?at=${at}`;
}

export class Winding {
  /** Of a page that may turn out to be a recorded run. */
  constructor(page) {
    this.page = page;
    this.run = null;
    this.at = 0;
    this.wanted = null;
    this.asked = null;
    this.isAsking = false;
    this.isPlaying = false;
    this.stamped = 0;
    document.addEventListener("keydown", (event) => {
      const isFree = this.run && event.target.matches("body, main, h1");
      if (isFree && FREE_KEYS.includes(event.key)) this.key(event);
    });
  }

  /** What to add to the address of an API, so that it answers of the moment that is shown. */
  query() {
    return this.run ? `?at=${this.at}` : "";
  }

  // --- the run ----------------------------------------------------------------------------------------------------

  /** Take the first state of the server: of a run, or not. It is played, unless the address names a moment. */
  meet(state) {
    if (!state.run) return;
    this.know(state.run);
    this.stand(state.atMs ?? 0);
    this.isPlaying = momentIn(location.hash) === null && this.at < this.run.toMs;
    this.anchor();
    this.tick();
    this.show();
  }

  /** A run, as the server tells of it; the bar is made for it. */
  know(told) {
    const run = { beganMs: 0, fromMs: 0, toMs: 0, speed: 1, marks: [], ...told };
    if (this.run && JSON.stringify(run) === JSON.stringify(this.run)) return;
    this.run = run;
    this.bar?.remove();
    this.draw();
  }

  stand(ms) {
    this.at = ms;
    stopAt(this.run.beganMs ? this.run.beganMs + ms : null);
  }

  /** Go to a moment, and on from there if it plays. */
  wind(ms) {
    this.wanted = Math.round(Math.min(Math.max(ms, this.run.fromMs), this.run.toMs));
    this.anchor(this.wanted);
    this.ask();
  }

  /** Ask for the moment that is wanted, then for the one that is wanted by then; one at a time. */
  async ask() {
    if (this.isAsking) return;
    this.isAsking = true;
    while (this.wanted !== null) {
      const at = this.wanted;
      this.wanted = null;
      if (at === this.at) continue;
      this.asked = at;
      const slow = setTimeout(() => this.isPlaying || this.page.tell("live", `going to ${span(at)}`), SLOW_MS);
      try {
        const after = encodeURIComponent(this.page.store.id);
        this.take(await this.page.connection.json(`api/state?at=${at}&after=${after}`));
      } catch (error) {
        this.page.tell("broken", `${error.message ?? error}; trying again`);
        await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
        this.wanted ??= at;
      }
      clearTimeout(slow);
      this.asked = null;
    }
    this.isAsking = false;
    this.show();
    this.stamp();
  }

  take(state) {
    if (state.run) this.know(state.run);
    else if (!state.after) return location.reload(); // it shows a cluster by now
    this.stand(state.atMs ?? 0);
    const { store } = this.page;
    this.page.warn(state.unread);
    this.page.apply(state.id, state.after ? state.changes : store.different(state.changes));
    this.show();
  }

  // --- playing ----------------------------------------------------------------------------------------------------

  play(isPlaying) {
    if (isPlaying && this.at >= this.run.toMs) this.wind(this.run.fromMs);
    else this.anchor();
    this.isPlaying = isPlaying;
    this.show();
    this.stamp(true);
  }

  /** From this moment on it is played. */
  anchor(at = this.at) {
    this.anchored = { at, since: performance.now() };
  }

  tick() {
    setTimeout(() => this.tick(), EVERY_MS);
    if (!this.isPlaying || this.isAsking) return;
    const { at, since } = this.anchored;
    const due = Math.round(at + (performance.now() - since) * this.speed());
    if (due >= this.run.toMs) this.isPlaying = false;
    this.wanted = Math.min(due, this.run.toMs);
    this.ask();
  }

  speed() {
    return Number(this.faster.value);
  }

  // --- the address ------------------------------------------------------------------------------------------------

  /** The address is another one: go to its moment; one without stays at this one. */
  route() {
    if (!this.run) return;
    const at = momentIn(location.hash);
    if (at === null) this.stamp(true);
    else if (at !== this.aim()) {
      this.isPlaying = false;
      this.wind(at);
    }
  }

  /** Put the moment into the address: others open it there. */
  stamp(isDue = !this.isPlaying) {
    if (!this.run || this.aim() !== this.at) return;
    if (!isDue && performance.now() - this.stamped < STAMP_MS) return;
    this.stamped = performance.now();
    // The address as it is now: a view that somebody has just gone to may not be drawn yet.
    const [path, text] = location.hash.replace(/^#\/?/, "").split("?");
    const query = new URLSearchParams(text ?? "");
    query.set("at", momentText(this.at));
    history.replaceState(null, "", `#/${path || "map"}?${query}`);
  }

  // --- the bar ----------------------------------------------------------------------------------------------------

  draw() {
    const { fromMs, toMs, marks } = this.run;
    const button = (name, label, act) => {
      const made = el("button", { type: "button", "aria-label": label, title: label }, name);
      made.addEventListener("click", act);
      return made;
    };
    this.toggle = button("", "Play", () => this.play(!this.isPlaying));
    this.slider = el("input", { type: "range", id: "moment", min: fromMs, max: toMs, step: "1", "aria-label": "Moment of the recorded run" });
    this.slider.addEventListener("input", () => this.wind(Number(this.slider.value)));
    const speeds = [...new Set([...SPEEDS, this.run.speed])].sort((a, b) => a - b);
    this.faster = el("select", { "aria-label": "Speed" }, speeds.map((speed) => el("option", { value: speed }, `${speed}×`)));
    this.faster.value = String(this.run.speed);
    this.faster.addEventListener("change", () => {
      this.anchor();
      this.show();
    });
    this.told = el("output", { class: "moment", for: "moment" });
    this.bar = el(
      "section",
      { class: "winding", id: "winding", "aria-label": "Recorded run" },
      button("« 10 s", "10 s back", () => this.wind(this.aim() - SKIP_MS)),
      this.toggle,
      button("10 s »", "10 s on", () => this.wind(this.aim() + SKIP_MS)),
      el("div", { class: "track" }, this.slider, ticks(marks, fromMs, toMs)),
      this.told,
      this.faster,
      marks.length ? this.list(marks) : null,
    );
    document.getElementById("banner").before(this.bar);
    this.bar.addEventListener("keydown", (event) => this.key(event));
  }

  /** What was warned of: a list of links, each to its moment. */
  list(marks) {
    const links = marks.map((mark) => {
      const times = mark.times > 1 ? `, ${many(mark.times, "time")}` : "";
      const said = `${span(mark.atMs ?? 0)} ${mark.reason ?? ""} ${mark.namespace ?? ""}/${mark.pod ?? ""}${times}`;
      const at = el("a", { href: this.page.with({ at: momentText(mark.atMs ?? 0) }) }, said);
      at.addEventListener("click", (event) => {
        if (event.ctrlKey || event.metaKey || event.shiftKey) return;
        event.preventDefault(); // of the view that is shown by then
        this.isPlaying = false;
        this.wind(mark.atMs ?? 0);
      });
      return el("li", {}, at);
    });
    return el("details", { class: "marks" }, el("summary", {}, many(marks.length, "warning")), el("ol", {}, links));
  }

  /** Where it goes, or stands. */
  aim() {
    return this.wanted ?? this.asked ?? this.at;
  }

  /** Keys as of players: within the bar, and where nothing else has a use for them. */
  key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
    const list = event.target.closest("details[open]");
    if (event.key === "Escape" && list) {
      list.open = false;
      list.querySelector("summary").focus();
      return;
    }
    const isButton = event.target.matches("button, summary, a, select");
    if (event.key === " " && !isButton) this.play(!this.isPlaying);
    else if (event.key in STEPS && !event.target.matches("select")) this.wind(this.aim() + STEPS[event.key]);
    else return;
    event.preventDefault();
  }

  show() {
    const { beganMs, toMs } = this.run;
    const when = beganMs ? new Date(beganMs + this.at).toLocaleString() : "";
    const place = `${span(this.at)} of ${span(toMs)}`;
    this.toggle.textContent = this.isPlaying ? "Pause" : "Play";
    this.toggle.setAttribute("aria-label", this.toggle.textContent);
    this.toggle.title = this.toggle.textContent;
    this.slider.value = String(this.aim()); // who draws it does not have it taken back by what comes late
    this.slider.setAttribute("aria-valuetext", when ? `${place}, ${when}` : place);
    this.told.replaceChildren(el("b", {}, place), when ? ` ${when}` : "");
    this.page.tell("live", this.isPlaying ? `played ${this.speed()}×` : `stopped at ${span(this.at)}`);
  }
}

/** Where something was warned of, to see; to hear and to reach it stands in the list. */
function ticks(marks, fromMs, toMs) {
  const made = el("div", { class: "ticks", "aria-hidden": "true" });
  for (const mark of marks) {
    const tick = el("i", {});
    tick.style.left = `${(100 * ((mark.atMs ?? 0) - fromMs)) / Math.max(1, toMs - fromMs)}%`;
    made.append(tick);
  }
  return made;
}

/** A time within a run: 83200 ms is "1:23.2". */
function span(ms) {
  const s = Math.floor(ms / 1000);
  const parts = [Math.floor(s / 3600), Math.floor(s / 60) % 60, s % 60];
  const [h, m, rest] = parts;
  const tail = `${String(rest).padStart(2, "0")}.${Math.floor(ms / 100) % 10}`;
  return h ? `${h}:${String(m).padStart(2, "0")}:${tail}` : `${m}:${tail}`;
}
