// The slow path's events, the newest first; what is alike and follows each other is one line.

import { ask, NotServed, path, type EventsAnswer, type PoolEvent, type PoolName, type Stats }
  from './api.js';
import { element, keepRows, make, setAttribute, setText } from './dom.js';
import { agoText, bytesText, clockText, countText, readSize, shortTimeText, words } from './text.js';

const MAX_KEPT = 4096;
const MAX_LINES = 120;

const KIND_TEXT: Record<string, string> = {
  driver_call: 'driver call',
  growth: 'growth',
  miss: 'miss',
  failure: 'failure',
  fallback: 'fallback',
  trim: 'trim',
  cache_drain: 'caches emptied',
  epoch_closed: 'epoch closed',
  reconfigured: 'settings changed',
  misuse: 'misuse',
};
// Many, and seldom what is looked for.
const HIDDEN_AT_FIRST = ['epoch_closed', 'cache_drain'];
const CAUSES = ['miss', 'failure', 'fallback', 'trim', 'growth'];
const MISS_TEXT: Record<string, string> = {
  size: 'it was larger than the limit',
  budget: 'the limit or the device was full',
  pending: 'work on streams still ran',
  fragmented: 'free pieces were too short',
  cold: 'the pool had to grow',
};

export interface DriverCall {
  event: PoolEvent;
  why: string;
}

interface Line {
  event: PoolEvent;
  count: number;
  bytes: number;
  durationNs: number;
}

export class EventList {
  events: PoolEvent[] = [];
  missing = '';
  private pool: PoolName | null = null;
  private readonly hidden = new Set<string>(HIDDEN_AT_FIRST);
  private minBytes = 0;
  private text = '';
  private isPaused = false;
  private isDrawn = false;
  private last = 0;

  constructor() {
    for (const [kind, text] of Object.entries(KIND_TEXT)) {
      const button = make('button', { type: 'button',
        'aria-pressed': String(!this.hidden.has(kind)), 'data-kind': kind }, text);
      button.addEventListener('click', () => {
        if (!this.hidden.delete(kind)) this.hidden.add(kind);
        setAttribute(button, 'aria-pressed', String(!this.hidden.has(kind)));
        this.draw();
      });
      element('events-kinds').append(button);
    }
    element<HTMLInputElement>('events-bytes').addEventListener('input', (event) => {
      const bytes = readSize((event.target as HTMLInputElement).value);
      this.minBytes = bytes > 0 ? bytes : 0;
      this.draw();
    });
    element<HTMLInputElement>('events-text').addEventListener('input', (event) => {
      this.text = (event.target as HTMLInputElement).value.trim().toLowerCase();
      this.draw();
    });
    const pause = element<HTMLButtonElement>('events-pause');
    pause.addEventListener('click', () => {
      this.isPaused = !this.isPaused;
      setAttribute(pause, 'aria-pressed', String(this.isPaused));
      setText(pause, this.isPaused ? 'Go on' : 'Hold still');
      this.draw();
    });
  }

  choose(pool: PoolName | null): void {
    this.pool = pool;
    this.forget();
  }

  forget(): void {
    this.events = [];
    this.last = 0;
    this.missing = '';
    this.isDrawn = false;
  }

  async update(): Promise<void> {
    try {
      const answer = await ask<EventsAnswer>(path('events', this.pool, { since: this.last }));
      this.events.push(...answer.events.filter((event) => event.number > this.last));
      this.last = answer.last;
      if (this.events.length > MAX_KEPT) this.events.splice(0, this.events.length - MAX_KEPT);
      if (!this.isPaused && (answer.events.length > 0 || !this.isDrawn)) this.draw();
    } catch (error) {
      if (!(error instanceof NotServed)) throw error;
      this.missing = error.message;
      this.draw();
    }
  }

  /** The last call of the driver, and what it was for: what the pool noted right after it. */
  lastDriverCall(): DriverCall | null {
    let at = this.events.length - 1;
    while (at >= 0 && this.events[at]?.kind !== 'driver_call') at -= 1;
    const event = this.events[at];
    if (event === undefined) return null;
    const cause = this.events.slice(at + 1).find((next) =>
      CAUSES.includes(next.kind) && next.time_ms - event.time_ms <= 50 && next.kind !== 'growth') ??
      this.events.slice(Math.max(0, at - 8), at).reverse().find((before) =>
        CAUSES.includes(before.kind) && event.time_ms - before.time_ms <= 50);
    return { event, why: cause === undefined ? 'in the pool’s upkeep' : causeText(cause) };
  }

  /** "map, 2 MiB, 3 s ago: for a request of 40 MiB that ..." */
  showLastDriverCall(stats: Stats, nowMs: number): void {
    const call = this.lastDriverCall();
    if (call !== null) {
      const { event } = call;
      setText('driver-last', `Last driver call: ${words(event.operation ?? '')} of ` +
          `${bytesText(event.bytes)}, ${agoText(nowMs - event.time_ms)}, ${call.why}.`);
      return;
    }
    setText('driver-last', stats.driver_calls === 0 ? 'No driver call was ever made.' :
      `${countText(stats.driver_calls)} driver calls in all; when the last one was is not kept` +
        `${this.missing === '' ? ' any more' : ''}.`);
  }

  private lines(): Line[] {
    const lines: Line[] = [];
    for (let i = this.events.length - 1; i >= 0 && lines.length < MAX_LINES; i -= 1) {
      const event = this.events[i];
      if (event === undefined || !this.isShown(event)) continue;
      const line = lines.at(-1);
      if (line !== undefined && isAlike(line.event, event)) {
        line.count += 1;
        line.bytes += event.bytes;
        line.durationNs += event.duration_ns ?? 0;
      } else {
        lines.push({ event, count: 1, bytes: event.bytes, durationNs: event.duration_ns ?? 0 });
      }
    }
    return lines;
  }

  private isShown(event: PoolEvent): boolean {
    if (this.hidden.has(event.kind) || event.bytes < this.minBytes) return false;
    return this.text === '' || whatText(event).toLowerCase().includes(this.text);
  }

  draw(): void {
    this.isDrawn = true;
    const lines = this.lines();
    element('events-table').hidden = lines.length === 0;
    const empty = element('events-empty');
    empty.hidden = lines.length > 0;
    setText(empty, this.missing !== '' ? `No events: ${this.missing}.` : this.events.length === 0 ?
      'No event yet: the driver was not called, and every request was a hit.' :
      'No event passes the filters.');
    keepRows(element('events'), lines, () => make('tr', {}, make('td'), make('td', {}, make('b')),
        make('td'), make('td'), make('td'), make('td')), (row, line) => {
      const [time, kind, what, bytes, took, stream] = row.children as unknown as HTMLElement[];
      if (time === undefined || kind === undefined || what === undefined || bytes === undefined ||
          took === undefined || stream === undefined) {
        return;
      }
      row.dataset['kind'] = line.event.kind;
      setText(time, clockText(line.event.time_ms));
      setText(kind.firstElementChild ?? kind,
          (KIND_TEXT[line.event.kind] ?? line.event.kind) + (line.count > 1 ? ` × ${line.count}` : ''));
      setText(what, whatText(line.event));
      setText(bytes, line.bytes > 0 ? bytesText(line.bytes) : '');
      setText(took, line.durationNs > 0 ? shortTimeText(line.durationNs) : '');
      setText(stream, line.event.stream === undefined ? '' : `stream ${line.event.stream}`);
    });
  }
}

const isAlike = (a: PoolEvent, b: PoolEvent): boolean =>
  a.kind === b.kind && a.operation === b.operation && a.reason === b.reason &&
  a.misuse === b.misuse && a.error === b.error && a.failure === undefined &&
  b.failure === undefined && Math.abs(a.time_ms - b.time_ms) < 1000;

function causeText(cause: PoolEvent): string {
  const size = bytesText(cause.bytes);
  switch (cause.kind) {
    case 'miss':
      return `for a request of ${size}: ${MISS_TEXT[cause.reason ?? ''] ?? words(cause.reason ?? '')}`;
    case 'failure':
      return `for a request of ${size} that failed: ` +
          (MISS_TEXT[cause.reason ?? ''] ?? words(cause.reason ?? ''));
    case 'fallback':
      return `for a block of ${size} of its own (${words(cause.reason ?? '')})`;
    case 'trim':
      return `to give ${size} back (${words(cause.reason ?? '')})`;
    default:
      return `to grow by ${size}`;
  }
}

function whatText(event: PoolEvent): string {
  const parts = [];
  if (event.operation !== undefined) parts.push(words(event.operation));
  if (event.reason !== undefined) parts.push(words(event.reason));
  if (event.misuse !== undefined) parts.push(words(event.misuse));
  if (event.error !== undefined) parts.push(`failed: ${words(event.error)}`);
  if (event.failure !== undefined && event.failure.tag !== '') parts.push(`for ${event.failure.tag}`);
  return parts.join(', ') || (KIND_TEXT[event.kind] ?? event.kind);
}
