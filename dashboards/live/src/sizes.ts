// Free memory by the length of its pieces: runs, and buddies inside chunks. Many small ones and none
// large is what fragmentation looks like.

import type { Stats } from './api.js';
import { element, keepRows, make, setText } from './dom.js';
import { bytesText, countText, ratioText, sizeText } from './text.js';

const SMALLEST_LOG2 = 12;

interface SizeRow {
  log2: number;
  runs: number;
  buddies: number;
  bytes: number;
}

function rowsOf(stats: Stats): SizeRow[] {
  const rows: SizeRow[] = [];
  stats.free_runs_by_log2.forEach((runs, log2) => {
    const buddies = stats.free_buddies_by_log2[log2] ?? 0;
    if (log2 < SMALLEST_LOG2 || runs + buddies === 0) return;
    rows.push({ log2, runs, buddies,
      bytes: (stats.free_run_bytes_by_log2[log2] ?? 0) + buddies * 2 ** log2 });
  });
  return rows.reverse();
}

const amountText = (row: SizeRow): string => {
  const parts = [];
  if (row.runs > 0) parts.push(`${countText(row.runs)} ${row.runs === 1 ? 'run' : 'runs'}`);
  if (row.buddies > 0) {
    parts.push(`${countText(row.buddies)} ${row.buddies === 1 ? 'buddy' : 'buddies'}`);
  }
  return parts.join(', ');
};

export function drawSizes(stats: Stats): void {
  const rows = rowsOf(stats);
  element('sizes-table').hidden = rows.length === 0;
  element('sizes-empty').hidden = rows.length > 0;
  const all = rows.reduce((sum, row) => sum + row.bytes, 0);
  const most = Math.max(...rows.map((row) => row.bytes), 1);
  keepRows(element('sizes'), rows, () => make('tr', {}, make('th', { scope: 'row' }),
      make('td', { class: 'track' }, make('div', { class: 'fill' })), make('td'), make('td')),
  (row, item) => {
    const [name, track, amount, bytes] = row.children as unknown as HTMLElement[];
    if (name === undefined || track === undefined || amount === undefined || bytes === undefined) {
      return;
    }
    setText(name, `≥ ${sizeText(2 ** item.log2)}`);
    (track.firstElementChild as HTMLElement).style.width = `${100 * item.bytes / most}%`;
    setText(amount, amountText(item));
    setText(bytes, `${bytesText(item.bytes)} (${ratioText(all > 0 ? item.bytes / all : 0)})`);
  });
  const required = stats.threshold_required_block_bytes;
  const useful = rows.filter((row) => 2 ** row.log2 >= required).reduce((sum, r) => sum + r.bytes, 0);
  setText('sizes-note', rows.length === 0 ? '' : required > 0 ?
    `${ratioText(all > 0 ? useful / all : 0)} of what is free lies in pieces of ` +
      `${sizeText(required)}, which is required, and more.` :
    `The longest piece has ${bytesText(stats.largest_free_block_bytes)} of ` +
      `${bytesText(stats.free_bytes)} that are free.`);
}
