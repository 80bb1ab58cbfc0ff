// What is recorded rather than alive: nothing is asked but when somebody goes to another place. One
// answer is waited for at a time; where the slider has moved on meanwhile, the next one is of where
// it is then.

import { ask, askRecording, setPlace, type HistoryAnswer, type Marks, type RecordingInfo,
  type ReplayInfo, type SnapshotInfo, type StatsAnswer } from './api.js';
import type { Charts, Place } from './charts.js';
import { announce, element, make, setAttribute, setText } from './dom.js';
import { Past } from './past.js';
import { bytesText, countText, elapsedText, ratioText, setClock } from './text.js';

const PLAY_TICK_MS = 100;
const RETRY_MS = 2000;
const NAME_MS = 400;
const PAGES = 100;
const MAX_MARKS = 200;

interface Jump {
  text: string;
  /** Where to, from where it is; null: nowhere. */
  to: (from: number) => number | null;
  button: HTMLButtonElement;
}

/** Shows what there is at the place that api.ts was told, and gives its time. */
export type Refresh = () => Promise<number>;

const valueText = (info: ReplayInfo, value: number): string =>
  (info.measure === 'fragmentation_ratio' ? ratioText(value) : bytesText(value));

function birthText(info: ReplayInfo): string {
  const { birth } = info;
  if (birth === undefined) return 'Fragmentation never rose in this job.';
  const what = info.measure === 'fragmentation_ratio' ? 'fragmentation' :
    'what was free in pieces beside the largest one';
  const grows = info.measure === 'fragmentation_ratio' ? '' :
    'The pool could always grow or move pages. ';
  return `${grows}On its way to the worst, ${what} rose most from operation ${countText(birth.from_operation)} on: from ` +
      `${valueText(info, birth.from)} to ${valueText(info, birth.value)} at operation ` +
      `${countText(birth.operation)}${info.has_time ? ` (${elapsedText(birth.time_ms)})` : ''}.`;
}

function showFacts(facts: [string, string][]): void {
  element('recorded-facts').replaceChildren(...facts.map(([name, value]) =>
    make('div', {}, make('dt', {}, name), make('dd', {}, value))));
}

export class Replay {
  private place = -1;
  private placeMs = 0;
  private wanted = 0;
  private isAsking = false;
  private playing = 0;
  private naming = 0;
  private playedFrom = 0;
  private playedAt = 0;
  private past = new Past(null, '1s');
  private readonly jumps: Jump[] = [];
  private readonly slider = element<HTMLInputElement>('place-slider');
  private readonly play = element<HTMLButtonElement>('place-play');

  constructor(private readonly info: ReplayInfo, private readonly charts: Charts,
      private readonly refresh: Refresh, private readonly fail: (reason: string) => void) {
    this.slider.max = String(info.operations);
    setClock(info.has_time ? elapsedText : () => '–');
    setText('place-birth', birthText(info));
    this.drawMarks();
    this.addJumps();
    this.listen();
  }

  /** From the place that the address names, else from the end of the job. */
  async start(): Promise<void> {
    const history = await ask<HistoryAnswer>('/api/v1/history');
    const operations = history.columns['operation'] ?? [];
    this.past = Past.recorded(history, this.info.has_time ? history.time_ms :
      operations.map((operation) => operation * 1000));
    this.charts.beRecorded(this.info.has_time ? (ms) => this.axisText(ms) :
      (ms) => countText(ms / 1000));
    this.charts.onChoose = (row) => this.go(this.past.operations[row] ?? 0);
    this.charts.showPlace(this.chartPlace(this.info.operations));
    this.charts.show(this.past);
    const named = Number(new URLSearchParams(location.hash.slice(1)).get('at') ?? NaN);
    this.go(Number.isInteger(named) ? named : this.info.operations);
  }

  go(operation: number): void {
    this.wanted = Math.min(Math.max(operation, 0), this.info.operations);
    this.slider.value = String(this.wanted);
    this.showPlace();
    void this.follow();
  }

  private axisText(ms: number): string {
    return ms < 60_000 ? `${Number((ms / 1000).toFixed(2))} s` : elapsedText(ms);
  }

  private chartPlace(operation: number): Place {
    const marks: Place['marks'] = [];
    const { birth } = this.info;
    if (birth !== undefined) {
      marks.push({ at: this.info.has_time ? birth.time_ms : birth.operation * 1000, letter: '◆',
        name: 'fragmentation was born', colour: '--warn' });
    }
    return { row: this.past.rowOf(operation), marks };
  }

  private async follow(): Promise<void> {
    if (this.isAsking) return;
    this.isAsking = true;
    while (this.place !== this.wanted) {
      const place = this.wanted;
      setPlace(place);
      try {
        this.placeMs = await this.refresh();
        this.place = place;
        this.showPlace();
        this.nameLater();
      } catch (error) {
        this.pause();
        this.fail(error instanceof Error ? error.message : String(error));
        await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
      }
    }
    this.isAsking = false;
  }

  /** The address names the place, once it rests: a browser takes few changes of it at a time. */
  private nameLater(): void {
    clearTimeout(this.naming);
    this.naming = window.setTimeout(() =>
      history.replaceState(null, '', `#at=${this.place}`), NAME_MS);
  }

  private timeText(operation: number): string {
    if (!this.info.has_time) return '';
    if (operation === this.place) return ` · ${elapsedText(this.placeMs)}`;
    const row = this.past.rowOf(operation);
    return ` · about ${elapsedText(this.past.timesMs[row] ?? 0)}`;
  }

  private showPlace(): void {
    const text = `operation ${countText(this.wanted)} of ${countText(this.info.operations)}` +
        this.timeText(this.wanted);
    setText('place-text', text);
    setAttribute(this.slider, 'aria-valuetext', text);
    this.charts.showPlace(this.chartPlace(this.wanted));
    for (const jump of this.jumps) jump.button.disabled = jump.to(this.wanted) === null;
  }

  // --- marks and jumps --------------------------------------------------------------------------

  private drawMarks(): void {
    const { info } = this;
    const marks: [number, string, string][] = [];
    const few = (all: Marks): Marks['first'] => all.first.slice(0, MAX_MARKS);
    for (const mark of few(info.fallbacks)) marks.push([mark.operation, '|', 'mark-fallback']);
    for (const mark of few(info.failures)) marks.push([mark.operation, '■', 'mark-failure']);
    marks.push([info.peak_held.operation, '●', 'mark-peak']);
    if (info.worst !== undefined) marks.push([info.worst.operation, '▲', 'mark-worst']);
    if (info.birth !== undefined) marks.push([info.birth.operation, '◆', 'mark-birth']);
    element('place-marks').replaceChildren(...marks.map(([operation, text, kind]) => {
      const mark = make('i', { class: kind }, text);
      mark.style.left = `${100 * operation / Math.max(info.operations, 1)}%`;
      return mark;
    }));
  }

  private addJumps(): void {
    const { info } = this;
    const fixed = (operation: number) => (): number => operation;
    this.addJump('Start', fixed(0));
    if (info.birth !== undefined) this.addJump('Where it was born ◆', fixed(info.birth.operation));
    if (info.worst !== undefined) {
      const name = info.measure === 'fragmentation_ratio' ? 'Worst' : 'Most in pieces';
      this.addJump(`${name} ${valueText(info, info.worst.value)} ▲`, fixed(info.worst.operation));
    }
    this.addJump(`Peak ${bytesText(info.peak_held.value)} ●`, fixed(info.peak_held.operation));
    this.addWalk('out of memory', info.failures);
    this.addWalk('fallback', info.fallbacks);
    this.addJump('End', fixed(info.operations));
  }

  /** Two buttons, to the one before and the one after. */
  private addWalk(name: string, marks: Marks): void {
    if (marks.count === 0) return;
    const places = marks.first.map((mark) => mark.operation);
    const all = `Next of ${countText(marks.count)} × ${name}` +
        (marks.count > places.length ? `, the first ${countText(places.length)}` : '');
    this.addJump('‹', (from) => [...places].reverse().find((at) => at < from) ?? null, `Previous ${name}`);
    this.addJump(`${all} ›`, (from) => places.find((at) => at > from) ?? null);
  }

  private addJump(text: string, to: Jump['to'], label = ''): void {
    const button = make('button', { type: 'button',
      ...(label === '' ? {} : { 'aria-label': `${label} (${text})` }) }, text);
    button.addEventListener('click', () => {
      const target = to(this.wanted);
      if (target === null) return;
      this.pause();
      this.go(target);
      announce(`Operation ${countText(target)}`);
    });
    this.jumps.push({ text, to, button });
    element('place-jumps').append(button);
  }

  // --- controls ---------------------------------------------------------------------------------

  private listen(): void {
    this.slider.addEventListener('input', () => {
      this.pause();
      this.go(Number(this.slider.value));
    });
    this.slider.addEventListener('keydown', (event) => {
      const page = Math.max(1, Math.round(this.info.operations / PAGES));
      const step = { PageUp: page, PageDown: -page }[event.key];
      if (step === undefined) return;
      event.preventDefault();
      this.pause();
      this.go(this.wanted + step);
    });
    element('place-back').addEventListener('click', () => this.step(-1));
    element('place-on').addEventListener('click', () => this.step(1));
    this.play.addEventListener('click', () => {
      if (this.playing === 0) this.begin();
      else this.pause();
    });
    element('place-speed').addEventListener('change', () => this.restartClock());
    window.addEventListener('hashchange', () => {
      const at = Number(new URLSearchParams(location.hash.slice(1)).get('at') ?? NaN);
      if (Number.isInteger(at) && at !== this.wanted) this.go(at);
    });
  }

  private step(by: number): void {
    this.pause();
    this.go(this.wanted + by);
  }

  private begin(): void {
    if (this.wanted >= this.info.operations) this.go(0);
    this.restartClock();
    this.playing = window.setInterval(() => this.tick(), PLAY_TICK_MS);
    this.showPlaying();
  }

  private restartClock(): void {
    this.playedFrom = this.wanted;
    this.playedAt = performance.now();
  }

  private tick(): void {
    const seconds = Number(element<HTMLSelectElement>('place-speed').value);
    const share = (performance.now() - this.playedAt) / 1000 / seconds;
    const target = Math.floor(this.playedFrom + share * this.info.operations);
    if (target >= this.info.operations) this.pause();
    // What is not shown in time is left out.
    if (!this.isAsking || target >= this.info.operations) this.go(target);
  }

  private pause(): void {
    clearInterval(this.playing);
    this.playing = 0;
    this.showPlaying();
  }

  private showPlaying(): void {
    setText(this.play, this.playing === 0 ? 'Play' : 'Pause');
    setAttribute(this.play, 'aria-pressed', String(this.playing !== 0));
  }
}

function beSnapshot(info: SnapshotInfo): void {
  document.body.classList.add('is-untimed');
  document.body.classList.toggle('is-uncounted', !info.has_counters);
  document.body.classList.toggle('is-uneventful', !info.has_events);
}

/** The page says what it shows. A replay goes to its end. */
export async function beRecorded(charts: Charts, refresh: Refresh,
    fail: (reason: string) => void, know: (info: RecordingInfo) => void): Promise<void> {
  askRecording();
  const info = await ask<RecordingInfo>('/api/v1/recording');
  document.body.classList.add('is-recorded', `is-${info.kind}`);
  know(info);
  if (info.kind === 'snapshot') {
    beSnapshot(info);
    await refresh();
    return;
  }
  await new Replay(info, charts, refresh, fail).start();
}

/** Who was recorded, above the state. */
export function drawRecordedHeader(info: RecordingInfo, answer: StatsAnswer): void {
  const { device, process } = answer;
  const facts: [string, string][] = info.kind === 'replay' ? [
    ['Trace', info.name],
    ['Operations', countText(info.operations)],
    ['Recorded time', info.has_time ? elapsedText(info.duration_ms) : 'none'],
    ['Played on', device.name],
    ['Settings', process.settings_hash ?? '–'],
  ] : [
    ['Snapshot', info.name],
    ['Taken', new Date(info.time_ms).toLocaleString('en-GB', { timeZoneName: 'short' })],
    ['Device', device.name === '' ? 'not in it' : device.name],
    ...(process.host === '' ? [] : [['Host', process.host], ['Process', String(process.pid)],
      ['Rank', process.rank === undefined ? 'none' : String(process.rank)]] as [string, string][]),
  ];
  showFacts(facts);
  document.title = `Recording · ${info.name} · gpupool`;
}
