// Pictures of the page in each of its states: node pictures.mjs PAGE_SERVER FOLDER [STATE ...]
//
// FOLDER gets STATE-light.png, -dark, -narrow; those that documents show are docs/pictures, which
// --documents writes instead, smaller.
import { mkdir } from 'node:fs/promises';
import { launch, open, ready } from '../../tests/live/browser.mjs';
import { FAILING, SCENES } from '../../tests/live/scenes.mjs';
import { PageServer } from '../../tests/live/server.mjs';

const LOOKS = {
  light: { viewport: { width: 1280, height: 900 }, colorScheme: 'light' },
  dark: { viewport: { width: 1600, height: 900 }, colorScheme: 'dark' },
  narrow: { viewport: { width: 360, height: 780 }, colorScheme: 'light' },
};

async function act(state, server, page) {
  if (state === 'memory') {
    await page.waitForTimeout(1200);
    await server.refuse(FAILING);
    await page.waitForFunction(() => !document.getElementById('failure-map').hidden);
  }
  if (state === 'leak') {
    for (let i = 0; i < 16; i += 1) {
      await server.tell(`fill leak 3 ${5 * 2 ** 20} communication 1`);
      await page.waitForTimeout(500);
    }
  }
  if (state === 'stale') {
    await server.tell('stop');
    await page.waitForSelector('#stale:not([hidden])', { timeout: 15000 });
  }
  await page.waitForTimeout(2300);
}

async function picture(program, browser, state, folder, looks) {
  for (const look of looks) {
    const server = new PageServer(program);
    await server.tellAll(SCENES[state] ?? SCENES.healthy);
    const { page, wrong, close } = await open(browser, await server.serve(), LOOKS[look]);
    await ready(page);
    await act(state, server, page);
    await page.screenshot({ path: `${folder}/${state}-${look}.png`, fullPage: true });
    if (wrong.length > 0) console.log(state, look, wrong);
    await close();
    await server.end();
  }
}

const [program, folder, ...states] = process.argv.slice(2);
if (folder === undefined) throw new Error('usage: node pictures.mjs PAGE_SERVER FOLDER [STATE ...]');
await mkdir(folder, { recursive: true });
const browser = await launch();
const looks = states.filter((word) => word in LOOKS);
const chosen = states.filter((word) => !(word in LOOKS));
const all = [...Object.keys(SCENES), 'leak', 'stale'];
for (const state of chosen.length > 0 ? chosen : all) {
  await picture(program, browser, state, folder, looks.length > 0 ? looks : Object.keys(LOOKS));
}
await browser.close();
