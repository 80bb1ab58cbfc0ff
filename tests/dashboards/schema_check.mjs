// The dashboards by Grafana's own types: the TypeScript compiler has each as a Dashboard of
// @grafana/schema, and the options and fields of each panel as those of its kind.
//
//   node schema_check.mjs SOURCE [--self-test]
//
// --self-test breaks a dashboard in several ways, of which the compiler must see each. Exit code 77
// where dashboards/live has no node_modules.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { resolve } from 'node:path';

const [source, mode] = process.argv.slice(2);
const grafana = resolve(source, 'dashboards/grafana');
const modules = resolve(source, 'dashboards/live/node_modules');
const compiler = `${modules}/typescript/bin/tsc`;
const KINDS = { timeseries: 'TimeSeries', stat: 'Stat', bargauge: 'BarGauge', table: 'Table',
  'state-timeline': 'StateTimeline' };
const HAVE_FIELDS = new Set(['timeseries', 'table', 'state-timeline']);

// Enumerations are words in a file; and what a Prometheus adds to marks and variables is its own.
const HEAD = `
import type { AnnotationQuery, Dashboard, VariableModel } from '@grafana/schema';
type Words<T> = T extends string ? \`\${T}\` : T extends (infer One)[] ? Words<One>[] :
  T extends object ? { [Key in keyof T]: Words<T[Key]> } : T;
type Mark = Words<AnnotationQuery> & { expr: string; step: string; titleFormat: string; textFormat: string };
type Variable = Words<VariableModel> & { definition?: string };
`;

function program({ annotations, templating, ...dashboard }) {
  const lines = [HEAD, `export const marks: Mark[] = ${JSON.stringify(annotations.list, null, 1)};`,
    `export const variables: Variable[] = ${JSON.stringify(templating.list, null, 1)};`];
  for (const kind of Object.values(KINDS)) {
    lines.push(`import type * as ${kind} from '@grafana/schema/dist/esm/raw/composable/` +
        `${kind.toLowerCase()}/panelcfg/x/${kind}PanelCfg_types.gen';`);
  }
  lines.push(`export const all: Words<Dashboard> = ${JSON.stringify(dashboard, null, 1)};`);
  for (const { id, type, options, fieldConfig } of dashboard.panels.filter((one) => one.type !== 'row')) {
    const kind = KINDS[type];
    if (kind === undefined) throw new Error(`panel ${id} is a ${type}, whose types are not looked at`);
    lines.push(`export const o${id}: Words<Partial<${kind}.Options>> = ${JSON.stringify(options)};`);
    if (!HAVE_FIELDS.has(type)) continue;
    lines.push(`export const f${id}: Words<Partial<${kind}.FieldConfig>> = ` +
        `${JSON.stringify(fieldConfig.defaults.custom ?? {})};`);
  }
  return `${lines.join('\n')}\n`;
}

/** What the compiler says of dashboards by name; the names must be words. */
function compile(dashboards) {
  const folder = mkdtempSync(`${modules}/.schema-`);
  try {
    for (const [name, dashboard] of Object.entries(dashboards)) {
      writeFileSync(`${folder}/${name}.ts`, program(dashboard));
    }
    writeFileSync(`${folder}/tsconfig.json`, JSON.stringify({
      compilerOptions: { strict: true, noEmit: true, skipLibCheck: true, module: 'esnext',
        moduleResolution: 'bundler', target: 'es2022', types: [] }, include: ['*.ts'] }));
    const { stdout, stderr } = spawnSync(process.execPath, [compiler, '--pretty', 'false', '--project', folder],
        { encoding: 'utf8' });
    return `${stdout}${stderr}`;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

function broken(dashboard) {
  const panel = (copy, type) => copy.panels.find((one) => one.type === type);
  const edits = {
    tooltip: (copy) => { copy.graphTooltip = 'shared'; },
    title: (copy) => { copy.titel = copy.title; },
    position: (copy) => { delete panel(copy, 'stat').gridPos.w; },
    threshold: (copy) => { panel(copy, 'stat').fieldConfig.defaults.thresholds.mode = 'relative'; },
    legend: (copy) => { panel(copy, 'timeseries').options.legend.placement = 'left'; },
    drawing: (copy) => { panel(copy, 'timeseries').fieldConfig.defaults.custom.drawStyle = 'line graph'; },
    variable: (copy) => { copy.templating.list[1].type = 'prometheus'; },
    cells: (copy) => { panel(copy, 'table').options.cellHeight = 'tiny'; },
  };
  return Object.fromEntries(Object.entries(edits).map(([name, edit]) => {
    const copy = structuredClone(dashboard);
    edit(copy);
    return [name, copy];
  }));
}

if (!existsSync(compiler) || !existsSync(`${modules}/@grafana/schema`)) {
  console.log('skipped: there is no node_modules in dashboards/live (npm ci)');
  process.exit(77);
}
const shipped = Object.fromEntries(readdirSync(grafana).filter((name) => name.endsWith('.json')).map((name) =>
  [name.replace('.json', '').replace('-', '_'), JSON.parse(readFileSync(`${grafana}/${name}`, 'utf8'))]));
const wrong = mode === '--self-test' ? broken(shipped.gpupool_fleet) : {};
const said = compile({ ...shipped, ...wrong });
const unseen = Object.keys(wrong).filter((name) => !said.includes(`${name}.ts(`));
const faults = said.split('\n').filter((line) => line !== '' && !Object.keys(wrong).some((name) =>
  line.startsWith(' ') || line.includes(`${name}.ts(`)));
for (const name of unseen) console.log(`a broken ${name} is not seen`);
console.log(faults.length > 0 ? faults.join('\n') :
  `${Object.keys(shipped).length} dashboards, ${Object.keys(wrong).length} broken ones`);
process.exit(unseen.length > 0 || faults.length > 0 || Object.keys(shipped).length === 0 ? 1 : 0);
