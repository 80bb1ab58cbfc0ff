// What can be taken along: all that the page has, as JSON, and the map as PyTorch's memory snapshot.

import type { PoolEvent } from './api.js';
import { make } from './dom.js';
import type { Blocks, MapData } from './map_data.js';
import { pickle } from './pickle.js';
import { torchSnapshot } from './torch_snapshot.js';

function save(name: string, type: string, content: BlobPart): void {
  const url = URL.createObjectURL(new Blob([content], { type }));
  const link = make('a', { href: url, download: name, hidden: true });
  document.body.append(link);
  link.click();
  link.remove();
  // The browser has begun to read it by then.
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

const columnsOf = (blocks: Blocks): object => ({
  ...blocks,
  offset: Array.from(blocks.offset),
  bytes: Array.from(blocks.bytes),
  requested: Array.from(blocks.requested),
  ageMs: Array.from(blocks.ageMs),
  state: Array.from(blocks.state),
  tier: Array.from(blocks.tier),
  tag: Array.from(blocks.tag),
  stream: Array.from(blocks.stream),
});

/** A map as plain JSON, columns of equal length. */
export const mapJson = (data: MapData): object =>
  ({ ...data, blocks: columnsOf(data.blocks), fallbacks: columnsOf(data.fallbacks) });

const stamp = (ms: number): string => new Date(ms).toISOString().slice(0, 19).replaceAll(':', '');

export function saveJson(pool: string, atMs: number, content: object): void {
  save(`gpupool-${pool}-${stamp(atMs)}.json`, 'application/json', JSON.stringify(content));
}

export function saveTorch(data: MapData, device: number, events: readonly PoolEvent[]): void {
  save(`gpupool-${data.pool}-${stamp(data.timeMs)}.pickle`, 'application/octet-stream',
      pickle(torchSnapshot(data, device, events)) as Uint8Array<ArrayBuffer>);
}
