// "Would N bytes fit?": answered by the pool itself, not by a rule of the page's own.

import { ask, path, type FitAnswer, type PoolName, type Stats } from './api.js';
import { element, make, setText } from './dom.js';
import { limitOf, roomBytes } from './status.js';
import { bytesText, readSize, sizeText } from './text.js';

const MIN_LOG2 = 12;

/** What it would take, in a sentence. */
export function fitText(answer: FitAnswer): string {
  const size = bytesText(answer.bytes);
  const room = Math.max(0, answer.limit_in_force_bytes - answer.held_bytes);
  switch (answer.fit) {
    case 'now':
      return `Yes, at once: a free piece of the pool serves ${size} without the driver.`;
    case 'by_growth':
      return `Yes, by growth: no free piece is that long (largest ` +
          `${bytesText(answer.largest_free_block_bytes)}), so pages are moved or got from the ` +
          `driver; ${bytesText(room)} may still be got.`;
    case 'after_pending':
      return `Only after pending work: ${bytesText(answer.pending_bytes)} was freed whose work ` +
          'still runs; the request waits for it.';
    case 'no':
      return `No: the largest request that fits is ` +
          `${bytesText(answer.largest_satisfiable_bytes)}. ` +
          `${bytesText(answer.limit_in_force_bytes)} is the limit in force, ` +
          `${bytesText(answer.held_bytes)} is held, ${bytesText(answer.free_bytes)} of it free.`;
  }
}

const WORD = { now: 'yes, at once', by_growth: 'yes, by growth', after_pending: 'after pending work',
  no: 'no' };

export class FitPanel {
  private readonly input = element<HTMLInputElement>('fit-bytes');
  private readonly slider = element<HTMLInputElement>('fit-slider');
  private readonly stream = element<HTMLSelectElement>('fit-stream');
  private readonly watched = element('fit-watched');
  private pool: PoolName | null = null;
  private top = 2 ** 40;
  private asked = 0;
  private bytes = 0;  // of the question that is on the page
  private timer = 0;

  constructor(private readonly mark: (bytes: number) => void) {
    element<HTMLFormElement>('fit-form').addEventListener('submit', (event) => {
      event.preventDefault();
      this.fromText();
    });
    this.input.addEventListener('change', () => this.fromText());
    this.stream.addEventListener('change', () => this.fromText());
    this.slider.addEventListener('input', () => {
      const bytes = this.sliderBytes();
      this.input.value = sizeText(bytes);
      this.slider.setAttribute('aria-valuetext', sizeText(bytes));
      this.mark(bytes);
      clearTimeout(this.timer);
      this.timer = window.setTimeout(() => void this.query(bytes), 120);
    });
  }

  choose(pool: PoolName | null): void {
    this.pool = pool;
  }

  /** The pool has moved on: what was asked is asked again, and the ends of the scale follow. */
  update(stats: Stats): void {
    this.top = Math.max(2 ** MIN_LOG2 * 2, limitOf(stats));
    this.slider.max = String(Math.round(Math.log2(this.top) * 100));
    this.slider.min = String(MIN_LOG2 * 100);
    if (this.input.value === '') {
      const start = stats.threshold_required_block_bytes || stats.watched[0]?.bytes || 2 ** 30;
      this.input.value = sizeText(Math.min(start, this.top));
    }
    this.showWatched(stats);
    if (this.bytes === 0) {
      this.bytes = readSize(this.input.value);
      this.place(this.bytes);
    }
    // What is being written is not asked before it is finished.
    if (this.bytes > 0) void this.query(this.bytes);
  }

  setStreams(ids: readonly number[]): void {
    const wanted = ['', ...ids.map(String)];
    const have = Array.from(this.stream.options, (option) => option.value);
    if (wanted.join() === have.join()) return;
    const chosen = this.stream.value;
    this.stream.replaceChildren(...wanted.map((id) =>
      make('option', { value: id }, id === '' ? 'any stream' : `stream ${id}`)));
    this.stream.value = wanted.includes(chosen) ? chosen : '';
  }

  private sliderBytes(): number {
    const bytes = 2 ** (Number(this.slider.value) / 100);
    // A round number, of three digits in its unit.
    const unit = 2 ** (10 * Math.floor(Math.log2(bytes) / 10));
    return Math.round(bytes / unit * 10) / 10 * unit;
  }

  private place(bytes: number): void {
    this.slider.value = String(Math.round(Math.log2(Math.max(bytes, 1)) * 100));
    this.slider.setAttribute('aria-valuetext', sizeText(bytes));
    this.mark(bytes);
  }

  private fromText(): void {
    const bytes = readSize(this.input.value);
    if (!(bytes > 0)) {
      this.bytes = NaN;
      this.asked += 1;
      this.say('unknown', 'not a size', 'Write bytes or a size: 1073741824, 512 MiB, 1.5 GiB.');
      return;
    }
    this.place(bytes);
    void this.query(bytes);
  }

  private async query(bytes: number): Promise<void> {
    this.bytes = bytes;
    const number = ++this.asked;
    const parameters: Record<string, string | number> = { bytes };
    if (this.stream.value !== '') parameters['stream'] = this.stream.value;
    try {
      const answer = await ask<FitAnswer>(path('would_fit', this.pool, parameters));
      if (number !== this.asked) return;
      this.say(answer.fit, WORD[answer.fit], fitText(answer));
    } catch (error) {
      if (number !== this.asked) return;
      this.say('unknown', 'no answer', error instanceof Error ? error.message : String(error));
    }
  }

  private say(level: string, word: string, text: string): void {
    const answer = element('fit-answer');
    answer.dataset['fit'] = level;
    setText('fit-word', word);
    setText('fit-text', text);
  }

  private showWatched(stats: Stats): void {
    this.watched.hidden = stats.watched.length === 0;
    const said = stats.watched.map((size) => {
      const lost = size.unusable_free_bytes;
      return `${sizeText(size.bytes)} ${size.fits ? '✓ fits' : '✗ does not fit'}` +
          (lost > 0 ? ` (${bytesText(lost)} of free is in shorter pieces)` : '');
    });
    setText(this.watched, `Watched sizes: ${said.join('; ')}. ` +
        `${bytesText(roomBytes(stats))} may still be got from the driver.`);
  }
}
