// What time it is for what is shown: now, or the moment of a recorded run that somebody looks at.

let shown = null;

export const now = () => shown ?? Date.now();

/** From here on it is this time (ms since the epoch); null: the clock of today. */
export function stopAt(ms) {
  shown = ms;
}
