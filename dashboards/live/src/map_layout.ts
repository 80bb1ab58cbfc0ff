// Where blocks lie on the map: by rising address, one after the other, in rows of equal length. A
// hole without memory, of which moving pages leave many, is drawn short however long it is.
//
// "Place" is a number of bytes from the map's start. Cost: one step a block.

import type { MapData } from './map_data.js';

export interface Hole {
  place: number;
  length: number;  // as drawn
  bytes: number;   // as it is
}

export interface Layout {
  total: number;
  places: Float64Array;  // of each block
  holes: Hole[];
}

const HOLE_SHARE = 1 / 300;

export function layOut(data: MapData): Layout {
  const { offset, bytes, shown } = data.blocks;
  let mapped = 0;
  for (let i = 0; i < shown; i += 1) mapped += bytes[i] ?? 0;
  const longest = Math.max(data.pageBytes / 4, mapped * HOLE_SHARE);
  const places = new Float64Array(shown);
  const holes: Hole[] = [];
  let place = 0;
  let end = shown > 0 ? offset[0] ?? 0 : 0;
  for (let i = 0; i < shown; i += 1) {
    const start = offset[i] ?? 0;
    // A block that changed while the map was made may be there twice, in part.
    if (start > end) {
      const hole = { place, length: Math.min(start - end, longest), bytes: start - end };
      holes.push(hole);
      place += hole.length;
    }
    places[i] = place;
    place += bytes[i] ?? 0;
    end = Math.max(end, start + (bytes[i] ?? 0));
  }
  return { total: place, places, holes };
}

/** The last block that begins at or before the place; -1: none does. */
export function blockBefore(layout: Layout, place: number): number {
  let low = 0;
  let high = layout.places.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((layout.places[middle] ?? 0) <= place) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

/** The block at a place; -1 where there is none. */
export function blockAt(data: MapData, layout: Layout, place: number): number {
  const block = blockBefore(layout, place);
  if (block < 0) return -1;
  const end = (layout.places[block] ?? 0) + (data.blocks.bytes[block] ?? 0);
  return place < end ? block : -1;
}

/** What part of the map is in sight. */
export interface View {
  from: number;
  to: number;
}

const MIN_SPAN = 4096;

export function clampView(view: View, total: number): View {
  const span = Math.min(Math.max(view.to - view.from, Math.min(MIN_SPAN, total)), total);
  const from = Math.min(Math.max(0, view.from), Math.max(0, total - span));
  return { from, to: from + span };
}

/** Closer by `factor` (above 1) or farther, so that `place` stays where it is. */
export function zoomView(view: View, factor: number, place: number, total: number): View {
  const span = (view.to - view.from) / factor;
  const share = (place - view.from) / (view.to - view.from);
  return clampView({ from: place - share * span, to: place + (1 - share) * span }, total);
}
