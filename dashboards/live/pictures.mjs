// Pictures of the page in each of its states, to be looked at:
//
//   node pictures.mjs PAGE_SERVER FOLDER [STATE or LOOK ...]   STATE-light.png, -dark, -narrow
//   node pictures.mjs PAGE_SERVER ../../docs/pictures documents   those that documents show, smaller
//   node pictures.mjs GPUPOOL FOLDER recorded [TRACE ARGUMENTS]   of a replay; the last for documents
//   node pictures.mjs GPUPOOL FOLDER snapshot FILE   of a saved snapshot
//
// PAGE_SERVER is the build's bin/gpupool_page_server, GPUPOOL its bin/gpupool.
import { mkdir, unlink, writeFile } from 'node:fs/promises';
import { launch, open, ready } from '../../tests/live/browser.mjs';
import { jobTrace, RecordedServer } from '../../tests/live/recorded_server.mjs';
import { FAILING, SCENES } from '../../tests/live/scenes.mjs';
import { PageServer } from '../../tests/live/server.mjs';
import { smaller } from './png.mjs';

const MiB = 2 ** 20;
const LOOKS = {
  light: { viewport: { width: 1280, height: 900 }, colorScheme: 'light' },
  dark: { viewport: { width: 1600, height: 900 }, colorScheme: 'dark' },
  narrow: { viewport: { width: 360, height: 780 }, colorScheme: 'light' },
};

async function fail(page, server) {
  await page.waitForTimeout(1200);
  await server.refuse(FAILING);
  await page.waitForFunction(() => !document.getElementById('failure-map').hidden);
}

async function leak(page, server) {
  for (let i = 0; i < 24; i += 1) {
    await server.tell(`fill leak 3 ${3 * MiB} communication 1`);
    await server.tell('churn 300');
    await page.waitForTimeout(500);
  }
}

const ACTS = {
  healthy: async (page, server) => {
    for (let i = 0; i < 8; i += 1) {
      await server.tell('churn 300');
      await page.waitForTimeout(500);
    }
  },
  memory: fail,
  leak,
  stale: async (page, server) => {
    await server.tell('stop');
    await page.waitForSelector('#stale:not([hidden])', { timeout: 15000 });
  },
};

/** Runs `use` on a page of that state. */
async function withPage(program, browser, state, look, use) {
  const server = new PageServer(program);
  await server.tellAll(SCENES[state] ?? SCENES.healthy);
  const { page, close } = await open(browser, await server.serve(), look);
  await ready(page);
  await ACTS[state]?.(page, server);
  await page.waitForTimeout(2300);
  await use(page);
  await close();
  await server.end();
}

/** From the top of one element to the end of another. */
async function part(page, first, last, path) {
  const [from, to] = [await page.locator(first).boundingBox(), await page.locator(last).boundingBox()];
  const { width } = page.viewportSize();
  const png = await page.screenshot({ fullPage: true, clip: { x: 0, y: Math.max(0, from.y - 14), width,
    height: to.y + to.height - from.y + 28 } });
  await writeFile(path, smaller(png));
}

async function documents(program, browser, folder) {
  const light = { viewport: { width: 1100, height: 900 }, colorScheme: 'light' };
  await withPage(program, browser, 'healthy', light, async (page) => {
    await page.locator('#map-body').getByRole('button', { name: 'Tag', exact: true }).click();
    await page.waitForTimeout(300);
    await part(page, 'header', '#fit-form', `${folder}/page-overview.png`);
  });
  await withPage(program, browser, 'memory', light, async (page) => {
    await part(page, 'header', '#failure', `${folder}/page-out-of-memory.png`);
  });
  await withPage(program, browser, 'leak', { ...light, colorScheme: 'dark' }, async (page) => {
    await part(page, '#charts-title', '#events-kinds', `${folder}/page-past-and-tags.png`);
  });
}

/** At the worst fragmentation, in each look, and from the top to the map for documents. */
async function recorded(program, browser, folder, given) {
  const trace = `${folder}/step.trace`;
  await writeFile(trace, jobTrace());
  RecordedServer.program = program;
  const server = await RecordedServer.start(['replay', ...(given.length > 0 ? given :
    [trace, '--recycling', 'off', '--capacity', '512MiB']), '--serve']);
  try {
    const looks = { ...LOOKS, documents: { viewport: { width: 1100, height: 900 }, colorScheme: 'light' } };
    for (const [name, look] of Object.entries(looks)) {
      const { page, close } = await open(browser, server.url, look);
      await ready(page);
      await page.locator('#place-jumps').getByRole('button', { name: /▲/ }).click();
      await page.waitForTimeout(1500);
      if (name === 'documents') {
        await part(page, 'header', '#map', `${folder}/page-replay.png`);
      } else {
        await page.screenshot({ path: `${folder}/replay-${name}.png`, fullPage: true });
      }
      await close();
    }
  } finally {
    await server.end();
    await unlink(trace);
  }
}

async function snapshot(program, browser, folder, file) {
  RecordedServer.program = program;
  const server = await RecordedServer.start(['snapshot', file, '--serve']);
  try {
    for (const [name, look] of Object.entries(LOOKS)) {
      const { page, close } = await open(browser, server.url, look);
      await ready(page);
      await page.screenshot({ path: `${folder}/snapshot-${name}.png`, fullPage: true });
      await close();
    }
  } finally {
    await server.end();
  }
}

const [program, folder, ...words] = process.argv.slice(2);
if (folder === undefined) throw new Error('usage: node pictures.mjs PAGE_SERVER FOLDER [WORD ...]');
await mkdir(folder, { recursive: true });
const browser = await launch();
if (words[0] === 'recorded') {
  await recorded(program, browser, folder, words.slice(1));
} else if (words[0] === 'snapshot') {
  await snapshot(program, browser, folder, words[1]);
} else if (words.includes('documents')) {
  await documents(program, browser, folder);
} else {
  const looks = words.filter((word) => word in LOOKS);
  const states = words.filter((word) => !(word in LOOKS));
  for (const state of states.length > 0 ? states : [...Object.keys(SCENES), 'leak', 'stale']) {
    for (const look of looks.length > 0 ? looks : Object.keys(LOOKS)) {
      await withPage(program, browser, state, LOOKS[look], (page) =>
        page.screenshot({ path: `${folder}/${state}-${look}.png`, fullPage: true }));
    }
  }
}
await browser.close();
