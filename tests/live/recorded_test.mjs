// The page on something recorded: `gpupool replay --serve` and `gpupool snapshot --serve`.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after } from 'node:test';
import { axePath } from './browser.mjs';
import { jobTrace, RecordedServer } from './recorded_server.mjs';
import { assert, run, served, textOf, until, untilText } from './suite.mjs';

const axe = readFileSync(axePath(), 'utf8');
const folder = mkdtempSync(join(tmpdir(), 'gpupool-recorded-'));
after(() => rmSync(folder, { recursive: true }));
const trace = join(folder, 'job.trace');
writeFileSync(trace, jobTrace());
const replay = () => RecordedServer.start(['replay', trace, '--serve', '--recycling', 'off',
  '--capacity', '512MiB']);

const statsAt = async (server, at) =>
  (await (await fetch(`${server.url}api/v1/stats?at=${at}`)).json()).stats;
const exact = (id) => async (page) => Number(await page.locator(id).getAttribute('data-exact'));

/** The page shows the numbers of that operation, and says so. */
async function untilPlace(page, server, at) {
  await untilText(page, '#place-text', new RegExp(`^operation ${at.toLocaleString('en-US')} of `));
  const stats = await statsAt(server, at);
  await until(page, exact('#allocated'), (bytes) => bytes === stats.live_requested_bytes, 'allocated');
  await until(page, exact('#fragmentation'), (ratio) =>
    Math.abs(ratio - stats.fragmentation_ratio) < 1e-9, 'fragmentation');
  await until(page, exact('#largest'), (bytes) => bytes === stats.largest_satisfiable_bytes, 'largest');
}

served('a replay: by keyboard and mouse to any operation, with its numbers', replay,
    async (page, server) => {
      const info = await (await fetch(`${server.url}api/v1/recording`)).json();
      await untilPlace(page, server, info.operations);
      const slider = page.locator('#place-slider');
      await slider.focus();
      await page.keyboard.press('ArrowLeft');
      await untilPlace(page, server, info.operations - 1);
      await page.keyboard.press('Home');
      await untilPlace(page, server, 0);
      await page.keyboard.press('PageUp');
      await untilPlace(page, server, Math.round(info.operations / 100));
      await page.locator('#place-on').click();
      await untilPlace(page, server, Math.round(info.operations / 100) + 1);
      const box = await slider.boundingBox();
      await page.mouse.click(box.x + box.width / 2, box.y + box.height / 2);
      const middle = Number(await slider.inputValue());
      assert.ok(Math.abs(middle - info.operations / 2) < info.operations / 50, `${middle}`);
      await untilPlace(page, server, middle);
      const before = await textOf('#map-body .summary')(page);
      const button = (name) => page.locator('#place-jumps').getByRole('button', { name });
      await button(/^Worst/).click();
      await untilPlace(page, server, info.worst.operation);
      await until(page, textOf('#map-body .summary'), (text) => text !== before, 'the map is of there');
      await button(/born/).click();
      await untilPlace(page, server, info.birth.operation);
      assert.match(await textOf('#place-birth')(page), /fragmentation rose most from operation/);
      await button(/^Start/).click();
      await button(/^Next of 1 × out of memory/).click();
      await untilPlace(page, server, info.failures.first[0].operation);
      await untilText(page, '#state-word', /out of memory/);
      await page.waitForSelector('#failure-map:not([hidden]) canvas');
      await until(page, (p) => p.evaluate(() => location.hash), (hash) =>
        hash === `#at=${info.failures.first[0].operation}`, 'the address names the place');
    });

served('a replay: the blocks between the holes are those that were left there', replay,
    async (page, server) => {
      await page.locator('#place-jumps').getByRole('button', { name: /^Worst/ }).click();
      const info = await (await fetch(`${server.url}api/v1/recording`)).json();
      await untilPlace(page, server, info.worst.operation);
      // The job frees every other block of 1 MiB.
      await untilText(page, '#between', /^1\.00 MiB untagged \d+ /);
    });

served('a replay: plays to its end, and a click on a chart goes there', replay, async (page, server) => {
  const info = await (await fetch(`${server.url}api/v1/recording`)).json();
  await untilPlace(page, server, info.operations);
  await page.locator('#place-speed').selectOption('10');
  await page.locator('#place-play').click();
  const place = async (p) => Number(await p.locator('#place-slider').inputValue());
  await until(page, place, (at) => at > 0 && at < info.operations, 'it moves');
  await page.getByRole('button', { name: 'Pause' }).click();
  const paused = await place(page);
  await untilPlace(page, server, paused);
  await page.waitForTimeout(400);
  assert.equal(await place(page), paused, 'and stands still');
  const chart = page.locator('#charts .u-over').first();
  await chart.scrollIntoViewIfNeeded();
  const box = await chart.boundingBox();
  await page.mouse.click(box.x + box.width * 0.75, box.y + box.height / 2);
  await until(page, place, (at) => Math.abs(at - info.operations * 0.75) < info.operations / 10,
      'there');
});

served('a replay is no process: nothing is asked by the clock, and nothing looks alive', replay,
    async (page, server) => {
      const asked = [];
      page.on('request', (request) => asked.push(request.url()));
      const info = await (await fetch(`${server.url}api/v1/recording`)).json();
      await untilPlace(page, server, info.operations);
      // What the page's start asks for, its worker's script among it, may come late on a busy machine;
      // a live page asks each second, so that it would never be quiet for longer.
      let before = -1;
      await until(page, async () => {
        before = asked.length;
        await page.waitForTimeout(1500);
        return asked.length;
      }, (count) => count === before, 'a page that is quiet');
      await page.waitForTimeout(2500);
      assert.deepEqual(asked.slice(before), []);
      assert.equal(await page.locator('.badge').isVisible(), true);
      assert.equal(await page.locator('#id-pid').isVisible(), false);
      assert.equal(await page.locator('#stale').isVisible(), false);
      assert.match(await page.title(), /^Recording · job · gpupool$/);
      assert.match(await textOf('#updated')(page), /recording/);
    });

for (const [name, options] of Object.entries({
  light: {}, 'dark, 360 px': { colorScheme: 'dark', viewport: { width: 360, height: 780 } },
})) {
  served(`a replay, ${name}: nothing sticks out, and axe finds nothing serious`, replay,
      async (page) => {
        await page.evaluate(axe);
        const result = await page.evaluate(() =>
          window.axe.run(document, { resultTypes: ['violations'] }));
        assert.deepEqual(result.violations
          .filter((fault) => ['serious', 'critical'].includes(fault.impact))
          .map((fault) => `${fault.id}: ${fault.nodes[0].html}`), []);
        assert.equal(await page.evaluate(() => document.documentElement.scrollWidth <=
          document.documentElement.clientWidth), true);
      }, options);
}

const snapshot = async () => {
  const server = await replay();
  const path = join(folder, 'moment.json');
  writeFileSync(path, await (await fetch(`${server.url}api/v1/snapshot`)).text());
  await server.end();
  return RecordedServer.start(['snapshot', path, '--serve']);
};

served('a snapshot: one moment, with its time and without a slider', snapshot, async (page, server) => {
  const saved = await (await fetch(`${server.url}api/v1/snapshot`)).json();
  await untilText(page, '#recorded-facts', /Snapshot moment\.json Taken /);
  assert.equal(await page.locator('#place').isVisible(), false);
  assert.equal(await page.locator('#charts').isVisible(), false);
  assert.equal(await page.locator('#hit-ratio').isVisible(), false, 'a map does not know it');
  assert.equal(await exact('#held')(page), saved.arena.held_bytes);
  assert.equal(await exact('#largest')(page), saved.arena.largest_satisfiable_bytes);
  await page.locator('#fit-bytes').fill('4 KiB');
  await page.keyboard.press('Enter');
  await untilText(page, '#fit-answer', /^yes, at once/);
});

run('recorded');
