// One dashboard as Grafana draws it: its panel frames, graphs, tiles, bars and tables are the components
// of @grafana/ui, its units, colours, overrides and transformations the functions of @grafana/data. What
// is not in these packages is drawn here and looks alike: the grid, the headings of rows, the state
// timeline and the marks of annotations. No Grafana server takes part.
import {
  FieldColorModeId, FieldType, applyFieldOverrides, cacheFieldDisplayNames, createTheme, dateTime,
  getDisplayProcessor, getFieldDisplayName, getFieldDisplayValues, standardFieldConfigEditorRegistry,
  standardTransformers, standardTransformersRegistry, toDataFrame, transformDataFrame,
} from '@grafana/data';
import { BarGauge, BigValue, GlobalStyles, PanelChrome, ThemeContext, TimeSeries, VizRepeater } from '@grafana/ui';
import { TableNG } from '@grafana/ui/unstable';
import { createRoot } from 'react-dom/client';
import { useLayoutEffect, useRef } from 'react';
import { lastValueFrom } from 'rxjs';

const { dashboard, answers, marks, from, to, mode, width: PAGE_WIDTH } = window.PICTURE;
const theme = createTheme({ colors: { mode } });
const GAP = 8;
const ROW = 30;
const timeRange = {
  from: dateTime(from * 1000), to: dateTime(to * 1000),
  raw: { from: dateTime(from * 1000), to: dateTime(to * 1000) },
};

const PROPERTIES = ['unit', 'min', 'max', 'decimals', 'color', 'thresholds', 'mappings', 'noValue', 'displayName', 'links'];
const CUSTOM = ['stacking', 'fillOpacity', 'lineWidth', 'lineStyle', 'cellOptions', 'width', 'align', 'filterable',
  'drawStyle', 'hideFrom', 'lineInterpolation', 'showPoints', 'spanNulls', 'axisSoftMin', 'axisSoftMax'];
const property = (id, isCustom) => ({
  id: isCustom ? `custom.${id}` : id, path: id, name: id, isCustom, settings: {},
  editor: () => null, override: () => null, process: (value) => value, shouldApply: () => true,
});
standardFieldConfigEditorRegistry.setInit(() => PROPERTIES.map((id) => property(id, false)));
for (const id of CUSTOM) standardFieldConfigEditorRegistry.register(property(id, true));
standardTransformersRegistry.setInit(() => ['merge', 'filterFieldsByName', 'organize', 'renameByRegex']
  .map((id) => Object.values(standardTransformers).find((one) => one?.id === id))
  .map((one) => ({ id: one.id, name: one.name, transformation: () => Promise.resolve(one), editor: () => null })));

function legend(target, labels) {
  if (!target.legendFormat) return JSON.stringify(labels);
  return target.legendFormat.replace(/\{\{\s*(\w+)\s*\}\}/g, (_, name) => labels[name] ?? '');
}

/** Frames as Grafana's data source makes them of Prometheus' answers. */
function seriesFrames(panel) {
  return panel.targets.flatMap((target) => answers[panel.id][target.refId].map(({ metric, values }) => toDataFrame({
    refId: target.refId,
    fields: [
      { name: 'Time', type: FieldType.time, values: values.map(([at]) => at * 1000), config: {} },
      { name: 'Value', type: FieldType.number, labels: metric, values: values.map(([, value]) => Number(value)),
        config: { displayNameFromDS: legend(target, metric) } },
    ],
  })));
}

function tableFrames(panel) {
  return panel.targets.map((target) => {
    const rows = answers[panel.id][target.refId];
    const names = [...new Set(rows.flatMap(({ metric }) => Object.keys(metric)))].sort();
    const value = panel.targets.length > 1 ? `Value #${target.refId}` : 'Value';
    return toDataFrame({
      refId: target.refId,
      fields: [
        { name: 'Time', type: FieldType.time, values: rows.map(() => to * 1000), config: {} },
        ...names.map((name) => ({ name, type: FieldType.string, values: rows.map(({ metric }) => metric[name] ?? ''), config: {} })),
        { name: value, type: FieldType.number, values: rows.map((row) => Number(row.values.at(-1)[1])), config: {} },
      ],
    });
  });
}

async function framesOf(panel) {
  const made = panel.type === 'table' ? tableFrames(panel) : seriesFrames(panel);
  const done = await lastValueFrom(transformDataFrame(panel.transformations ?? [], made, { interpolate: (text) => text }));
  const color = panel.type === 'timeseries' ? { mode: FieldColorModeId.PaletteClassic } : { mode: FieldColorModeId.Thresholds };
  const named = applyFieldOverrides({
    data: done, theme, timeZone: 'utc', replaceVariables: (text) => text,
    fieldConfig: { ...panel.fieldConfig, defaults: { color, ...panel.fieldConfig.defaults } },
    fieldConfigRegistry: standardFieldConfigEditorRegistry,
  });
  cacheFieldDisplayNames(named);
  return named;
}

const COLORS = { 'Out of memory': 'red', 'Configuration reloads': 'blue' };

function addMarks(builder) {
  builder.addHook('draw', (plot) => {
    const { ctx, bbox } = plot;
    for (const mark of marks) {
      const x = plot.valToPos(mark.at * 1000, 'x', true);
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.save();
      ctx.strokeStyle = ctx.fillStyle = theme.visualization.getColorByName(COLORS[mark.name]);
      ctx.setLineDash([4, 4]);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      ctx.fillRect(x - 3, bbox.top + bbox.height, 6, 5);
      ctx.restore();
    }
  });
  return null;
}

function Nothing({ panel, width, height }) {
  return <div style={{ width, height, display: 'flex', alignItems: 'center', justifyContent: 'center', textAlign: 'center',
    color: theme.colors.text.secondary }}>{panel.fieldConfig.defaults.noValue}</div>;
}

function Graph({ panel, frames, width, height }) {
  return <TimeSeries frames={frames} width={width} height={height} timeRange={timeRange} timeZone="utc"
    legend={panel.options.legend} options={panel.options}>{addMarks}</TimeSeries>;
}

function displays(panel, frames) {
  const found = getFieldDisplayValues({
    fieldConfig: panel.fieldConfig, reduceOptions: panel.options.reduceOptions, theme, data: frames,
    replaceVariables: (text) => text, sparkline: panel.options.graphMode === 'area', timeZone: 'utc',
  });
  return found;
}

function Tile({ panel, frames, width, height }) {
  const values = displays(panel, frames);
  return <VizRepeater source={frames} getValues={() => values} width={width} height={height} renderCounter={0}
    orientation={width > height * 1.4 && values.length > 1 ? 'vertical' : 'horizontal'} autoGrid
    renderValue={({ value, width: w, height: h, count }) => <BigValue theme={theme} width={w} height={h} count={count}
      value={value.display} sparkline={value.sparkline} colorMode={panel.options.colorMode}
      graphMode={panel.options.graphMode} justifyMode="auto" textMode={panel.options.textMode}
      wideLayout={panel.options.wideLayout} />} />;
}

function Bars({ panel, frames, width, height }) {
  const values = displays(panel, frames);
  const { options } = panel;
  return <VizRepeater source={frames} getValues={() => values} width={width} height={height} renderCounter={0}
    orientation="horizontal" minVizHeight={options.minVizHeight} maxVizHeight={options.maxVizHeight} itemSpacing={6}
    getAlignmentFactors={(all) => all.reduce((longest, { display }) => ({
      title: display.title.length > longest.title.length ? display.title : longest.title,
      text: display.text.length > longest.text.length ? display.text : longest.text,
      suffix: (display.suffix ?? '').length > longest.suffix.length ? display.suffix : longest.suffix,
    }), { title: '', text: '', suffix: '' })}
    renderValue={({ value, width: w, height: h, alignmentFactors }) => <BarGauge theme={theme} width={w} height={h}
      value={value.display} field={value.field} display={value.view?.getFieldDisplayProcessor?.(value.colIndex)}
      orientation="horizontal" displayMode={options.displayMode} showUnfilled={options.showUnfilled}
      valueDisplayMode={options.valueMode} namePlacement={options.namePlacement} alignmentFactors={alignmentFactors} />} />;
}

function Rows({ panel, frames, width, height }) {
  return <TableNG data={frames[0]} width={width} height={height} cellHeight={panel.options.cellHeight}
    sortBy={panel.options.sortBy} showTypeIcons={false} fieldConfig={panel.fieldConfig} timeRange={timeRange}
    noValue={panel.fieldConfig.defaults.noValue} enableVirtualization={false} />;
}

/** A row a series, coloured by threshold; Grafana's own is part of its server's application. */
function Timeline({ panel, frames, width, height }) {
  const canvas = useRef(null);
  useLayoutEffect(() => {
    const context = canvas.current.getContext('2d');
    context.setTransform(2, 0, 0, 2, 0, 0);
    context.clearRect(0, 0, width, height);
    context.font = `12px ${theme.typography.fontFamily}`;
    context.textBaseline = 'middle';
    const names = frames.map((frame) => getFieldDisplayName(frame.fields[1], frame, frames));
    const left = Math.max(...names.map((name) => context.measureText(name).width)) + 12;
    const lane = (height - 52) / frames.length;
    const place = (at) => left + (at / 1000 - from) / (to - from) * (width - 8 - left);
    const step = (to - from) * 1000 / 400;
    frames.forEach((frame, index) => {
      const [time, value] = frame.fields;
      const display = value.display ?? getDisplayProcessor({ field: value, theme });
      context.fillStyle = theme.colors.text.primary;
      context.fillText(names[index], 4, (index + 0.5) * lane);
      time.values.forEach((at, i) => {
        const next = time.values[i + 1];
        const until = next !== undefined && next - at < 20 * step ? next : at + step;
        context.globalAlpha = panel.fieldConfig.defaults.custom.fillOpacity / 100;
        context.fillStyle = display(value.values[i]).color;
        const [begin, end] = [at, Math.min(until, to * 1000)].map((one) => Math.round(2 * place(one)) / 2);
        context.fillRect(begin, index * lane + 2, Math.max(0.5, end - begin), lane - 4);
        context.globalAlpha = 1;
      });
    });
    context.fillStyle = theme.colors.text.secondary;
    const spacing = [900, 1800, 3600, 7200].find((one) => (to - from) / one <= 8) ?? 14400;
    for (let at = Math.ceil(from / spacing) * spacing; at < to; at += spacing) {
      const text = new Date(at * 1000).toISOString().slice(11, 16);
      if (place(at * 1000) < width - 24) context.fillText(text, place(at * 1000) - 16, height - 40);
    }
    let x = 4;
    const { thresholds: { steps }, mappings } = panel.fieldConfig.defaults;
    const words = mappings.length > 0 ? Object.values(mappings[0].options) : steps.map(({ color, value }, index) =>
      ({ color, text: index === 0 ? `< ${100 * steps[1].value}%` : `${100 * value}%+` }));
    words.forEach(({ color, text }) => {
      context.fillStyle = theme.visualization.getColorByName(color);
      context.fillRect(x, height - 14, 14, 4);
      context.fillStyle = theme.colors.text.primary;
      context.fillText(text, x + 20, height - 12);
      x += context.measureText(text).width + 36;
    });
  });
  return <canvas ref={canvas} width={2 * width} height={2 * height} style={{ width, height }} />;
}

const KINDS = { timeseries: Graph, stat: Tile, bargauge: Bars, table: Rows, 'state-timeline': Timeline };

function isEmpty(frames) {
  return frames.length === 0 || frames.every((frame) => frame.length === 0);
}

function Panel({ panel, frames }) {
  const unit = (PAGE_WIDTH - 2 * GAP) / 24;
  const { x, y, w, h } = panel.gridPos;
  const place = { position: 'absolute', left: GAP + x * unit, top: GAP + y * (ROW + GAP),
    width: w * unit - GAP, height: h * (ROW + GAP) - GAP };
  if (panel.type === 'row') {
    return <div style={{ ...place, display: 'flex', alignItems: 'center', color: theme.colors.text.primary,
      fontSize: 16, fontWeight: 500 }}>⌄&nbsp;&nbsp;{panel.title}</div>;
  }
  const Kind = isEmpty(frames) && panel.type !== 'stat' ? Nothing : KINDS[panel.type];
  return <div id={`panel-${panel.id}`} style={place}>
    <PanelChrome title={panel.title} width={place.width} height={place.height} padding={panel.type === 'table' ? 'none' : 'md'}>
      {(width, height) => <Kind panel={panel} frames={frames} width={width} height={height} />}
    </PanelChrome>
  </div>;
}

function Page({ panels }) {
  const bottom = Math.max(...panels.map(({ panel }) => panel.gridPos.y + panel.gridPos.h));
  return <ThemeContext.Provider value={theme}>
    <GlobalStyles />
    <div id="dashboard" style={{ position: 'relative', width: PAGE_WIDTH, height: bottom * (ROW + GAP) + 2 * GAP,
      background: theme.colors.background.canvas }}>
      {panels.map(({ panel, frames }) => <Panel key={panel.id} panel={panel} frames={frames} />)}
    </div>
  </ThemeContext.Provider>;
}

document.body.style.margin = '0';
const panels = await Promise.all(dashboard.panels.map(async (panel) =>
  ({ panel, frames: panel.type === 'row' ? [] : await framesOf(panel) })));
createRoot(document.getElementById('root')).render(<Page panels={panels} />);
setTimeout(() => { document.body.dataset.drawn = 'yes'; }, 2500);
