// The header and the tiles: who this process is, and the eight numbers that are asked for first.

import type { Stats, StatsAnswer } from './api.js';
import { element, setAttribute, setText } from './dom.js';
import type { Rise, Seen } from './seen.js';
import { limitOf, memoryFailures, roomBytes, type State } from './status.js';
import { bytesText, countText, durationText, exactText, ratioText, rateText, shareText, sizeText }
  from './text.js';

/** A tile's value; the whole number is there for who points at it, and for scripts. */
function showValue(id: string, text: string, exact: number | string, note: string): void {
  const value = element(id);
  setText(value, text);
  setAttribute(value, 'data-exact', String(exact));
  if (typeof exact === 'number' && text.includes('iB')) setAttribute(value, 'title', exactText(exact));
  setText(`${id}-note`, note);
}

const spanText = (rise: Rise): string =>
  (rise.seconds >= 55 ? 'minute' : durationText(rise.seconds));

/** Of a recording, what the tiles count is counted from its start. */
function drawRatesFromStart(stats: Stats, requests: Rise): void {
  showValue('hit-ratio', requests.count > 0 ? ratioText(stats.hits / requests.count) : '–',
      requests.count > 0 ? stats.hits / requests.count : '',
      `of ${countText(requests.count)} requests since the start`);
  showValue('fallbacks', countText(stats.fallbacks), stats.fallbacks,
      'since the start, served outside the arena');
  const failures = memoryFailures(stats);
  setText('failures-note', failures === 0 ? 'none up to here' : 'up to here');
}

export function drawHeader(answer: StatsAnswer): void {
  const { process, device, stats } = answer;
  const facts: [string, string][] = [
    ['id-job', process.job_id === '' ? 'none' : process.job_id],
    ['id-rank', process.rank === undefined ? 'none' :
      `${process.rank}${process.world_size === undefined ? '' : ` of ${process.world_size}`}`],
    ['id-host', process.host],
    ['id-pid', String(process.pid)],
    ['id-device', `${device.ordinal}: ${device.name}`],
    ['id-driver', device.driver],
    ['id-uptime', durationText((stats.time_ns - stats.start_time_ns) / 1e9)],
    ['id-settings', process.settings_hash ?? '–'],
  ];
  for (const [id, text] of facts) setText(id, text);
  setText('pool-name', answer.pool);
  const limit = limitOf(stats);
  document.title = `${shareText(stats.held_bytes, limit)} held · gpupool ${answer.pool}` +
      (process.rank === undefined ? '' : ` · rank ${process.rank}`);
}

export function drawState(state: State): void {
  const light = element('state');
  light.dataset['level'] = state.level;
  setText('state-word', state.word);
  setText('state-reason', state.reason);
}

export function drawTiles(answer: StatsAnswer, seen: Seen): void {
  const { stats } = answer;
  const limit = limitOf(stats);
  showValue('allocated', bytesText(stats.live_requested_bytes), stats.live_requested_bytes,
      `${countText(stats.live_blocks)} blocks, peak ${bytesText(stats.peak_requested_bytes)}`);
  showValue('held', bytesText(stats.held_bytes), stats.held_bytes,
      `${shareText(stats.held_bytes, limit)} of ${bytesText(limit)}`);
  showValue('free', bytesText(stats.free_bytes), stats.free_bytes,
      `in the pool; ${bytesText(roomBytes(stats))} more up to the limit`);
  drawLargest(answer);
  showValue('fragmentation', ratioText(stats.fragmentation_ratio), stats.fragmentation_ratio,
      stats.threshold_fragmentation_ratio > 0 ?
        `alert above ${ratioText(stats.threshold_fragmentation_ratio)}` : 'no threshold is known');
  const failures = memoryFailures(stats);
  const recent = seen.rise('failures');
  showValue('failures', countText(failures), failures, stats.failures === 0 ? 'none since the start' :
    `${countText(recent.count)} failed in the last ${spanText(recent)}`);
  if (seen.isFromStart) drawRatesFromStart(stats, seen.rise('requests'));
  else drawRates(answer, seen);
  element('failures-tile').classList.toggle('is-bad', failures > 0);
  drawMeter(answer);
}

function drawRates(answer: StatsAnswer, seen: Seen): void {
  const { stats } = answer;
  const requests = seen.rise('requests');
  const hits = seen.rise('hits');
  const ratio = requests.count > 0 ? hits.count / requests.count : NaN;
  showValue('hit-ratio', Number.isNaN(ratio) ? '–' : ratioText(ratio),
      Number.isNaN(ratio) ? '' : ratio, requests.count > 0 ?
        `last ${spanText(requests)}, ${rateText(requests.count / Math.max(requests.seconds, 1))}/s` :
        `no request in the last ${spanText(requests)}`);
  const fallbacks = seen.rise('fallbacks');
  const perMinute = fallbacks.seconds > 0 ? fallbacks.count / fallbacks.seconds * 60 : 0;
  showValue('fallbacks', `${rateText(perMinute)}/min`, stats.fallbacks,
      `${countText(stats.fallbacks)} in all, served outside the arena`);
}

function drawLargest(answer: StatsAnswer): void {
  const { stats } = answer;
  const largest = stats.largest_satisfiable_bytes;
  const required = stats.threshold_required_block_bytes;
  showValue('largest', bytesText(largest), largest, required > 0 ?
    `${sizeText(required)} is required: ${largest >= required ? 'fits' : 'does not fit'}` :
    `${bytesText(stats.largest_free_block_bytes)} at once; none is required`);
  element('largest-tile').classList.toggle('is-bad', required > 0 && largest < required);
  // The bar ends where the larger of the two does.
  const scale = Math.max(required > 0 ? Math.max(largest, required) : limitOf(stats), 1);
  element('largest-fill').style.width = `${100 * largest / scale}%`;
  const mark = element('largest-mark');
  mark.hidden = required === 0;
  mark.style.left = `${Math.min(99.4, 100 * required / scale)}%`;
}

const PARTS: [string, 'live_requested_bytes' | 'waste_bytes' | 'cached_bytes' | 'pending_bytes' |
  'free_bytes'][] = [['live', 'live_requested_bytes'], ['waste', 'waste_bytes'],
  ['cached', 'cached_bytes'], ['pending', 'pending_bytes'], ['free', 'free_bytes']];

/** All that may be held, as one bar: the parts of what is, and what may still be got. */
function drawMeter(answer: StatsAnswer): void {
  const { stats } = answer;
  const limit = Math.max(limitOf(stats), stats.held_bytes, 1);
  const said: string[] = [];
  for (const [name, field] of PARTS) {
    const bytes = stats[field];
    element(`meter-${name}`).style.width = `${100 * bytes / limit}%`;
    setText(`meter-${name}-text`, `${bytesText(bytes)}, ${shareText(bytes, limit)}`);
    said.push(`${name} ${bytesText(bytes)}`);
  }
  setText('meter-room-text',
      `${bytesText(limit - stats.held_bytes)}, ${shareText(limit - stats.held_bytes, limit)}`);
  setAttribute(element('meter'), 'aria-label', `Of ${bytesText(limit)}: ${said.join(', ')}`);
  setText('meter-scale', stats.limit_in_force_bytes < stats.limit_bytes ?
    `limit ${bytesText(stats.limit_bytes)}, ${bytesText(limit)} in force: others hold the rest` :
    `the bar is the limit, ${bytesText(limit)}`);
}
