// Pictures of the dashboards, to be looked at: drawn by Grafana's own components in a headless Chromium,
// with what a real Prometheus answers.
//
//   npm install --legacy-peer-deps --ignore-scripts
//   python3 past.py ../../build/release/bin/gpupool_scenarios PAST [HOURS]
//   node pictures.mjs PAST FOLDER [panels] [light | dark] [1h | 6h | ...] [UID ...]
//                                            UID-dark.png, and each panel; of the last hours
//   node pictures.mjs PAST ../../docs/pictures documents
//                                            grafana-fleet.png and so on, which documents show
//
// The Prometheus is the distribution's, on loopback, over the past that past.py has made.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, readFile, readdir, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { chromium } from 'playwright-core';
import { smaller } from '../live/png.mjs';

const HERE = fileURLToPath(new URL('.', import.meta.url));
const DASHBOARDS = `${HERE}../grafana`;
const WIDTH = 1500;
const STEPS = 400;
// What the process dashboard looks at: the job whose story it tells.
const CHOSEN = { job: '.*', job_id: '.*', device: '.*', pool: '.*' };
const ONE_PROCESS = { ...CHOSEN, instance: 'gpu-node-3:.*' };
const HOURS = { 'gpupool-process': 1.75, 'gpupool-fleet': 2.5, 'gpupool-cost': 3.5 };

async function freePort() {
  const probe = createServer().listen(0, '127.0.0.1');
  await once(probe, 'listening');
  const { port } = probe.address();
  probe.close();
  return port;
}

async function prometheus(past) {
  const address = `127.0.0.1:${await freePort()}`;
  const child = spawn('prometheus', [`--config.file=${past}/prometheus.yml`, `--storage.tsdb.path=${past}/tsdb`,
    `--web.listen-address=${address}`, '--log.level=warn', '--storage.tsdb.retention.time=10y'], { stdio: 'ignore' });
  for (let i = 0; i < 200; i += 1) {
    const answer = await fetch(`http://${address}/-/ready`).catch(() => undefined);
    if (answer?.ok) return { child, url: `http://${address}/api/v1` };
    await new Promise((done) => { setTimeout(done, 100); });
  }
  child.kill();
  throw new Error('prometheus does not answer');
}

/** As Grafana fills in what it knows of the panel. */
function fillIn(expr, variables, step, length, scrape) {
  const rate = Math.max(step + scrape, 4 * scrape);
  const values = { __rate_interval: `${rate}s`, __interval_ms: 1000 * step, __interval: `${step}s`, __range: `${length}s`, ...variables };
  return expr.replace(/\$(\w+)/g, (whole, name) => values[name] ?? whole);
}

async function ask(url, path, parameters) {
  const answer = await (await fetch(`${url}/${path}?${new URLSearchParams(parameters)}`)).json();
  if (answer.status !== 'success') throw new Error(`${parameters.query}: ${answer.error}`);
  return answer.data.result.map(({ metric, values, value }) => ({ metric, values: values ?? [value] }));
}

async function answersOf(dashboard, url, { end, scrape }, hours) {
  const to = end - scrape;
  const length = (hours ?? HOURS[dashboard.uid]) * 3600;
  const from = to - length;
  const fine = Math.ceil(length / STEPS / scrape) * scrape;
  const variables = dashboard.uid === 'gpupool-process' ? ONE_PROCESS : CHOSEN;
  const filled = (expr, step) => fillIn(expr, variables, step, length, scrape);
  const range = (expr, step) => ask(url, 'query_range', { query: filled(expr, step), start: from, end: to, step });
  const answers = {};
  for (const panel of dashboard.panels.filter(({ targets }) => targets)) {
    const step = panel.interval === '1m' ? Math.max(60, fine) : fine;
    answers[panel.id] = {};
    for (const { refId, expr, instant } of panel.targets) {
      answers[panel.id][refId] = instant
        ? await ask(url, 'query', { query: filled(expr, step), time: to })
        : await range(expr, step);
    }
  }
  const marks = [];
  for (const { name, expr, enable } of dashboard.annotations.list) {
    if (!enable) continue;
    for (const { values } of await range(expr, fine)) {
      for (const [index, [at]] of values.entries()) {
        if (index === 0 || at - values[index - 1][0] > fine) marks.push({ name, at });
      }
    }
  }
  return { dashboard, answers, marks, from, to };
}

/** The page as one script; editors of code, which no picture needs, are left out. */
async function bundle() {
  const heavy = { name: 'no-editors', setup(one) {
    one.onResolve({ filter: /^(monaco-editor|react-monaco-editor|@monaco-editor\/react)/ }, ({ path }) => ({ path, namespace: 'none' }));
    one.onLoad({ filter: /.*/, namespace: 'none' }, () => ({ contents: 'module.exports = {}', loader: 'js' }));
  } };
  const made = await build({ entryPoints: [`${HERE}page.jsx`], bundle: true, write: false, format: 'esm', jsx: 'automatic',
    logLevel: 'error', outdir: '/', minify: true, plugins: [heavy], define: { 'process.env.NODE_ENV': '"production"', global: 'window' },
    loader: { '.svg': 'dataurl', '.woff2': 'dataurl', '.ttf': 'dataurl', '.png': 'dataurl' } });
  const [content, style] = ['.js', '.css'].map((end) => made.outputFiles.find(({ path }) => path.endsWith(end)).text);
  return { content, style };
}

async function draw(browser, script, picture) {
  // All of it is in sight: what is not, a table does not draw.
  const bottom = Math.max(...picture.dashboard.panels.map(({ gridPos }) => gridPos.y + gridPos.h));
  const page = await browser.newPage({ viewport: { width: WIDTH, height: 40 * bottom }, timezoneId: 'UTC' });
  page.on('pageerror', (error) => console.error(`${picture.dashboard.uid}: ${error.message}`));
  await page.route('http://page.invalid/**', async (route) => {
    const { pathname } = new URL(route.request().url());
    if (pathname === '/') return route.fulfill({ contentType: 'text/html', body: '<!doctype html><meta charset="utf-8"><div id="root"></div>' });
    const icon = pathname.match(/img\/icons\/[\w/-]+\.svg$/)?.[0];
    if (icon === undefined) return route.fulfill({ status: 404 });
    return route.fulfill({ path: `${HERE}node_modules/@grafana/ui/dist/public/${icon}` });
  });
  await page.goto('http://page.invalid/');
  await page.evaluate((data) => { window.PICTURE = data; window.__grafana_public_path__ = '/public/'; }, { ...picture, width: WIDTH });
  await page.addStyleTag({ content: script.style });
  await page.addScriptTag({ content: script.content, type: 'module' });
  await page.waitForSelector('body[data-drawn]', { timeout: 30000 });
  return page;
}

async function pictures(browser, script, data, folder, words) {
  const isDocument = words.includes('documents');
  const modes = ['light', 'dark'].filter((mode) => words.includes(mode));
  for (const mode of isDocument ? ['dark'] : modes.length > 0 ? modes : ['light', 'dark']) {
    const page = await draw(browser, script, { ...data, mode });
    const png = await page.locator('#dashboard').screenshot();
    const name = isDocument ? `grafana-${data.dashboard.uid.replace('gpupool-', '')}` : `${data.dashboard.uid}-${mode}`;
    await writeFile(`${folder}/${name}.png`, smaller(png));
    if (words.includes('panels')) {
      for (const panel of data.dashboard.panels.filter(({ type }) => type !== 'row')) {
        await page.locator(`#panel-${panel.id}`).screenshot({ path: `${folder}/${data.dashboard.uid}-${panel.id}-${mode}.png` });
      }
    }
    await page.close();
  }
}

const [past, folder, ...words] = process.argv.slice(2);
if (folder === undefined) throw new Error('usage: node pictures.mjs PAST FOLDER [panels | documents] [WORD ...]');
await mkdir(folder, { recursive: true });
const told = JSON.parse(await readFile(`${past}/past.json`, 'utf8'));
const hours = words.map((word) => word.match(/^(\d+)h$/)?.[1]).find((found) => found);
const server = await prometheus(past);
let browser;
try {
  const script = await bundle();
  browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args: ['--no-sandbox'] });
  const uids = words.filter((word) => word.startsWith('gpupool-'));
  for (const file of (await readdir(DASHBOARDS)).filter((name) => name.endsWith('.json'))) {
    const dashboard = JSON.parse(await readFile(`${DASHBOARDS}/${file}`, 'utf8'));
    if (uids.length > 0 && !uids.includes(dashboard.uid)) continue;
    await pictures(browser, script, await answersOf(dashboard, server.url, told, hours), folder, words);
  }
} finally {
  await browser?.close();
  server.child.kill();
}
