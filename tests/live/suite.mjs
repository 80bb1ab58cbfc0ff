// What the specs share: a browser for a file of them, a server and a page for each. Without a
// browser, or without npm's packages, a file says so and ends with 77, which ctest calls skipped.
import assert from 'node:assert/strict';
import { after, describe, it } from 'node:test';
import { CHROMIUM, hasPackages, launch, open, ready } from './browser.mjs';
import { SCENES } from './scenes.mjs';
import { PageServer } from './server.mjs';

export { assert };

const program = process.argv[2];
const missing = CHROMIUM === undefined ? 'no Chromium (Debian’s package chromium)' :
  !hasPackages ? 'no node_modules in dashboards/live (npm ci)' : '';
if (missing !== '') {
  console.log(`skipped: there is ${missing}`);
  process.exit(77);
}

const specs = [];

/** Runs the specs of a file, some at a time: what they do most is wait for the next second. */
export function run(title, concurrency = 3) {
  describe(title, { concurrency }, () => {
    const browser = launch();
    after(async () => (await browser).close());
    for (const { name, body } of specs) {
      it(name, { timeout: 90_000 }, async () => body(await browser));
    }
  });
}

/**
 * A spec of the page on the pools of a scene. `allowed`: console messages that belong to the state,
 * as of a server that does not answer.
 */
export function spec(name, { scene, lines, options = {}, allowed, path = '' }, body) {
  specs.push({ name, body: async (browser) => {
    const server = new PageServer(program);
    try {
      await server.tellAll(lines ?? SCENES[scene]);
      const url = await server.serve();
      const { page, wrong, close } = await open(browser, url + path, options);
      await ready(page);
      await body(page, server);
      const unexpected = allowed === undefined ? wrong : wrong.filter((text) => !allowed.test(text));
      assert.deepEqual(unexpected, [], 'the page is quiet, and asks nobody else');
      await close();
    } finally {
      await server.end();
    }
  } });
}

/** A spec of the page as `start` serves it: a server with its `url`, and an end. */
export function served(name, start, body, options = {}) {
  specs.push({ name, body: async (browser) => {
    const server = await start();
    try {
      const { page, wrong, close } = await open(browser, server.url, options);
      await ready(page);
      await body(page, server);
      assert.deepEqual(wrong, [], 'the page is quiet, and asks nobody else');
      await close();
    } finally {
      await server.end();
    }
  } });
}

/** Waits until what `read` finds in the page fits; the last value stands in the failure. */
export async function until(page, read, fits, what) {
  const end = Date.now() + 20_000;
  let value;
  while (Date.now() < end) {
    value = await read(page);
    if (fits(value)) return value;
    await page.waitForTimeout(60);
  }
  throw new assert.AssertionError({ message: `${what}: ${JSON.stringify(value)}` });
}

export const textOf = (selector) => async (page) =>
  (await page.locator(selector).first().innerText()).replace(/\s+/g, ' ').trim();

export const untilText = (page, selector, pattern) =>
  until(page, textOf(selector), (text) => pattern.test(text), `${selector} is to say ${pattern}`);

/** The next poll's numbers are on the page. */
export async function nextPoll(page) {
  const asked = page.waitForResponse((response) => response.url().includes('/api/v1/stats'));
  await asked;
  await page.waitForTimeout(150);
}
