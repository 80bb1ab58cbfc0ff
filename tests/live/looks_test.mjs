// How the page looks and behaves: light and dark, narrow and wide, on paper, without motion, by
// axe's rules; and that it asks for nothing while nobody looks.
import { readFileSync } from 'node:fs';
import { axePath } from './browser.mjs';
import { FAILING } from './scenes.mjs';
import { assert, nextPoll, run, spec, until } from './suite.mjs';

const axe = readFileSync(axePath(), 'utf8');

async function faults(page) {
  await page.evaluate(axe);
  const result = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }));
  return result.violations.filter((fault) => ['serious', 'critical'].includes(fault.impact))
    .map((fault) => `${fault.id}: ${fault.nodes.map((node) => node.html.slice(0, 120)).join(' | ')}`);
}

/** What sticks out of the window to the right. */
const wider = (page) => page.evaluate(() => {
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= width) return [];
  return [...document.querySelectorAll('body *')].filter((node) =>
    node.getBoundingClientRect().right > width + 1).map((node) => node.id || node.className).slice(0, 8);
});

/** Text that is cut off, in tiles and facts. */
const cut = (page) => page.evaluate(() => [...document.querySelectorAll('.value, .note, .facts dd')]
  .filter((node) => node.checkVisibility() && node.scrollWidth > node.clientWidth + 1)
  .map((node) => node.id || node.textContent));

for (const [name, options] of Object.entries({
  'light, 1280 px': {},
  'dark, 1600 px': { colorScheme: 'dark', viewport: { width: 1600, height: 900 } },
  'light, 360 px': { viewport: { width: 360, height: 780 } },
  'dark, 360 px': { colorScheme: 'dark', viewport: { width: 360, height: 780 } },
})) {
  spec(`${name}: nothing sticks out or is cut, and axe finds nothing serious`,
      { scene: 'memory', options }, async (page, server) => {
        await server.refuse(FAILING);
        await page.waitForSelector('#failure-map:not([hidden]) canvas');
        await nextPoll(page);
        assert.deepEqual(await wider(page), []);
        assert.deepEqual(await cut(page), []);
        assert.deepEqual(await faults(page), []);
        const back = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
        assert.equal(back, name.startsWith('dark') ? 'rgb(15, 19, 24)' : 'rgb(243, 245, 248)');
      });
}

spec('on paper: without tools, in light colours', { scene: 'healthy', options: { colorScheme: 'dark' } },
    async (page) => {
      await page.emulateMedia({ media: 'print' });
      assert.equal(await page.locator('#theme').isVisible(), false);
      assert.equal(await page.locator('#fit-form').isVisible(), false);
      assert.equal(await page.locator('#map-body canvas').isVisible(), true);
      assert.equal(await page.evaluate(() => getComputedStyle(document.body).backgroundColor),
          'rgb(255, 255, 255)');
      const text = await page.evaluate(() => getComputedStyle(document.body).color);
      assert.equal(text, 'rgb(22, 32, 44)', 'dark on white, whatever the screen has');
    });

spec('motion only for who has not asked for none', { scene: 'healthy' }, async (page) => {
  const moving = () => page.evaluate(() => [...document.querySelectorAll('body *')]
    .filter((node) => parseFloat(getComputedStyle(node).transitionDuration) > 0 ||
      getComputedStyle(node).animationName !== 'none').length);
  assert.equal(await moving(), 0);
  await page.emulateMedia({ reducedMotion: 'no-preference' });
  assert.ok(await moving() > 0, 'the check can fail');
});

spec('everything is told apart without colour', { scene: 'healthy' }, async (page) => {
  const patterns = await page.locator('#map-body .legend .swatch').evaluateAll((swatches) =>
    swatches.map((swatch) => swatch.className));
  assert.equal(new Set(patterns).size, patterns.length, 'a pattern each');
  await page.locator('#map-body').getByRole('button', { name: 'Tag', exact: true }).click();
  const tags = await page.locator('#map-body .legend .swatch').evaluateAll((swatches) =>
    swatches.map((swatch) => swatch.className + swatch.style.backgroundColor));
  assert.equal(new Set(tags).size, tags.length);
});

spec('hidden it asks for nothing, and once a second when it is seen', { scene: 'healthy' },
    async (page) => {
      let asked = 0;
      page.on('request', (request) => { asked += request.url().includes('/stats') ? 1 : 0; });
      await page.waitForTimeout(3100);
      assert.ok(asked >= 2 && asked <= 4, `${asked} in three seconds`);
      await page.evaluate(() => {
        Object.defineProperty(document, 'hidden', { get: () => true, configurable: true });
        document.dispatchEvent(new Event('visibilitychange'));
      });
      await page.waitForTimeout(1100);
      asked = 0;
      await page.waitForTimeout(2200);
      assert.equal(asked, 0);
      await page.evaluate(() => {
        delete document.hidden;
        document.dispatchEvent(new Event('visibilitychange'));
      });
      await until(page, async () => asked, (count) => count > 0, 'it goes on');
    });

spec('a pool that stands still is not asked for its map each second', {
  lines: ['pool default 0 4294967296', 'fill weights 4 100000000 weights 1'] }, async (page) => {
  let asked = 0;
  page.on('request', (request) => { asked += request.url().includes('/snapshot') ? 1 : 0; });
  await page.waitForTimeout(3200);
  assert.ok(asked <= 1, `${asked} in three seconds`);
});

run('looks');
