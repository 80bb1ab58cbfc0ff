// The distribution's Chromium, driven without any display; and what is asked of every page: that it
// has said no error and asked no other host.
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';

const live = fileURLToPath(new URL('../../dashboards/live/', import.meta.url));
const require = createRequire(`${live}package.json`);

export const CHROMIUM = ['/usr/bin/chromium', '/usr/bin/chromium-browser']
  .find((path) => existsSync(path));
export const hasPackages = existsSync(`${live}node_modules/playwright-core`);

export async function launch() {
  const { chromium } = require('playwright-core');
  return chromium.launch({
    executablePath: CHROMIUM,
    args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--force-color-profile=srgb'],
  });
}

export const axePath = () => require.resolve('axe-core/axe.min.js');

/** A page in a context of its own, with the list of what went wrong in it. */
export async function open(browser, url, options = {}) {
  const context = await browser.newContext({
    viewport: { width: 1280, height: 900 }, colorScheme: 'light', reducedMotion: 'reduce', ...options });
  const page = await context.newPage();
  const wrong = [];
  page.on('pageerror', (error) => wrong.push(`error: ${error.message}`));
  page.on('console', (message) => {
    // A connection that the browser had opened ahead, and the server has ended meanwhile.
    if (message.text().includes('net::ERR_SOCKET_NOT_CONNECTED')) return;
    if (message.type() === 'error' || message.type() === 'warning') wrong.push(message.text());
  });
  page.on('request', (request) => {
    const to = new URL(request.url());
    if (to.protocol !== 'blob:' && to.origin !== new URL(url).origin) {
      wrong.push(`asked ${request.url()}`);
    }
  });
  await page.goto(url);
  return { page, wrong, close: () => context.close() };
}

/** The page has had its first answer, and its map. */
export async function ready(page) {
  await page.waitForFunction(() => document.getElementById('updated')?.textContent !== 'Not updated yet');
  await page.waitForFunction(() => document.querySelector('#map-body .summary')?.textContent !== '');
}
