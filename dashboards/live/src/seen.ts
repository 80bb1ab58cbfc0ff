// What the page has seen of one pool since it was opened: a minute of every number, and a quarter
// of an hour of each tag, of which the server keeps no past.

import { nowMs, type Stats } from './api.js';

const WINDOW_MS = 60_000;
const MAX_TAG_SAMPLES = 900;

export interface Rise {
  count: number;
  seconds: number;
}

/** Of one tag: live bytes at each poll, the oldest first. */
export interface TagPast {
  bytes: number[];
  peak: number;
}

type Counter = 'requests' | 'hits' | 'failures' | 'fallbacks' | 'driver_calls' | 'driver_wait_ns' |
  'pages_recycled';

export class Seen {
  isFromStart = false;
  private polls: { at: number; stats: Stats }[] = [];
  readonly tagTimes: number[] = [];
  readonly tags = new Map<string, TagPast>();

  /** A pool that started anew counts from 0 again: what was seen before is no base. */
  add(stats: Stats): void {
    const before = this.polls.at(-1)?.stats;
    if (before !== undefined && before.start_unix_ns !== stats.start_unix_ns) this.clear();
    const at = nowMs(stats);
    this.polls.push({ at, stats });
    while (this.polls.length > 2 && at - (this.polls[0]?.at ?? at) > WINDOW_MS) this.polls.shift();
    this.addTags(at, stats);
  }

  /** Of a recording: all that came before is one rise, from an empty pool. */
  beFromStart(stats: Stats): void {
    this.clear();
    this.isFromStart = true;
    this.polls = [{ at: 0, stats: { ...stats, requests: 0, hits: 0, failures: 0, fallbacks: 0,
      driver_calls: 0, driver_wait_ns: 0, pages_recycled: 0 } }, { at: nowMs(stats), stats }];
    this.addTags(nowMs(stats), stats);
  }

  clear(): void {
    this.polls = [];
    this.tagTimes.length = 0;
    this.tags.clear();
  }

  /** By how much a counter rose in the last minute, or in what was seen of it. */
  rise(name: Counter): Rise {
    const first = this.polls[0];
    const last = this.polls.at(-1);
    if (first === undefined || last === undefined) return { count: 0, seconds: 0 };
    return {
      count: last.stats[name] - first.stats[name],
      seconds: (last.at - first.at) / 1000,
    };
  }

  private addTags(at: number, stats: Stats): void {
    this.tagTimes.push(at);
    if (this.tagTimes.length > MAX_TAG_SAMPLES) this.tagTimes.shift();
    for (const [name, bytes] of Object.entries(withUntagged(stats))) {
      const past = this.tags.get(name) ?? { bytes: [], peak: 0 };
      this.tags.set(name, past);
      past.bytes.push(bytes);
      past.peak = Math.max(past.peak, bytes);
      if (past.bytes.length > MAX_TAG_SAMPLES) past.bytes.shift();
    }
  }
}

/** Live bytes by tag, and what has none. */
export function withUntagged(stats: Stats): Record<string, number> {
  const tagged = Object.values(stats.tag_live_bytes).reduce((sum, bytes) => sum + bytes, 0);
  return {
    ...stats.tag_live_bytes,
    untagged: Math.max(0, stats.live_requested_bytes - tagged),
  };
}
