// Which tag looks like a leak, and why. A training step allocates and frees; what matters is the
// lowest level between: a tag whose lowest level rises from part to part of what was seen keeps
// what it is given.
//
// Suspected: in each of PARTS equal parts the lowest level is higher than in the one before, by at
// least MIN_STEP_SHARE of the tag's bytes, and in sum by MIN_RISE_BYTES.

import type { TagPast } from './seen.js';

const PARTS = 4;
export const MIN_SECONDS = 4;
const MIN_RISE_BYTES = 1 << 20;
const MIN_STEP_SHARE = 0.002;

export interface Suspect {
  name: string;
  risenBytes: number;
  bytesPerMinute: number;
  seconds: number;
}

/** How a tag moved: its lowest levels, the oldest first. */
export function lowestLevels(bytes: readonly number[]): number[] {
  const levels: number[] = [];
  for (let part = 0; part < PARTS; part += 1) {
    const from = Math.floor(part * bytes.length / PARTS);
    const to = Math.floor((part + 1) * bytes.length / PARTS);
    levels.push(Math.min(...bytes.slice(from, to)));
  }
  return levels;
}

function suspectOf(name: string, past: TagPast, seconds: number): Suspect | null {
  if (past.bytes.length < 2 * PARTS || seconds < MIN_SECONDS) return null;
  const levels = lowestLevels(past.bytes);
  const step = MIN_STEP_SHARE * Math.max(...past.bytes);
  for (let i = 1; i < levels.length; i += 1) {
    if ((levels[i] ?? 0) <= (levels[i - 1] ?? 0) + step) return null;
  }
  const risenBytes = (levels.at(-1) ?? 0) - (levels[0] ?? 0);
  if (risenBytes < MIN_RISE_BYTES) return null;
  // From the middle of the first part to that of the last.
  const minutes = seconds * (PARTS - 1) / PARTS / 60;
  return { name, risenBytes, bytesPerMinute: risenBytes / minutes, seconds };
}

/** The one that rises fastest, if any does. */
export function findSuspect(tags: ReadonlyMap<string, TagPast>, seconds: number): Suspect | null {
  let worst: Suspect | null = null;
  for (const [name, past] of tags) {
    const suspect = suspectOf(name, past, seconds);
    if (suspect !== null && (worst === null || suspect.bytesPerMinute > worst.bytesPerMinute)) {
      worst = suspect;
    }
  }
  return worst;
}
