// Which colour stands for whom. Eight that can be told apart with any sight, then the same with stripes, then with dots.
// Who has a colour keeps it as long as the page is open.

const COLOURS = 8;
const PATTERNS = ["", " striped", " dotted"];

export class Colours {
  constructor() {
    this.slots = new Map();
  }

  /** Give those their colours who have none, in the order of their names. */
  meet(names) {
    for (const name of [...names].sort()) if (!this.slots.has(name)) this.slots.set(name, this.slots.size);
  }

  /** The classes of a name's colour. */
  of(name) {
    const slot = this.slots.get(name);
    if (slot === undefined) return "colour-none";
    return `colour-${slot % COLOURS}${PATTERNS[Math.floor(slot / COLOURS) % PATTERNS.length]}`;
  }
}
