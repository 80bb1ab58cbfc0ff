// Reads snapshots beside the page: asks for them, parses them and hands over columns of numbers.

import type { Blocks, MapAnswer, MapData, MapQuestion, MapState, MapStream, MapTag }
  from './map_data.js';

interface JsonBlocks {
  count: number;
  shown: number;
  offset?: number[];
  address?: number[];
  bytes: number[];
  requested: number[];
  state: string;
  tier: string;
  tag: number[];
  stream: number[];
  age_ms: number[];
}

interface JsonSnapshot {
  sequence: number;
  pool: string;
  time_ms: number;
  arena: { base_address?: number; backing: string; range_used_bytes: number; held_bytes: number;
    limit_in_force_bytes: number; largest_free_block_bytes: number };
  pages: { bytes: number; mapped: number; empty: number };
  states: MapState[];
  tiers: string[];
  tags: MapTag[];
  streams: MapStream[];
  blocks: JsonBlocks;
  fallbacks: JsonBlocks;
}

interface Scope {
  onmessage: ((event: MessageEvent<MapQuestion>) => void) | null;
  postMessage(answer: MapAnswer, moved?: Transferable[]): void;
}
const scope = self as unknown as Scope;

function digits(text: string): Uint8Array {
  const values = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i += 1) values[i] = text.charCodeAt(i) - 48;
  return values;
}

function blocksOf(json: JsonBlocks): Blocks {
  return {
    count: json.count,
    shown: json.shown,
    offset: Float64Array.from(json.offset ?? json.address ?? json.bytes.map(() => 0)),
    bytes: Float64Array.from(json.bytes),
    requested: Float64Array.from(json.requested),
    ageMs: Float64Array.from(json.age_ms),
    state: digits(json.state),
    tier: digits(json.tier),
    tag: Uint16Array.from(json.tag),
    stream: Uint16Array.from(json.stream),
  };
}

function dataOf(json: JsonSnapshot): MapData {
  return {
    sequence: json.sequence,
    pool: json.pool,
    timeMs: json.time_ms,
    baseAddress: json.arena.base_address ?? 0,
    pageBytes: json.pages.bytes,
    pagesMapped: json.pages.mapped,
    pagesEmpty: json.pages.empty,
    rangeBytes: json.arena.range_used_bytes,
    backing: json.arena.backing,
    heldBytes: json.arena.held_bytes,
    limitBytes: json.arena.limit_in_force_bytes,
    largestFreeBytes: json.arena.largest_free_block_bytes,
    states: json.states,
    tiers: json.tiers,
    tags: json.tags,
    streams: json.streams,
    blocks: blocksOf(json.blocks),
    fallbacks: blocksOf(json.fallbacks),
  };
}

const buffersOf = (blocks: Blocks): Transferable[] => [blocks.offset, blocks.bytes,
  blocks.requested, blocks.ageMs, blocks.state, blocks.tier, blocks.tag, blocks.stream]
  .map((column) => column.buffer as ArrayBuffer);

let lastPath = '';
let lastTag = '';

async function answer(question: MapQuestion): Promise<void> {
  const headers: Record<string, string> = {};
  if (question.path === lastPath && lastTag !== '') headers['If-None-Match'] = lastTag;
  const response = await fetch(question.path,
      { cache: 'no-store', headers, signal: AbortSignal.timeout(60_000) });
  if (response.status === 304) {
    scope.postMessage({ id: question.id });
    return;
  }
  if (response.status === 404) {
    scope.postMessage({ id: question.id, missing: true });
    return;
  }
  if (!response.ok) throw new Error(`status ${response.status}`);
  lastPath = question.path;
  lastTag = response.headers.get('ETag') ?? '';
  const data = dataOf(await response.json() as JsonSnapshot);
  scope.postMessage({ id: question.id, data },
      [...buffersOf(data.blocks), ...buffersOf(data.fallbacks)]);
}

scope.onmessage = (event) => {
  answer(event.data).catch((error: unknown) => {
    lastTag = '';
    scope.postMessage({ id: event.data.id, error: String(error) });
  });
};
