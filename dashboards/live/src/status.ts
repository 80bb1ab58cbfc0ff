// The state light: one word, and the rule that set it with its numbers. The rules are those of the
// alerts (configs/prometheus/rules), without their waiting times: the page shows what is so now.

import { nowMs, unixMs, type FailureReport, type Stats } from './api.js';
import { agoText, bytesText, countText, ratioText, sizeText, words } from './text.js';

export type Level = 'ok' | 'fragmented' | 'risk' | 'memory' | 'stale' | 'unknown';

export interface State {
  level: Level;
  word: string;
  reason: string;
}

/** For how long a failure sets the light, as GpupoolOutOfMemory does. */
export const FAILURE_WINDOW_MS = 10 * 60 * 1000;
const NO_MEMORY = ['size', 'budget', 'pending', 'fragmented', 'cold'];

/** Failures for want of memory; `invalid` and `driver` are faults of another kind. */
export const memoryFailures = (stats: Stats): number =>
  NO_MEMORY.reduce((sum, reason) => sum + (stats.failures_by_reason[reason] ?? 0), 0);

/** What the program may still be given, in pieces of whatever size. */
export const roomBytes = (stats: Stats): number =>
  Math.max(0, limitOf(stats) - stats.held_bytes);
export const limitOf = (stats: Stats): number => stats.limit_in_force_bytes || stats.limit_bytes;

function outOfMemory(stats: Stats, failure: FailureReport | null): State | null {
  if (failure === null || !failure.happened || !NO_MEMORY.includes(failure.reason)) return null;
  const age = nowMs(stats) - unixMs(stats, failure.time_ns);
  if (age > FAILURE_WINDOW_MS) return null;
  const purpose = failure.tag === '' ? '' : ` for ${failure.tag}`;
  return {
    level: 'memory',
    word: 'out of memory',
    reason: `${agoText(age)} a request of ${bytesText(failure.requested_bytes)}${purpose} failed ` +
        `(${words(failure.reason)}): ${bytesText(failure.largest_satisfiable_bytes)} was the ` +
        `largest that would have worked. ${countText(memoryFailures(stats))} failed in all`,
  };
}

function atRisk(stats: Stats): State | null {
  const risk = (reason: string): State => ({ level: 'risk', word: 'at risk', reason });
  const required = stats.threshold_required_block_bytes;
  if (required > 0 && stats.largest_satisfiable_bytes < required) {
    return risk(`the next request of ${sizeText(required)}, which this process requires, would ` +
        `fail: the largest that fits is ${bytesText(stats.largest_satisfiable_bytes)}`);
  }
  const limit = limitOf(stats);
  if (limit < stats.window_peak_requested_bytes) {
    return risk(`the peak of the last minute, ${bytesText(stats.window_peak_requested_bytes)}, ` +
        `no longer fits into ${bytesText(limit)}: others on the device took the rest`);
  }
  if (stats.device_total_bytes > 0 && stats.limit_bytes > 0 && limit / stats.limit_bytes < 0.9 &&
      stats.device_free_bytes / stats.device_total_bytes < 0.03) {
    return risk(`the device has ${bytesText(stats.device_free_bytes)} free, under 3 % of ` +
        `${bytesText(stats.device_total_bytes)}, and the pool may hold ${bytesText(limit)} of its ` +
        `${bytesText(stats.limit_bytes)}`);
  }
  const critical = stats.threshold_critical_fragmentation_ratio;
  if (critical > 0 && stats.fragmentation_ratio > critical) {
    return risk(`fragmentation is ${ratioText(stats.fragmentation_ratio)}, above the critical ` +
        `${ratioText(critical)}: of what is left, ` +
        `${bytesText(stats.largest_satisfiable_bytes)} is the largest piece`);
  }
  return null;
}

function fragmented(stats: Stats): State | null {
  const threshold = stats.threshold_fragmentation_ratio;
  if (threshold <= 0 || stats.fragmentation_ratio <= threshold) return null;
  return {
    level: 'fragmented',
    word: 'fragmented',
    reason: `fragmentation is ${ratioText(stats.fragmentation_ratio)}, above ` +
        `${ratioText(threshold)}: the largest request that fits is ` +
        bytesText(stats.largest_satisfiable_bytes),
  };
}

function fine(stats: Stats): State {
  if (stats.requests === 0) {
    return { level: 'ok', word: 'ok', reason: 'empty: nothing was ever requested of this pool' };
  }
  const required = stats.threshold_required_block_bytes;
  const needed = required > 0 ? `, and ${sizeText(required)} is required` : '';
  return {
    level: 'ok',
    word: 'ok',
    reason: `requests of up to ${bytesText(stats.largest_satisfiable_bytes)} fit${needed}; ` +
        `fragmentation ${ratioText(stats.fragmentation_ratio)}`,
  };
}

export function stateOf(stats: Stats, failure: FailureReport | null): State {
  return outOfMemory(stats, failure) ?? atRisk(stats) ?? fragmented(stats) ?? fine(stats);
}
