// What keeps the holes apart: blocks in use that lie between two free pieces. Where one of them ended,
// the two would be one; so it is the sizes and tags found here that fragmentation is made of.

import { tagName, type Blocks, type MapData } from './map_data.js';
import { element, keepRows, make, setText } from './dom.js';
import { bytesText, countText, shortTimeText } from './text.js';

/** Longer stretches without a hole are the job itself, not what lies in the way. */
const MAX_WALL_BLOCKS = 16;
const MAX_ROWS = 8;

/** Blocks alike that stand between holes. */
export interface Between {
  tag: string;
  state: string;
  size: number;   // as asked for where it is live, else of the block
  blocks: number;
  bytes: number;
  holes: number;  // bytes of the free pieces beside them
  oldestMs: number;
}

export interface Walls {
  pieces: number;  // free ones
  freeBytes: number;
  walls: number;   // stretches of blocks between two of them
  groups: Between[];
}

interface Run {
  first: number;
  end: number;
  left: number;  // bytes of the free piece before it; 0: there is none
}

function groupOf(groups: Map<string, Between>, data: MapData, i: number): Between {
  const { blocks } = data;
  const state = data.states[blocks.state[i] ?? 0]?.name ?? '';
  const isLive = state === 'live';
  const size = (isLive ? blocks.requested[i] : blocks.bytes[i]) ?? 0;
  const tag = isLive ? tagName(data, blocks.tag[i] ?? 0) : '';
  const key = `${state}/${tag}/${size}`;
  let group = groups.get(key);
  if (group === undefined) {
    group = { tag, state, size, blocks: 0, bytes: 0, holes: 0, oldestMs: 0 };
    groups.set(key, group);
  }
  return group;
}

function addWall(groups: Map<string, Between>, data: MapData, run: Run, right: number): void {
  const { blocks } = data;
  const met = new Set<Between>();
  for (let i = run.first; i < run.end; i += 1) {
    const group = groupOf(groups, data, i);
    group.blocks += 1;
    group.bytes += blocks.bytes[i] ?? 0;
    group.oldestMs = Math.max(group.oldestMs, blocks.ageMs[i] ?? 0);
    met.add(group);
  }
  for (const group of met) group.holes += run.left + right;
}

const endOf = (blocks: Blocks, i: number): number =>
  (blocks.offset[i] ?? 0) + (blocks.bytes[i] ?? 0);

/** Of a map whose blocks stand by rising offset. */
export function findWalls(data: MapData): Walls {
  const { blocks } = data;
  const free = data.states.findIndex((state) => state.name === 'free');
  const groups = new Map<string, Between>();
  const found: Walls = { pieces: 0, freeBytes: 0, walls: 0, groups: [] };
  let run: Run | null = null;
  for (let i = 0; i < blocks.shown; i += 1) {
    // A stretch without memory ends a run: there is no piece to be joined across it.
    if (i > 0 && blocks.offset[i] !== endOf(blocks, i - 1)) run = null;
    if (blocks.state[i] !== free) {
      if (run !== null) run.end = i + 1;
      continue;
    }
    const bytes = blocks.bytes[i] ?? 0;
    found.pieces += 1;
    found.freeBytes += bytes;
    if (run !== null && run.end > run.first) {
      found.walls += 1;
      if (run.end - run.first <= MAX_WALL_BLOCKS) addWall(groups, data, run, bytes);
    }
    run = { first: i + 1, end: i + 1, left: bytes };
  }
  found.groups = [...groups.values()].sort((a, b) => b.holes - a.holes || b.bytes - a.bytes);
  return found;
}

const nameOf = (group: Between): string =>
  (group.state === 'live' ? group.tag : `${group.state}, of no tag`);

/** `nowMs`: the time of the map, from the start of what was recorded; null: it has no time. */
export function drawBetween(data: MapData, nowMs: number | null): void {
  const walls = findWalls(data);
  setText('between-note', walls.pieces === 0 ? 'No free piece: nothing is kept apart.' :
    `${bytesText(walls.freeBytes)} is free in ${countText(walls.pieces)} ` +
      `${walls.pieces === 1 ? 'piece' : 'pieces'}, the largest of ` +
      `${bytesText(data.largestFreeBytes)}; ${countText(walls.walls)} ` +
      `${walls.walls === 1 ? 'stretch' : 'stretches'} of blocks between two of them.`);
  const rows = walls.groups.slice(0, MAX_ROWS);
  element('between-table').hidden = rows.length === 0;
  keepRows(element('between'), rows, () => make('tr', {}, make('th', { scope: 'row' }), make('td'),
      make('td'), make('td'), make('td')), (row, group) => {
    const age = nowMs === null || group.oldestMs === 0 ? '–' :
      shortTimeText(Math.max(0, nowMs - group.oldestMs) * 1e6);
    [bytesText(group.size), nameOf(group), countText(group.blocks), bytesText(group.holes), age]
      .forEach((text, i) => setText(row.children[i] ?? row, text));
  });
}
