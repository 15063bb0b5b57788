// Follows the activity of the server: live by its stream, longer windows by asking again.

import { get, stream } from './api.js';
import { ActivityWindow } from './series.js';

export const WINDOWS = [
  { name: '5m', label: '5 min live', points: 300, isLive: true },
  { name: '1h', label: '1 h', points: 60 },
  { name: '24h', label: '24 h', points: 1_440 },
];

const AGAIN = 15_000;
const MOST_PATIENCE = 10_000;

/**
 * Calls `onChange(window)` with each new state and `onState(text)` with `live`, `paused`, `off` or what is wrong. Begins
 * with the window `first`. Returns `choose(window)`, `pause()` and `stop()`.
 */
export function followActivity(onChange, onState, first = WINDOWS[0]) {
  let chosen = first;
  let stopping = new AbortController();
  let isPaused = false;

  async function run() {
    stopping.abort();
    stopping = new AbortController();
    const { signal } = stopping;
    const series = new ActivityWindow(chosen.points);
    let patience = 1_000;
    while (!signal.aborted) {
      try {
        series.absorb(await get(`activity?window=${chosen.name}`, { signal }));
        if (signal.aborted) return;
        onChange(series);
        onState(isPaused ? 'paused' : chosen.isLive ? 'live' : '');
        patience = 1_000;
        if (isPaused) return;
        if (chosen.isLive) {
          // Only the newest points: the rest is known.
          await stream('activity/stream?window=1m', (event) => { if (!signal.aborted) { series.absorb(event); onChange(series); } }, signal);
        } else {
          await pause(AGAIN, signal);
        }
      } catch (error) {
        if (signal.aborted) return;
        if (error.status === 404) return onState('off');
        onState(error.message);
      }
      await pause(patience, signal);
      patience = Math.min(2 * patience, MOST_PATIENCE);
    }
  }

  run();
  return {
    choose(next) { chosen = next; isPaused = false; run(); },
    chosen: () => chosen,
    toggle() {
      isPaused = !isPaused;
      if (isPaused) { stopping.abort(); onState('paused'); } else run();
    },
    isPaused: () => isPaused,
    stop: () => stopping.abort(),
  };
}

function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener('abort', () => { clearTimeout(timer); resolve(); }, { once: true });
  });
}
