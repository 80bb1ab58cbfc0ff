// Four charts of the pool's own history, with its events as vertical lines.

import uPlot from 'uplot';
import { announce, element, make, setAttribute, setText } from './dom.js';
import type { Column, Past } from './past.js';
import { cssColour } from './theme.js';
import { bytesText, clockText, countText, ratioText, rateText } from './text.js';

interface Line {
  name: string;
  colour: string;
  dash?: number[];
  scale?: string;
  text: (value: number) => string;
  values: (past: Past) => (number | null)[];
}

interface Chart {
  id: string;
  title: string;
  question: string;
  scales: { name: string; text: (value: number) => string; highest?: number }[];
  lines: Line[];
  nothing?: string;  // what is said where there is no value at all
}

const column = (name: Column) => (past: Past): (number | null)[] => past.columns[name];

function hitRatios(past: Past): (number | null)[] {
  const requests = past.rises('requests');
  return past.rises('hits').map((hits, i) => {
    const all = requests[i];
    return hits === null || all === null || all === undefined || all === 0 ? null : hits / all;
  });
}

const BYTES = { name: 'bytes', text: bytesText };
const RATIO = { name: 'ratio', text: (value: number) => `${Math.round(100 * value)} %`, highest: 1 };
let perText = '/s';
const rate = (value: number): string => `${rateText(value)}${perText}`;
const RATE = { name: 'rate',
  text: (value: number): string => (perText === '/s' ? rate(value) : rateText(value)) };

const CHARTS: Chart[] = [
  { id: 'bytes', title: 'Memory', question: 'how near to the limit, and how much of it is used',
    scales: [BYTES], lines: [
      { name: 'allocated', colour: '--chart-1', text: bytesText, values: column('live_requested_bytes') },
      { name: 'held', colour: '--chart-2', dash: [7, 4], text: bytesText, values: column('held_bytes') },
      { name: 'limit', colour: '--chart-3', dash: [2, 3], text: bytesText,
        values: column('limit_in_force_bytes') }] },
  { id: 'fragmentation', title: 'Fragmentation and the largest block',
    question: 'when did it become hard to find a long piece', scales: [RATIO, BYTES], lines: [
      { name: 'fragmentation', colour: '--chart-3', scale: 'ratio', text: ratioText,
        values: column('fragmentation_ratio') },
      { name: 'largest free block', colour: '--chart-1', dash: [7, 4], scale: 'bytes', text: bytesText,
        values: column('largest_free_block_bytes') },
      { name: 'largest that fits', colour: '--chart-2', dash: [2, 3], scale: 'bytes', text: bytesText,
        values: column('largest_satisfiable_bytes') }] },
  { id: 'hits', title: 'Hit ratio', question: 'how many requests needed neither the driver nor a wait',
    nothing: 'no request in this time', scales: [RATIO], lines: [
      { name: 'hit ratio', colour: '--chart-1', scale: 'ratio', text: ratioText, values: hitRatios }] },
  { id: 'driver', title: 'Driver calls', question: 'how busy the driver is kept, and by moving pages',
    scales: [RATE], lines: [
      { name: 'driver calls', colour: '--chart-3', scale: 'rate', text: rate,
        values: (past) => past.perSecond('driver_calls') },
      { name: 'pages moved', colour: '--chart-1', dash: [7, 4], scale: 'rate',
        text: rate, values: (past) => past.perSecond('pages_recycled') }] },
];

const MARKERS: { column: Column; letter: string; name: string; colour: string }[] = [
  { column: 'failures', letter: 'F', name: 'failed request', colour: '--bad' },
  { column: 'reconfigurations', letter: 'C', name: 'settings changed', colour: '--dim' },
  { column: 'trims', letter: 'T', name: 'memory given back', colour: '--dim' },
];

/** Of a recording: the row that is shown, and what else is marked besides the counters. */
export interface Place {
  row: number;
  marks: { at: number; letter: string; name: string; colour: string }[];
}

/** Seconds at which a counter rose. */
function marksOf(past: Past, name: Column): number[] {
  const marks: number[] = [];
  past.columns[name].forEach((value, i, all) => {
    const before = all[i - 1];
    if (before !== undefined && value > before) marks.push((past.timesMs[i] ?? 0) / 1000);
  });
  return marks;
}

function drawPlace(plot: uPlot, past: Past, place: Place): void {
  const context = plot.ctx;
  const scale = devicePixelRatio || 1;
  const line = (at: number, colour: string, width: number, letter: string): void => {
    const x = plot.valToPos(at / 1000, 'x', true);
    context.strokeStyle = cssColour(colour);
    context.fillStyle = context.strokeStyle;
    context.lineWidth = width * scale;
    context.beginPath();
    context.moveTo(x, plot.bbox.top);
    context.lineTo(x, plot.bbox.top + plot.bbox.height);
    context.stroke();
    context.fillText(letter, x, plot.bbox.top - 3 * scale);
  };
  context.save();
  context.font = `bold ${11 * scale}px system-ui, "DejaVu Sans", sans-serif`;
  context.textAlign = 'center';
  for (const mark of place.marks) line(mark.at, mark.colour, 1.5, mark.letter);
  line(past.timesMs[place.row] ?? 0, '--mark', 2, '▼');
  context.restore();
}

function drawNothing(plot: uPlot, words: string): void {
  if (plot.data.slice(1).some((values) => values.some((value) => value !== null))) return;
  const context = plot.ctx;
  const { left, top, width, height } = plot.bbox;
  context.save();
  context.font = `${12 * (devicePixelRatio || 1)}px system-ui, "DejaVu Sans", sans-serif`;
  context.textAlign = 'center';
  context.fillStyle = cssColour('--dim');
  context.fillText(words, left + width / 2, top + height / 2);
  context.restore();
}

function drawMarks(plot: uPlot, past: Past): void {
  const context = plot.ctx;
  const scale = devicePixelRatio || 1;
  context.save();
  context.font = `${10 * scale}px system-ui, "DejaVu Sans", sans-serif`;
  context.textAlign = 'center';
  for (const marker of MARKERS) {
    context.strokeStyle = cssColour(marker.colour);
    context.fillStyle = context.strokeStyle;
    context.setLineDash([4 * scale, 3 * scale]);
    context.lineWidth = scale;
    let lettered = -Infinity;
    for (const at of marksOf(past, marker.column)) {
      const x = plot.valToPos(at, 'x', true);
      if (x < plot.bbox.left || x > plot.bbox.left + plot.bbox.width) continue;
      context.beginPath();
      context.moveTo(x, plot.bbox.top);
      context.lineTo(x, plot.bbox.top + plot.bbox.height);
      context.stroke();
      if (x - lettered < 12 * scale) continue;
      lettered = x;
      context.fillText(marker.letter, x, plot.bbox.top - 3 * scale);
    }
  }
  context.restore();
}

class ChartView {
  private plot: uPlot | null = null;
  private readonly box: HTMLElement;
  private readonly values: HTMLElement;
  private readonly figure: HTMLElement;
  private past: Past | null = null;
  private place: Place | null = null;

  constructor(private readonly chart: Chart, root: HTMLElement,
      private readonly choose: (row: number) => void) {
    this.values = make('ul', { class: 'values' });
    this.box = make('div', { class: 'plot', 'aria-hidden': 'true' });
    this.figure = make('figure', { class: 'chart', role: 'group', tabindex: '0' },
        make('figcaption', {}, make('h3', {}, chart.title), make('small', {}, chart.question)),
        this.values, this.box);
    root.append(this.figure);
    this.figure.addEventListener('keydown', (event) => this.key(event));
    new ResizeObserver(() => this.resize()).observe(this.box);
  }

  show(past: Past): void {
    this.past = past;
    const data = [past.timesMs.map((ms) => ms / 1000),
      ...this.chart.lines.map((line) => line.values(past))] as uPlot.AlignedData;
    if (this.plot === null) this.plot = this.make(data);
    else this.plot.setData(data);
    this.showValues(data, null);
  }

  showPlace(place: Place): void {
    this.place = place;
    if (this.plot === null) return;
    this.plot.redraw(false);
    this.showValues(this.plot.data, null);
  }

  restyle(): void {
    this.plot?.destroy();
    this.plot = null;
    if (this.past !== null) this.show(this.past);
  }

  /** The keyboard's way to the values of another time. */
  private key(event: KeyboardEvent): void {
    const steps: Record<string, number> = { ArrowLeft: -1, ArrowRight: 1, PageUp: -30, PageDown: 30,
      Home: -Infinity, End: Infinity };
    const step = steps[event.key];
    if (step === undefined || this.plot === null) return;
    event.preventDefault();
    const times = this.plot.data[0] ?? [];
    const from = this.plot.cursor.idx ?? times.length - 1;
    const at = Math.min(Math.max(from + step, 0), times.length - 1);
    this.plot.setCursor({ left: this.plot.valToPos(times[at] ?? 0, 'x'), top: 10 });
    this.showValues(this.plot.data, at);
    announce(this.figure.getAttribute('aria-label') ?? '');
  }

  /** The values at the pointer, or the last ones: in words, as the plot itself is a picture. */
  private showValues(data: uPlot.AlignedData, index: number | null): void {
    const last = this.place?.row ?? (data[0]?.length ?? 0) - 1;
    const at = index ?? last;
    const items = this.chart.lines.map((line, i) => {
      const value = data[i + 1]?.[at];
      return `${line.name} ${value === null || value === undefined ? '–' : line.text(value)}`;
    });
    while (this.values.childElementCount < items.length) {
      const line = this.chart.lines[this.values.childElementCount];
      const item = make('li', {}, make('i', { 'aria-hidden': 'true' }), make('span'));
      const key = item.firstElementChild as HTMLElement;
      key.style.color = `var(${line?.colour ?? '--text'})`;
      key.className = line?.dash === undefined ? 'key' : line.dash[0] === 2 ? 'key is-dotted' :
        'key is-dashed';
      this.values.append(item);
    }
    items.forEach((text, i) => setText(this.values.children[i]?.lastElementChild ?? this.values, text));
    const isHere = index === null || index === last;
    const when = isHere && this.place === null ? 'now' : isHere ? 'at the place shown' :
      clockText((data[0]?.[at] ?? 0) * 1000);
    setAttribute(this.figure, 'aria-label', `${this.chart.title}, ${when}: ${items.join(', ')}`);
  }

  private make(data: uPlot.AlignedData): uPlot {
    const line = cssColour('--line');
    const dim = cssColour('--dim');
    const font = '11px system-ui, "DejaVu Sans", sans-serif';
    const axes: uPlot.Axis[] = [{ stroke: dim, grid: { stroke: line, width: 1 },
      ticks: { stroke: line }, font, values: (_, times, __, ___, step) =>
        times.map((time) => axisText(time * 1000, step)), space: 64, size: 28, incrs: SECONDS }];
    if (this.place !== null) {
      const first = axes[0];
      if (first !== undefined) first.incrs = DECIMALS;
    }
    const scales: uPlot.Scales = { x: { time: this.place === null } };
    this.chart.scales.forEach((scale, i) => {
      const axis: uPlot.Axis = { scale: scale.name, side: i === 0 ? 3 : 1, stroke: dim, size: 66,
        font, grid: i === 0 ? { stroke: line, width: 1 } : { show: false }, ticks: { show: false },
        values: (_, values) => values.map((value) => scale.text(value)) };
      // Steps of bytes are powers of two, or the axis would read 931 MiB.
      if (scale.name === 'bytes') axis.incrs = POWERS;
      if (scale.name === 'ratio') axis.incrs = PARTS;
      axes.push(axis);
      scales[scale.name] = { range: (_, __, high) =>
        [0, scale.highest ?? Math.max(high * 1.08, 1)] };
    });
    return new uPlot({
      width: Math.max(200, this.box.clientWidth), height: 170, legend: { show: false },
      padding: [14, this.chart.scales.length > 1 ? 0 : 24, 0, 0],
      cursor: { drag: { x: false, y: false }, points: { show: false }, sync: { key: 'past' } },
      scales, axes,
      series: [{}, ...this.chart.lines.map((each): uPlot.Series => ({
        label: each.name, scale: each.scale ?? 'bytes', stroke: cssColour(each.colour),
        width: 1.6, ...(each.dash ? { dash: each.dash } : {}), points: { show: false },
        spanGaps: true }))],
      hooks: {
        draw: [(plot) => {
          if (this.past === null) return;
          drawNothing(plot, this.chart.nothing ?? 'nothing in this time');
          drawMarks(plot, this.past);
          if (this.place !== null) drawPlace(plot, this.past, this.place);
        }],
        ready: [(plot) => plot.over.addEventListener('click', () => {
          if (plot.cursor.idx !== null && plot.cursor.idx !== undefined) this.choose(plot.cursor.idx);
        })],
        setCursor: [(plot) => this.showValues(plot.data, plot.cursor.idx ?? null)],
      },
    }, data, this.box);
  }

  private resize(): void {
    this.plot?.setSize({ width: Math.max(200, this.box.clientWidth), height: 170 });
  }
}

// Of a clock without parts of a second.
const SECONDS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200,
  86400];
const DECIMALS = Array.from({ length: 14 }, (_, i) => i - 3).flatMap((power) =>
  [10 ** power, 2 * 10 ** power, 5 * 10 ** power]);
let axisText = (ms: number, step: number): string => clockText(ms).slice(0, step < 60 ? 8 : 5);
const POWERS = Array.from({ length: 51 }, (_, i) => 2 ** i);
const PARTS = [0.05, 0.1, 0.25, 0.5];

export class Charts {
  /** Of a recording: a chart was clicked at that row. */
  onChoose: (row: number) => void = () => undefined;
  private readonly views = CHARTS.map((chart) =>
    new ChartView(chart, element('charts'), (row) => this.onChoose(row)));

  show(past: Past): void {
    const isEmpty = past.timesMs.length < 2;
    element('charts').hidden = isEmpty;
    element('charts-empty').hidden = !isEmpty;
    if (isEmpty) {
      setText('charts-empty', past.missing !== '' ? `No history: ${past.missing}.` :
        'No history yet: the process keeps one row each second, and the first ones are to come.');
      setText('charts-marks', '');
      return;
    }
    for (const view of this.views) view.show(past);
    const found = MARKERS.map((marker) => {
      const count = marksOf(past, marker.column).length;
      return count === 0 ? '' : `${marker.letter}: ${marker.name} (${countText(count)})`;
    }).filter((text) => text !== '');
    if (past.operations.length > 0) found.push('▼: the place shown; click a chart to go there');
    setText('charts-marks', found.length === 0 ? 'No event in this time.' :
      `Lines: ${found.join(', ')}`);
  }

  /** The charts are of a recording from now on: all of it, with the place that is shown. */
  beRecorded(axis: (ms: number) => string): void {
    perText = ' per 1,000';
    axisText = axis;
  }

  showPlace(place: Place): void {
    for (const view of this.views) view.showPlace(place);
  }

  themeChanged(): void {
    for (const view of this.views) view.restyle();
  }
}
