// What the memory is used for, by tag: sortable, and the one that looks like a leak first.

import type { Stats } from './api.js';
import { announce, drawSpark, element, keepRows, make, makeSpark, setAttribute, setText }
  from './dom.js';
import { MIN_SECONDS, findSuspect, type Suspect } from './leak.js';
import { withUntagged, type Seen } from './seen.js';
import { bytesText, durationText, shareText } from './text.js';

type Key = 'suspect' | 'name' | 'live' | 'peak' | 'share' | 'trend';

interface TagRow {
  name: string;
  live: number;
  peak: number;
  trend: number;  // bytes a minute
  past: readonly number[];
}

const perMinuteText = (bytes: number): string =>
  `${bytes > 0 ? '+' : ''}${bytesText(bytes)}/min`;

export class TagTable {
  private key: Key = 'suspect';
  private isDescending = true;
  private suspect: Suspect | null = null;
  private rows: TagRow[] = [];
  private all = 0;

  constructor() {
    for (const button of document.querySelectorAll<HTMLButtonElement>('#tags-table th button')) {
      button.addEventListener('click', () => this.sortBy((button.dataset['key'] ?? 'live') as Key));
    }
  }

  draw(stats: Stats, seen: Seen): void {
    const times = seen.tagTimes;
    const seconds = times.length > 1 ? ((times.at(-1) ?? 0) - (times[0] ?? 0)) / 1000 : 0;
    this.suspect = findSuspect(seen.tags, seconds);
    this.all = stats.live_requested_bytes;
    this.rows = Object.entries(withUntagged(stats)).map(([name, live]) => {
      const past = seen.tags.get(name);
      const first = past?.bytes[0] ?? live;
      return { name, live, peak: past?.peak ?? live, past: past?.bytes ?? [],
        trend: seconds > 0 ? (live - first) / seconds * 60 : 0 };
    });
    this.show(seconds);
  }

  private sortBy(key: Key): void {
    this.isDescending = this.key === key ? !this.isDescending : key !== 'name';
    this.key = key;
    announce(`Sorted by ${key}, ${this.isDescending ? 'most' : 'least'} first`);
    this.showRows();
  }

  private sorted(): TagRow[] {
    const sign = this.isDescending ? -1 : 1;
    const value = (row: TagRow): number => {
      if (this.key === 'peak') return row.peak;
      if (this.key === 'trend') return row.trend;
      return row.live;
    };
    return [...this.rows].sort((a, b) => {
      if (this.key === 'suspect' && this.suspect !== null) {
        const first = Number(b.name === this.suspect.name) - Number(a.name === this.suspect.name);
        if (first !== 0) return first;
      }
      if (this.key === 'name') return sign * a.name.localeCompare(b.name);
      return sign * (value(a) - value(b)) || a.name.localeCompare(b.name);
    });
  }

  private show(seconds: number): void {
    const suspect = this.suspect;
    const note = element('tags-suspect');
    note.dataset['level'] = suspect === null ? 'ok' : 'fragmented';
    setText(note, suspect === null && seconds < MIN_SECONDS ?
      `No tag looks like a leak yet: it takes ${MIN_SECONDS} s of watching to tell.` :
      suspect === null ?
      `No tag looks like a leak, ${durationText(seconds)} watched: none has a lowest level that ` +
        'rises all the time.' :
      `Leak suspected: ${suspect.name} grows. Its lowest level rose in each quarter of the last ` +
        `${durationText(suspect.seconds)}, by ${bytesText(suspect.risenBytes)} in sum, ` +
        `${perMinuteText(suspect.bytesPerMinute)}.`);
    this.showRows();
  }

  private showRows(): void {
    for (const button of document.querySelectorAll<HTMLButtonElement>('#tags-table th button')) {
      const isSorted = button.dataset['key'] === this.key;
      setAttribute(button.closest('th') ?? button, 'aria-sort',
          !isSorted ? 'none' : this.isDescending ? 'descending' : 'ascending');
    }
    keepRows(element('tags'), this.sorted(), () => {
      const spark = make('td', { class: 'spark-cell' });
      spark.append(makeSpark('spark'));
      const name = make('th', { scope: 'row' }, make('span'), make('span', { class: 'unseen' }));
      return make('tr', {}, name, make('td'), make('td'),
          make('td'), make('td'), spark);
    }, (row, tag) => this.showRow(row, tag));
  }

  private showRow(row: HTMLElement, tag: TagRow): void {
    const [name, live, peak, share, trend, spark] = row.children as unknown as HTMLElement[];
    if (name === undefined || live === undefined || peak === undefined || share === undefined ||
        trend === undefined || spark === undefined) {
      return;
    }
    const isSuspect = tag.name === this.suspect?.name;
    row.classList.toggle('is-suspect', isSuspect);
    row.classList.toggle('is-zero', tag.live === 0);
    setText(name.firstElementChild ?? name, isSuspect ? `▲ ${tag.name}` : tag.name);
    setText(name.lastElementChild ?? name, isSuspect ? ' (suspect)' : '');
    setText(live, bytesText(tag.live));
    live.title = String(tag.live);
    setText(peak, bytesText(tag.peak));
    setText(share, shareText(tag.live, this.all));
    setText(trend, Math.abs(tag.trend) < 1 ? 'steady' : perMinuteText(tag.trend));
    const svg = spark.firstElementChild;
    if (svg instanceof SVGSVGElement) drawSpark(svg, tag.past.slice(-120));
  }
}
