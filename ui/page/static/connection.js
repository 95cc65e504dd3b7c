// The way to the server: the whole state once, then its changes as server-sent events. They are read by fetch, since
// EventSource can show no token. A connection that breaks is taken up again where it was; one that says nothing is
// broken, too. A token is kept in memory alone: who loads the page anew shows it again.

const SILENT_AFTER_MS = 20_000;
const WAITS_MS = [300, 1000, 2000, 5000, 10_000];

export class Connection {
  /** `on` has the functions query, state, changes, health, live, signIn and trouble. */
  constructor(on) {
    this.on = on;
    this.token = "";
    this.failures = 0;
  }

  /** Go on for ever; of a recorded run, until its first state is there. */
  async run() {
    for (;;) {
      try {
        const state = await this.json(`api/state${this.on.query()}`);
        this.on.state(state);
        if (state.run) return; // who looks at a recorded run asks for its moments (winding.js)
        await this.follow(state.id);
      } catch (error) {
        this.on.trouble(String(error.message ?? error));
      }
      await this.pause();
    }
  }

  /** Ask for JSON; throws what the server says against it. */
  async json(path) {
    const answer = await fetch(path, { headers: this.headers(), cache: "no-store" });
    if (answer.status === 401) await this.signIn();
    const body = await answer.json();
    if (!answer.ok) throw new Error(body.error ?? `HTTP ${answer.status}`);
    return body;
  }

  headers() {
    return this.token ? { Authorization: `Bearer ${this.token}` } : {};
  }

  async signIn() {
    this.token = await this.on.signIn(Boolean(this.token));
    this.failures = 0;
    throw new Error("signing in");
  }

  /** Read changes, over as many connections as it takes, until the server wants the whole to be read anew. */
  async follow(known) {
    let at = known;
    for (;;) {
      try {
        for await (const event of this.stream(at)) {
          this.failures = 0;
          if (event.name === "reset") return;
          if (event.name === "changes") {
            at = event.id;
            this.on.changes(event.id, JSON.parse(event.data));
          } else if (event.name === "health") this.on.health(JSON.parse(event.data));
        }
        this.on.trouble("the connection was closed");
      } catch (error) {
        if (error instanceof Refused) throw error;
        this.on.trouble("the connection is lost");
      }
      await this.pause();
    }
  }

  async *stream(after) {
    const stop = new AbortController();
    let timer = 0;
    const heard = () => {
      clearTimeout(timer);
      timer = setTimeout(() => stop.abort(), SILENT_AFTER_MS);
    };
    heard();
    try {
      const path = `api/changes?after=${encodeURIComponent(after)}`;
      const answer = await fetch(path, { headers: this.headers(), cache: "no-store", signal: stop.signal });
      if (answer.status === 401) throw new Refused("signing in");
      if (!answer.ok) throw new Refused((await answer.json()).error);
      this.on.live();
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return;
        heard();
        const pieces = (rest + value).split("\n\n");
        rest = pieces.pop();
        for (const piece of pieces) yield parsed(piece);
      }
    } finally {
      clearTimeout(timer);
      stop.abort();
    }
  }

  pause() {
    const wait = WAITS_MS[Math.min(this.failures, WAITS_MS.length - 1)];
    this.failures += 1;
    return new Promise((resolve) => setTimeout(resolve, wait));
  }
}

class Refused extends Error {}

function parsed(piece) {
  const event = { name: "message", id: "", data: "" };
  for (const line of piece.split("\n")) {
    const colon = line.indexOf(": ");
    const value = line.slice(colon + 2);
    if (line.startsWith("event: ")) event.name = value;
    else if (line.startsWith("id: ")) event.id = value;
    else if (line.startsWith("data: ")) event.data += value;
  }
  return event;
}
