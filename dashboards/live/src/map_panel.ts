// The memory map with its tools: colouring, filter, zoom, pan, hover, and a cursor for the keyboard.
// One is live, one is frozen in each post-mortem.

import { announce, element, keepRows, make, setAttribute, setText } from './dom.js';
import { streamName, tagName, type MapData } from './map_data.js';
import { kindsOf, type Colouring, type Kinds } from './map_kinds.js';
import { blockAt, blockBefore, clampView, layOut, zoomView, type Layout, type View }
  from './map_layout.js';
import { gridFor, Painter, placeAt, rowTop, type Grid } from './map_paint.js';
import { bytesText, countText, durationText, ratioText, words } from './text.js';

const COLOURINGS: [Colouring, string][] = [['state', 'State'], ['tag', 'Tag'],
  ['stream', 'Stream'], ['age', 'Age']];
const LIVE = 0;
const FREE = 3;
const ROWS_WIDE = 12;
const ROWS_NARROW = 14;
const ZOOM_STEP = 1.6;

const COLOURING_HINT: Record<Colouring, string> = {
  state: 'what is in use, kept at hand, waiting for work, or free',
  tag: 'what live blocks are for',
  stream: 'which stream live blocks were asked for on',
  age: 'how long ago live blocks were allocated',
};

export class MapPanel {
  private readonly canvas: HTMLCanvasElement;
  private readonly painter: Painter;
  private readonly legend = make('ul', { class: 'legend' });
  private readonly summary = make('p', { class: 'summary' });
  private readonly detail = make('p', { class: 'detail' });
  private readonly tip = make('div', { class: 'tip', 'aria-hidden': 'true', hidden: true });
  private readonly frame = make('div', { class: 'map-frame' });
  private readonly buttons = new Map<Colouring, HTMLButtonElement>();

  private data: MapData | null = null;
  private layout: Layout = { total: 0, places: new Float64Array(0), holes: [] };
  private kinds: Kinds = { list: [], of: () => 0 };
  private grid: Grid = gridFor(600, 200);
  private height = 200;
  private view: View = { from: 0, to: 0 };
  private colouring: Colouring = 'state';
  private filter = '';
  private fitBytes = 0;
  private cursorOffset = -1;
  private isDrawPending = false;

  constructor(root: HTMLElement, private readonly name: string) {
    this.canvas = make('canvas', { class: 'map', tabindex: '0', role: 'img' });
    this.painter = new Painter(this.canvas);
    this.painter.readColours();
    this.frame.append(this.canvas, this.tip);
    root.append(this.tools(), this.summary, this.frame, this.detail, this.legend);
    this.listen();
    new ResizeObserver(() => this.resize()).observe(this.frame);
    this.resize();
    this.showDetail(-1);
  }

  show(data: MapData): void {
    const wasWhole = this.view.to - this.view.from >= this.layout.total * 0.999;
    this.data = data;
    this.layout = layOut(data);
    this.kinds = kindsOf(data, this.colouring);
    this.view = wasWhole ? { from: 0, to: this.layout.total } :
      clampView(this.view, this.layout.total);
    this.showSummary();
    this.showLegend();
    this.redraw();
    if (this.cursorOffset >= 0) this.showDetail(this.cursor());
  }

  markFits(bytes: number): void {
    if (bytes === this.fitBytes) return;
    this.fitBytes = bytes;
    this.redraw();
  }

  themeChanged(): void {
    this.painter.readColours();
    if (this.data !== null) this.kinds = kindsOf(this.data, this.colouring);
    this.showLegend();
    this.draw();  // at once: a printer does not wait for the next frame
  }

  colourBy(colouring: Colouring): void {
    this.colouring = colouring;
    this.filter = '';
    for (const [other, button] of this.buttons) {
      setAttribute(button, 'aria-pressed', String(other === colouring));
    }
    if (this.data !== null) this.kinds = kindsOf(this.data, colouring);
    this.showLegend();
    this.redraw();
  }

  /** Shows one kind alone in full colour; a second time all again. */
  toggleFilter(name: string): void {
    this.filter = this.filter === name ? '' : name;
    announce(this.filter === '' ? 'All blocks are shown' : `Only ${name} is shown in full colour`);
    this.showLegend();
    this.redraw();
  }

  // --- tools --------------------------------------------------------------------------------------

  private tools(): HTMLElement {
    const bar = make('div', { class: 'tools' });
    const choice = make('div', { class: 'choice', role: 'group', 'aria-label': 'Colour by' },
        make('span', { class: 'choice-name', 'aria-hidden': 'true' }, 'Colour by'));
    for (const [colouring, text] of COLOURINGS) {
      const button = make('button', { type: 'button', title: COLOURING_HINT[colouring],
        'aria-pressed': String(colouring === this.colouring) }, text);
      button.addEventListener('click', () => this.colourBy(colouring));
      this.buttons.set(colouring, button);
      choice.append(button);
    }
    const zoom = make('div', { class: 'choice', role: 'group', 'aria-label': 'Zoom and move' });
    const add = (text: string, label: string, act: () => void): void => {
      const button = make('button', { type: 'button', 'aria-label': label, title: label }, text);
      button.addEventListener('click', act);
      zoom.append(button);
    };
    add('◀', 'Move towards lower addresses', () => this.pan(-0.25));
    add('▶', 'Move towards higher addresses', () => this.pan(0.25));
    add('+', 'Closer', () => this.zoom(ZOOM_STEP));
    add('−', 'Farther', () => this.zoom(1 / ZOOM_STEP));
    add('All', 'All of the arena', () => this.showAll());
    bar.append(choice, zoom);
    return bar;
  }

  private listen(): void {
    const canvas = this.canvas;
    let dragX = NaN;
    let dragged = 0;
    canvas.addEventListener('pointerdown', (event) => {
      dragX = event.offsetX;
      dragged = 0;
    });
    canvas.addEventListener('pointermove', (event) => {
      if (event.buttons === 1 && !Number.isNaN(dragX)) {
        const perPixel = (this.view.to - this.view.from) / (this.grid.rows * this.grid.width);
        const move = (dragX - event.offsetX) * perPixel;
        dragged += Math.abs(event.offsetX - dragX);
        dragX = event.offsetX;
        if (dragged > 4) this.moveTo({ from: this.view.from + move, to: this.view.to + move });
      }
      this.hover(event.offsetX, event.offsetY);
    });
    canvas.addEventListener('pointerleave', () => {
      this.tip.hidden = true;
      dragX = NaN;
    });
    canvas.addEventListener('click', (event) => {
      if (dragged <= 4) this.pick(this.blockUnder(event.offsetX, event.offsetY));
    });
    canvas.addEventListener('dblclick', (event) =>
      this.zoom(ZOOM_STEP ** 2, placeAt(this.grid, this.view, event.offsetX, event.offsetY)));
    canvas.addEventListener('wheel', (event) => {
      // A page that scrolls must not be caught by the map under the pointer.
      if (!event.ctrlKey && !event.metaKey && document.activeElement !== canvas) return;
      event.preventDefault();
      this.zoom(event.deltaY < 0 ? 1.25 : 0.8,
          placeAt(this.grid, this.view, event.offsetX, event.offsetY));
    }, { passive: false });
    canvas.addEventListener('keydown', (event) => this.key(event));
  }

  private key(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const acts: Record<string, () => void> = {
      'ArrowLeft': () => this.step(-1),
      'ArrowRight': () => this.step(1),
      'ArrowUp': () => this.jump(-1),
      'ArrowDown': () => this.jump(1),
      'PageUp': () => this.pan(-0.5),
      'PageDown': () => this.pan(0.5),
      'Home': () => this.setCursor(0),
      'End': () => this.setCursor((this.data?.blocks.shown ?? 0) - 1),
      '+': () => this.zoom(ZOOM_STEP, this.cursorPlace()),
      '=': () => this.zoom(ZOOM_STEP, this.cursorPlace()),
      '-': () => this.zoom(1 / ZOOM_STEP, this.cursorPlace()),
      '0': () => this.showAll(),
      'Enter': () => this.pick(this.cursor()),
      ' ': () => this.pick(this.cursor()),
      'Escape': () => this.clear(),
    };
    const act = acts[event.key];
    if (act === undefined || this.data === null) return;
    event.preventDefault();
    act();
  }

  // --- what is in sight ---------------------------------------------------------------------------

  private moveTo(view: View): void {
    this.view = clampView(view, this.layout.total);
    this.redraw();
  }
  private pan(share: number): void {
    const move = (this.view.to - this.view.from) * share;
    this.moveTo({ from: this.view.from + move, to: this.view.to + move });
  }
  private showAll(): void {
    this.moveTo({ from: 0, to: this.layout.total });
  }
  private zoom(factor: number, place = NaN): void {
    const at = Number.isNaN(place) ? (this.view.from + this.view.to) / 2 : place;
    this.view = zoomView(this.view, factor, at, this.layout.total);
    this.redraw();
  }

  // --- one block ----------------------------------------------------------------------------------

  private cursor(): number {
    const offsets = this.data?.blocks.offset;
    if (offsets === undefined || this.cursorOffset < 0) return -1;
    let low = 0;
    let high = offsets.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((offsets[middle] ?? 0) <= this.cursorOffset) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  }
  private cursorPlace(): number {
    const cursor = this.cursor();
    return cursor < 0 ? NaN : this.layout.places[cursor] ?? NaN;
  }
  private step(by: number): void {
    const cursor = this.cursor();
    const first = Math.max(0, blockBefore(this.layout, this.view.from));
    this.setCursor(cursor < 0 ? first : cursor + by);
  }
  /** A row up or down. */
  private jump(rows: number): void {
    const cursor = this.cursor();
    const span = (this.view.to - this.view.from) / this.grid.rows;
    const place = (cursor < 0 ? this.view.from : this.layout.places[cursor] ?? 0) + rows * span;
    this.setCursor(blockBefore(this.layout, Math.max(0, place)));
  }
  private setCursor(block: number): void {
    const count = this.data?.blocks.shown ?? 0;
    if (count === 0) return;
    const at = Math.min(Math.max(block, 0), count - 1);
    this.cursorOffset = this.data?.blocks.offset[at] ?? -1;
    const place = this.layout.places[at] ?? 0;
    if (place < this.view.from || place >= this.view.to) {
      const span = this.view.to - this.view.from;
      this.moveTo({ from: place - span / 2, to: place + span / 2 });
    }
    this.showDetail(at);
    announce(this.describe(at));
    this.redraw();
  }
  private pick(block: number): void {
    if (this.data === null || block < 0) return;
    this.cursorOffset = this.data.blocks.offset[block] ?? -1;
    this.showDetail(block);
    const kind = this.kinds.list[this.kinds.of(block)];
    if (kind !== undefined) this.toggleFilter(kind.name);
  }
  private clear(): void {
    this.cursorOffset = -1;
    this.filter = '';
    this.showDetail(-1);
    this.showLegend();
    this.redraw();
  }
  private blockUnder(x: number, y: number): number {
    const place = placeAt(this.grid, this.view, x, y);
    return this.data === null || Number.isNaN(place) ? -1 :
      blockAt(this.data, this.layout, place);
  }

  private describe(block: number): string {
    if (this.data === null || block < 0) return '';
    const { blocks } = this.data;
    const bytes = blocks.bytes[block] ?? 0;
    const state = this.data.states[blocks.state[block] ?? 0]?.name ?? '';
    const parts = [`${state} ${bytesText(bytes)}`];
    if (blocks.state[block] === LIVE) {
      const requested = blocks.requested[block] ?? 0;
      parts.push(requested === bytes ? 'all of it asked for' : `${bytesText(requested)} asked for`);
      parts.push(`tag ${tagName(this.data, blocks.tag[block] ?? 0)}`);
    }
    parts.push(words(this.data.tiers[blocks.tier[block] ?? 0] ?? ''));
    if (blocks.state[block] !== FREE) {
      parts.push(streamName(this.data, blocks.stream[block] ?? 0));
    }
    const age = blocks.ageMs[block] ?? 0;
    if (age > 0) parts.push(`${durationText(age / 1000)} old`);
    parts.push(`at +${bytesText(blocks.offset[block] ?? 0)}`);
    return parts.join(', ');
  }

  private showDetail(block: number): void {
    setText(this.detail, block < 0 ?
      'Point at a block to read it, click it to see its kind alone. Keyboard: arrows walk from block ' +
      'to block, + and − zoom, Enter filters, Escape clears.' :
      `Selected: ${this.describe(block)}`);
  }

  private hover(x: number, y: number): void {
    const block = this.blockUnder(x, y);
    this.tip.hidden = block < 0;
    if (block < 0) return;
    setText(this.tip, this.describe(block));
    const row = Math.floor(y / (this.grid.rowHeight + this.grid.gap));
    const width = this.grid.left + this.grid.width;
    this.tip.style.left = `${Math.min(Math.max(0, x - 20), Math.max(0, width - 280))}px`;
    this.tip.style.top = `${rowTop(this.grid, row + 1) + 2}px`;
  }

  // --- words --------------------------------------------------------------------------------------

  private showSummary(): void {
    const data = this.data;
    if (data === null) return;
    const { count, shown } = data.blocks;
    if (count === 0) {
      setText(this.summary, 'Nothing is mapped yet: the first request maps the first pages.');
      setAttribute(this.canvas, 'aria-label', `${this.name}: empty`);
      return;
    }
    const parts = data.states.map((state) => `${state.name} ${bytesText(state.bytes)}`);
    const cut = shown < count ? `; the first ${countText(shown)} are drawn` : '';
    const outside = data.fallbacks.count === 0 ? '' :
      `; ${countText(data.fallbacks.count)} blocks outside the arena`;
    setText(this.summary, `${countText(count)} pieces in ${countText(data.pagesMapped)} pages of ` +
        `${bytesText(data.pageBytes)}, ${countText(data.pagesEmpty)} of them empty${cut}${outside}`);
    setAttribute(this.canvas, 'aria-label', `${this.name}: ${countText(count)} pieces, ` +
        `${parts.join(', ')}. Arrow keys walk from block to block.`);
  }

  private showLegend(): void {
    const all = this.kinds.list.reduce((sum, kind) => sum + kind.bytes, 0);
    const shown = this.kinds.list.filter((kind) => kind.bytes > 0 || kind.name === this.filter);
    keepRows(this.legend, shown, () => {
      const button = make('button', { type: 'button' }, make('i'), make('b'), make('span'));
      button.addEventListener('click', () => this.toggleFilter(button.dataset['kind'] ?? ''));
      return make('li', {}, button);
    }, (row, kind) => {
      const button = row.firstElementChild as HTMLButtonElement;
      button.dataset['kind'] = kind.name;
      setAttribute(button, 'aria-pressed', String(this.filter === kind.name));
      const [swatch, name, amount] = button.children as unknown as HTMLElement[];
      if (swatch === undefined || name === undefined || amount === undefined) return;
      swatch.className = `swatch pattern-${kind.paint.pattern}`;
      swatch.style.backgroundColor = kind.paint.colour;
      setText(name, kind.name);
      setText(amount, ` ${bytesText(kind.bytes)}, ${all > 0 ? ratioText(kind.bytes / all) : '–'}, ` +
          `${countText(kind.blocks)} ×`);
    });
  }

  // --- drawing ------------------------------------------------------------------------------------

  private resize(): void {
    const width = Math.max(200, this.frame.clientWidth);
    const rows = width >= 560 ? ROWS_WIDE : ROWS_NARROW;
    const probe = gridFor(width, 100);
    this.height = rows * (probe.rowHeight + probe.gap) - probe.gap;
    this.grid = gridFor(width, this.height);
    this.canvas.style.height = `${this.height}px`;
    this.redraw();
  }

  private redraw(): void {
    if (this.isDrawPending) return;
    this.isDrawPending = true;
    requestAnimationFrame(() => {
      this.isDrawPending = false;
      this.draw();
    });
  }

  private draw(): void {
    if (this.data === null) return;
    this.painter.draw({ data: this.data, layout: this.layout, kinds: this.kinds, view: this.view,
      filter: this.filter, fitBytes: this.fitBytes, cursor: this.cursor() }, this.grid, this.height);
  }
}

/** Into the section of that name, in the place that is kept for it. */
export const livePanel = (): MapPanel => new MapPanel(element('map-body'), 'Memory map');
