// One snapshot of the pool's memory as columns of numbers, and how the worker that reads it is
// asked: text of some megabytes a second is no work for the thread that draws.

export interface MapState {
  name: string;
  blocks: number;
  bytes: number;
}
export interface MapTag {
  name?: string;
  live_blocks: number;
  live_requested_bytes: number;
}
export interface MapStream {
  id: number;
  handle?: string;
  live_bytes: number;
  cached_bytes: number;
  pending_bytes: number;
}

export interface Blocks {
  count: number;
  shown: number;
  offset: Float64Array;
  bytes: Float64Array;
  requested: Float64Array;
  ageMs: Float64Array;
  state: Uint8Array;
  tier: Uint8Array;
  tag: Uint16Array;
  stream: Uint16Array;
}

export interface MapData {
  sequence: number;
  pool: string;
  timeMs: number;
  baseAddress: number;
  pageBytes: number;
  pagesMapped: number;
  pagesEmpty: number;
  rangeBytes: number;
  backing: string;
  heldBytes: number;
  limitBytes: number;
  largestFreeBytes: number;
  states: MapState[];
  tiers: string[];
  tags: MapTag[];
  streams: MapStream[];
  blocks: Blocks;
  /** Outside the arena, by their addresses. */
  fallbacks: Blocks;
}

export interface MapAnswer {
  id: number;
  /** undefined: what was had already is still so. */
  data?: MapData;
  missing?: boolean;
  error?: string;
}

export interface MapQuestion {
  id: number;
  path: string;
}

export const tagName = (data: MapData, index: number): string =>
  data.tags[index]?.name ?? (index === data.tags.length - 1 ? 'untagged' : `tag ${index + 1}`);
export const streamName = (data: MapData, index: number): string => {
  const id = data.streams[index]?.id ?? 0;
  return id === 0 ? 'no stream' : `stream ${id}`;
};
