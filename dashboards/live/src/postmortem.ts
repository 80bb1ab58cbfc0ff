// What a failed request wanted, and what there was: kept as it was, with the map of that moment.
//
// The server keeps the report of a failure, and no map; the page freezes the one that it had nearest
// to that moment. One map a burst of failures: the first, as what follows is mostly its echo.

import { unixMs, type FailureReport, type PoolEvent, type Stats, type StatsAnswer } from './api.js';
import { element, keepRows, make, setText } from './dom.js';
import { mapJson, saveJson, saveTorch } from './download.js';
import type { MapData } from './map_data.js';
import { MapPanel } from './map_panel.js';
import { FAILURE_WINDOW_MS } from './status.js';
import { agoText, bytesText, clockText, countText, shareText, shortTimeText, words } from './text.js';

const BURST_MS = 10_000;

const REASON_TEXT: Record<string, string> = {
  size: 'it is larger than the limit allows at all',
  budget: 'the limit or the device was full, even with all pending work done',
  pending: 'memory that would have served it waited for work on streams',
  fragmented: 'enough was free, but no piece was long enough',
  cold: 'the pool could not grow',
  invalid: 'the request itself is not valid here',
  driver: 'a call of the driver failed, not for want of memory',
};
const RUNG_TEXT: Record<string, string> = {
  caches: 'empty the threads’ caches',
  events: 'look for completed work',
  other_streams: 'use what other streams freed',
  recycle: 'move empty pages',
  grow: 'get pages from the driver',
  trim: 'give empty memory back',
  wait: 'wait for pending work',
  callback: 'ask the program to free some',
};
const LIMIT_TEXT: Record<string, string> = {
  capacity_bytes: 'as configured, in bytes',
  capacity_fraction: 'as configured, a fraction of the device',
  device: 'the device has no more',
};

interface Frozen {
  report: FailureReport;
  atMs: number;
  map: MapData | null;
}

export function wantedText(report: FailureReport): string {
  const purpose = report.tag === '' ? '' : ` for ${report.tag}`;
  const stream = report.stream_id === 0 ? '' : ` on stream ${report.stream_id}`;
  return `Wanted ${bytesText(report.requested_bytes)}${purpose}${stream}; the largest request ` +
      `that would have worked was ${bytesText(report.largest_satisfiable_bytes)}. It failed as ` +
      `“${words(report.reason)}”: ${REASON_TEXT[report.reason] ?? words(report.reason)}.`;
}

export class PostMortem {
  noMapText = 'There is no map of that moment: this page was not open then.';
  private panel: MapPanel | null = null;
  private frozen: Frozen | null = null;
  private before: MapData | null = null;
  private answer: StatsAnswer | null = null;
  private events: readonly PoolEvent[] = [];

  constructor() {
    element('failure-json').addEventListener('click', () => this.saveJson());
    element('failure-torch').addEventListener('click', () => {
      if (this.frozen?.map) {
        saveTorch(this.frozen.map, this.answer?.device.ordinal ?? 0, this.events);
      }
    });
  }

  forget(): void {
    this.frozen = null;
    this.before = null;
    element('failure').hidden = true;
  }

  themeChanged(): void {
    this.panel?.themeChanged();
  }

  /** `map`: the one that the page has now, of before or after the failure. */
  note(answer: StatsAnswer, report: FailureReport, events: readonly PoolEvent[],
      map: MapData | null): void {
    this.answer = answer;
    this.events = events;
    if (!report.happened) return;
    const atMs = unixMs(answer.stats, report.time_ns);
    const isNew = this.frozen === null || Math.abs(atMs - this.frozen.atMs) > 1;
    const isBurst = this.frozen !== null && atMs - this.frozen.atMs < BURST_MS;
    if (isNew && !isBurst) {
      this.before = map;
      this.frozen = { report, atMs, map: null };
    }
    this.choose(map);
    this.show(answer.stats);
  }

  /** The nearer of the last map before and the first one after. */
  private choose(map: MapData | null): void {
    const frozen = this.frozen;
    if (frozen === null || frozen.map !== null || map === null || map.timeMs < frozen.atMs) return;
    const after = map.timeMs - frozen.atMs;
    const before = this.before !== null && this.before.timeMs <= frozen.atMs ?
      frozen.atMs - this.before.timeMs : Infinity;
    const nearest = before <= after ? this.before : map;
    this.before = null;
    if (Math.min(before, after) > BURST_MS || nearest === null) return;
    frozen.map = nearest;
    element('failure-map').replaceChildren();
    this.panel = new MapPanel(element('failure-map'), 'Memory map at the failure');
    this.panel.show(nearest);
    this.panel.markFits(frozen.report.requested_bytes);
  }

  private show(stats: Stats): void {
    const frozen = this.frozen;
    if (frozen === null) return;
    const { report } = frozen;
    const section = element('failure');
    const age = unixMs(stats, stats.time_ns) - frozen.atMs;
    if (section.hidden) {
      section.hidden = false;
      element<HTMLDetailsElement>('failure-details').open = age < FAILURE_WINDOW_MS;
    }
    setText('failure-when', `${clockText(frozen.atMs)}, ${agoText(age)}`);
    setText('failure-wanted', wantedText(report));
    this.showFacts(report);
    this.showTags(report);
    this.showMisses(report, stats);
    this.showRungs(report);
    const hasMap = frozen.map !== null;
    element('failure-map').hidden = !hasMap;
    element<HTMLButtonElement>('failure-torch').disabled = !hasMap;
    setText('failure-map-note', frozen.map === null ?
      this.noMapText :
      `The map is frozen ${shortTimeText(Math.abs(frozen.map.timeMs - frozen.atMs) * 1e6)} ` +
        `${frozen.map.timeMs < frozen.atMs ? 'before' : 'after'} the failure. Free pieces that ` +
        'would have been long enough are outlined.');
  }

  private showFacts(report: FailureReport): void {
    const facts: [string, string, string][] = [
      ['Wanted', bytesText(report.requested_bytes), report.tag === '' ? 'no tag' : report.tag],
      ['Largest free block', bytesText(report.largest_free_block_bytes), 'without the driver'],
      ['Limit in force', bytesText(report.limit_in_force_bytes),
        LIMIT_TEXT[report.limit_kind] ?? words(report.limit_kind)],
      ['Held', bytesText(report.held_bytes),
        shareText(report.held_bytes, report.limit_in_force_bytes) + ' of it'],
      ['Allocated', bytesText(report.live_requested_bytes),
        `and ${bytesText(report.waste_bytes)} rounding`],
      ['Cached', bytesText(report.cached_bytes), 'at hand of threads'],
      ['Pending', bytesText(report.pending_bytes), 'work still ran'],
      ['Free', bytesText(report.free_bytes), `device: ${bytesText(report.device_free_bytes)}`],
    ];
    keepRows(element('failure-facts'), facts, () =>
      make('div', {}, make('dt'), make('dd'), make('dd', { class: 'note' })), (row, fact) => {
      fact.forEach((text, i) => setText(row.children[i] ?? row, text));
    });
  }

  private showTags(report: FailureReport): void {
    const tags = Object.entries(report.live_by_tag).sort((a, b) => b[1] - a[1]).slice(0, 8);
    keepRows(element('failure-tags'), tags, () => make('tr', {}, make('th', { scope: 'row' }),
        make('td'), make('td')), (row, [name, bytes]) => {
      [name, bytesText(bytes), shareText(bytes, report.live_requested_bytes)]
        .forEach((text, i) => setText(row.children[i] ?? row, text));
    });
  }

  private showMisses(report: FailureReport, stats: Stats): void {
    keepRows(element('failure-misses'), report.last_misses.slice(0, 8), () =>
      make('tr', {}, make('td'), make('td'), make('td'), make('td')), (row, miss) => {
      [clockText(unixMs(stats, miss.time_ns)), bytesText(miss.bytes), words(miss.reason),
        miss.failed ? 'failed' : 'served'].forEach((text, i) => setText(row.children[i] ?? row, text));
    });
  }

  private showRungs(report: FailureReport): void {
    const rungs = Object.entries(report.rungs);
    keepRows(element('failure-rungs'), rungs, () => make('li', {}, make('b'), make('span')),
        (row, [name, rung]) => {
          row.classList.toggle('is-zero', !rung.was_tried);
          setText(row.children[0] ?? row, RUNG_TEXT[name] ?? words(name));
          setText(row.children[1] ?? row, !rung.was_tried ? 'not tried' :
            rung.gave_bytes > 0 ? `gave ${bytesText(rung.gave_bytes)}` : 'gave nothing');
        });
    const waited = report.waited_ns > 0 ? ` It waited ${shortTimeText(report.waited_ns)}.` : '';
    setText('failure-waited', `${countText(rungs.filter(([, rung]) => rung.was_tried).length)} of ` +
        `${rungs.length} steps were tried.${waited}`);
  }

  private saveJson(): void {
    if (this.frozen === null || this.answer === null) return;
    saveJson(this.answer.pool, this.frozen.atMs, {
      schema: 'gpupool.post_mortem', version: 1, process: this.answer.process,
      device: this.answer.device, pool: this.answer.pool, time_ms: Math.round(this.frozen.atMs),
      failure: this.frozen.report, map: this.frozen.map === null ? null : mapJson(this.frozen.map),
    });
  }
}
