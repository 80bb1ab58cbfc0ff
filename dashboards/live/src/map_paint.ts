// Draws the map onto a canvas. What is at least a pixel wide is drawn as what it is; smaller blocks
// are summed up in each pixel column, which shows the kind that has most bytes in it. So the cost is
// one step a block and some thousand rectangles, however many blocks there are.

import { blockBefore, type Layout, type View } from './map_layout.js';
import { type Kind, type Kinds } from './map_kinds.js';
import { tagName, type MapData } from './map_data.js';
import { cssColour, patternTile } from './theme.js';
import { bytesText } from './text.js';

export interface Scene {
  data: MapData;
  layout: Layout;
  kinds: Kinds;
  view: View;
  /** Only this kind is in full colour; '' for all. */
  filter: string;
  /** Free pieces of at least so many bytes are marked; 0: none. */
  fitBytes: number;
  /** The block with the cursor, -1: none. */
  cursor: number;
}

/** In pixels of the page, not of the device. */
export interface Grid {
  left: number;
  width: number;
  rows: number;
  rowHeight: number;
  gap: number;
}

const LIVE = 0;
const FREE = 3;
const MIN_LABEL = 64;

export function gridFor(width: number, height: number): Grid {
  const left = width >= 560 ? 74 : 0;
  const rowHeight = width >= 560 ? 22 : 18;
  const gap = 4;
  return { left, width: width - left, rows: Math.max(1, Math.floor((height + gap) / (rowHeight + gap))),
    rowHeight, gap };
}

export const rowTop = (grid: Grid, row: number): number => row * (grid.rowHeight + grid.gap);

/** The place under a point; NaN beside the rows. */
export function placeAt(grid: Grid, view: View, x: number, y: number): number {
  const row = Math.floor(y / (grid.rowHeight + grid.gap));
  if (x < grid.left || x > grid.left + grid.width || row < 0 || row >= grid.rows) return NaN;
  const strip = row * grid.width + Math.min(x - grid.left, grid.width - 0.001);
  return view.from + strip * (view.to - view.from) / (grid.rows * grid.width);
}

let sums = new Float32Array(0);
let touched = new Uint8Array(0);

export class Painter {
  private readonly context: CanvasRenderingContext2D;
  private readonly patterns = new Map<string, CanvasPattern | null>();
  private grid: Grid = { left: 0, width: 1, rows: 1, rowHeight: 1, gap: 0 };
  private colours = { back: '', line: '', dim: '', text: '', mark: '', cursor: '', hole: '' };
  private scale = 1;

  constructor(private readonly canvas: HTMLCanvasElement) {
    const context = canvas.getContext('2d');
    if (context === null) throw new Error('this browser has no canvas');
    this.context = context;
  }

  /** After a change of theme. */
  readColours(): void {
    this.colours = { back: cssColour('--panel'), line: cssColour('--line'),
      dim: cssColour('--dim'), text: cssColour('--text'), mark: cssColour('--mark'),
      cursor: cssColour('--text'), hole: cssColour('--track') };
  }

  draw(scene: Scene, grid: Grid, height: number): void {
    this.scale = window.devicePixelRatio || 1;
    this.grid = grid;
    const pixelWidth = Math.round((grid.left + grid.width) * this.scale);
    const pixelHeight = Math.round(height * this.scale);
    if (this.canvas.width !== pixelWidth || this.canvas.height !== pixelHeight) {
      this.canvas.width = pixelWidth;
      this.canvas.height = pixelHeight;
      this.patterns.clear();
    }
    const context = this.context;
    context.setTransform(this.scale, 0, 0, this.scale, 0, 0);
    context.fillStyle = this.colours.back;
    context.fillRect(0, 0, grid.left + grid.width, height);
    this.drawRowsBehind();
    this.drawBlocks(scene);
    this.drawGutter(scene);
  }

  private drawRowsBehind(): void {
    this.context.fillStyle = this.colours.hole;
    for (let row = 0; row < this.grid.rows; row += 1) {
      this.context.fillRect(this.grid.left, rowTop(this.grid, row), this.grid.width,
          this.grid.rowHeight);
    }
  }

  /** A stretch of the long strip that all rows make up, cut at their ends. */
  private eachPiece(from: number, to: number,
      draw: (x: number, y: number, width: number) => void): void {
    const { left, width, rows } = this.grid;
    const end = Math.min(to, rows * width);
    let at = Math.max(0, from);
    while (at < end - 1e-6) {
      const row = Math.floor(at / width + 1e-9);
      const stop = Math.min(end, (row + 1) * width);
      draw(left + at - row * width, rowTop(this.grid, row), stop - at);
      at = stop;
    }
  }

  private pattern(kind: Kind): CanvasPattern | null {
    const key = kind.paint.pattern;
    let pattern = this.patterns.get(key);
    if (pattern === undefined) {
      const tile = patternTile(key, this.scale);
      pattern = tile === null ? null : this.context.createPattern(tile, 'repeat');
      // The tile is made of the device's pixels.
      pattern?.setTransform(new DOMMatrix().scale(1 / this.scale));
      this.patterns.set(key, pattern);
    }
    return pattern;
  }

  private fill(kind: Kind, isDim: boolean, from: number, to: number): void {
    const context = this.context;
    const pattern = this.pattern(kind);
    context.globalAlpha = isDim ? 0.16 : 1;
    this.eachPiece(from, to, (x, y, width) => {
      context.fillStyle = kind.paint.colour;
      context.fillRect(x, y, width, this.grid.rowHeight);
      if (pattern !== null) {
        context.fillStyle = pattern;
        context.fillRect(x, y, width, this.grid.rowHeight);
      }
    });
    context.globalAlpha = 1;
  }

  private drawBlocks(scene: Scene): void {
    const { data, layout, kinds, view } = scene;
    const { width, rows } = this.grid;
    const strip = Math.ceil(rows * width);
    const perByte = strip / Math.max(1, view.to - view.from);
    const count = kinds.list.length;
    if (sums.length < strip * count) sums = new Float32Array(strip * count);
    else sums.fill(0, 0, strip * count);
    if (touched.length < strip) touched = new Uint8Array(strip);
    else touched.fill(0, 0, strip);
    const { bytes, shown } = data.blocks;
    for (let i = firstInView(layout, view); i < shown; i += 1) {
      const place = layout.places[i] ?? 0;
      if (place >= view.to) break;
      const from = (place - view.from) * perByte;
      const to = from + (bytes[i] ?? 0) * perByte;
      if (to <= 0) continue;
      if (to - from >= 1) {
        this.drawBlock(scene, i, from, to);
        continue;
      }
      const column = Math.min(strip - 1, Math.max(0, Math.floor(from)));
      const kind = kinds.of(i);
      const at = column * count + kind;
      const isWanted = scene.filter === '' || kinds.list[kind]?.name === scene.filter;
      sums[at] = (sums[at] ?? 0) + (to - from) * (isWanted ? 1 : 0.01);
      touched[column] = 1;
    }
    this.drawSums(scene, strip, count);
    this.drawHoles(scene, perByte);
    this.drawCursor(scene, perByte);
  }

  private drawBlock(scene: Scene, i: number, from: number, to: number): void {
    const { data, kinds } = scene;
    const kind = kinds.list[kinds.of(i)];
    if (kind === undefined) return;
    const isDim = scene.filter !== '' && kind.name !== scene.filter;
    this.fill(kind, isDim, from, to);
    const context = this.context;
    if (to - from >= 5) {
      context.fillStyle = this.colours.back;
      this.eachPiece(to - 1, to, (x, y, width) =>
        context.fillRect(x, y, width, this.grid.rowHeight));
    }
    const isFree = data.blocks.state[i] === FREE;
    if (isFree && scene.fitBytes > 0 && (data.blocks.bytes[i] ?? 0) >= scene.fitBytes) {
      this.outline(from, to, this.colours.mark, 3);
    }
    if (to - from >= MIN_LABEL && !isDim) this.label(scene, i, kind, from, to);
  }

  /** In the block's longest piece, where it has the room. */
  private label(scene: Scene, i: number, kind: Kind, from: number, to: number): void {
    let best = { x: 0, y: 0, width: 0 };
    this.eachPiece(from, to, (x, y, width) => {
      if (width > best.width) best = { x, y, width };
    });
    if (best.width < MIN_LABEL) return;
    const context = this.context;
    context.font = '11px system-ui, "DejaVu Sans", sans-serif';
    const size = bytesText(scene.data.blocks.bytes[i] ?? 0);
    const isLive = scene.data.blocks.state[i] === LIVE;
    const name = isLive ? tagName(scene.data, scene.data.blocks.tag[i] ?? 0) : kind.name;
    let text = `${name} ${size}`;
    if (context.measureText(text).width > best.width - 12) text = size;
    const width = context.measureText(text).width;
    if (width > best.width - 12) return;
    const middle = best.y + this.grid.rowHeight / 2;
    context.fillStyle = 'rgb(0 0 0 / 58%)';
    context.fillRect(best.x + 3, middle - 7.5, width + 6, 15);
    context.fillStyle = '#ffffff';
    context.textBaseline = 'middle';
    context.fillText(text, best.x + 6, middle + 0.5);
  }

  private drawSums(scene: Scene, strip: number, count: number): void {
    let runKind = -1;
    let runStart = 0;
    const flush = (end: number): void => {
      const kind = scene.kinds.list[runKind];
      if (kind === undefined) return;
      this.fill(kind, scene.filter !== '' && kind.name !== scene.filter, runStart, end);
    };
    for (let column = 0; column <= strip; column += 1) {
      const kind = column < strip && touched[column] === 1 ? largest(column * count, count) : -1;
      if (kind === runKind) continue;
      if (runKind >= 0) flush(column);
      runKind = kind;
      runStart = column;
    }
  }

  private drawHoles(scene: Scene, perByte: number): void {
    const context = this.context;
    for (const hole of scene.layout.holes) {
      if (hole.place + hole.length < scene.view.from || hole.place > scene.view.to) continue;
      const from = (hole.place - scene.view.from) * perByte;
      const to = from + hole.length * perByte;
      if (to - from < 2) continue;
      context.strokeStyle = this.colours.dim;
      context.lineWidth = 1;
      this.eachPiece(from, to, (x, y, width) => {
        const middle = y + this.grid.rowHeight / 2 + 0.5;
        context.setLineDash([2, 3]);
        context.beginPath();
        context.moveTo(x + 1, middle);
        context.lineTo(x + width - 1, middle);
        context.stroke();
        context.setLineDash([]);
      });
    }
  }

  private drawCursor(scene: Scene, perByte: number): void {
    if (scene.cursor < 0 || scene.cursor >= scene.data.blocks.shown) return;
    const from = ((scene.layout.places[scene.cursor] ?? 0) - scene.view.from) * perByte;
    const to = from + Math.max(2, (scene.data.blocks.bytes[scene.cursor] ?? 0) * perByte);
    this.outline(from - 1, to + 1, this.colours.back, 5);
    this.outline(from - 1, to + 1, this.colours.cursor, 2);
  }

  private outline(from: number, to: number, colour: string, width: number): void {
    const context = this.context;
    context.strokeStyle = colour;
    context.lineWidth = width;
    this.eachPiece(from, to, (x, y, w) =>
      context.strokeRect(x + width / 2, y + width / 2, Math.max(1, w - width),
          this.grid.rowHeight - width));
  }

  /** How far from the arena's start each row begins. */
  private drawGutter(scene: Scene): void {
    if (this.grid.left === 0) return;
    const context = this.context;
    context.font = '11px system-ui, "DejaVu Sans", sans-serif';
    context.textBaseline = 'middle';
    context.textAlign = 'right';
    context.fillStyle = this.colours.dim;
    const { data, layout, view } = scene;
    for (let row = 0; row < this.grid.rows; row += 1) {
      const place = view.from + (view.to - view.from) * row / this.grid.rows;
      const block = firstInView(layout, { from: place, to: view.to });
      if (block >= data.blocks.shown) break;
      const offset = (data.blocks.offset[block] ?? 0) +
          Math.max(0, place - (layout.places[block] ?? 0));
      context.fillText(`+${bytesText(offset)}`, this.grid.left - 8,
          rowTop(this.grid, row) + this.grid.rowHeight / 2 + 0.5);
    }
    context.textAlign = 'left';
  }
}

function largest(start: number, count: number): number {
  let best = 0;
  for (let kind = 1; kind < count; kind += 1) {
    if ((sums[start + kind] ?? 0) > (sums[start + best] ?? 0)) best = kind;
  }
  return best;
}

/** The block that the view begins in, or the one before it. */
const firstInView = (layout: Layout, view: View): number =>
  Math.max(0, blockBefore(layout, view.from));
