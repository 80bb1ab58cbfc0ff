// Each state that the page tells apart, made by a real pool; and that a person who sees it for the
// first time finds the answers, in words that a screen reader speaks, too.
import { FAILING, SCENES } from './scenes.mjs';
import { assert, run, spec, textOf, until, untilText } from './suite.mjs';

const GiB = 2 ** 30;
const MiB = 2 ** 20;

spec('a pool that nobody has used is empty, and says so', { scene: 'empty' }, async (page) => {
  await untilText(page, '#state', /^ok empty: nothing was ever requested/);
  assert.equal(await textOf('#allocated')(page), '0 B');
  assert.match(await textOf('#map-body .summary')(page), /Nothing is mapped yet/);
  assert.match(await textOf('#driver-last')(page), /No driver call was ever made/);
  await untilText(page, '#events-empty', /No event yet/);
  assert.match(await textOf('#tags-suspect')(page), /No tag looks like a leak/);
  assert.equal(await page.locator('#failure').isVisible(), false);
});

spec('a healthy pool says what fits and what is required', { scene: 'healthy' }, async (page) => {
  await untilText(page, '#state',
      /^ok requests of up to [\d.]+ GiB fit, and 1 GiB is required; fragmentation [\d.]+ %$/);
  for (const [id, text] of [['job', '48213'], ['rank', '3 of 8'], ['device', '0: simulated'],
    ['driver', 'simulated']]) {
    assert.equal(await textOf(`#id-${id}`)(page), text);
  }
  assert.match(await textOf('#id-host')(page), /\S/);
  assert.match(await textOf('#id-pid')(page), /^\d+$/);
  assert.match(await textOf('#id-settings')(page), /^[0-9a-f]{12}$/);
  assert.match(await textOf('#id-uptime')(page), /^12 min/);
  assert.equal(await page.locator('#pool-chooser').isVisible(), false);
  assert.equal(await page.locator('#charts .chart canvas').count(), 4);
});

spec('fragmented: the threshold and what still fits stand beside the word', { scene: 'fragmented' },
    async (page) => {
      await untilText(page, '#state',
          /^fragmented fragmentation is 6\d\.\d %, above 50\.0 %: the largest request that fits is [12]\.\d+ GiB$/);
      assert.match(await textOf('#sizes')(page), /≥ 2 MiB 1,5\d\d runs 3\.00 GiB/);
    });

spec('at risk: the request that would fail is named', { scene: 'risk' }, async (page, server) => {
  await untilText(page, '#state', /^at risk the next request of 3 GiB, which this process requires, would fail: the largest that fits is [12]\.\d+ GiB$/);
  assert.equal(await page.locator('#largest-tile.is-bad').count(), 1);
  assert.match(await textOf('#largest-note')(page), /3 GiB is required: does not fit/);
  await server.tell(`require ${GiB}`);
  await untilText(page, '#state', /^fragmented /);
});

spec('out of memory: the page freezes the map and says what was wanted', { scene: 'memory' },
    async (page, server) => {
      await untilText(page, '#state', /^fragmented /);
      await server.refuse(FAILING);
      await untilText(page, '#state',
          /^out of memory .* a request of 2\.50 GiB for activations failed \(fragmented\): [12]\.\d+ GiB was the largest that would have worked\. 1 failed in all$/);
      await page.waitForSelector('#failure-map:not([hidden]) canvas');
      const text = await textOf('#failure')(page);
      for (const part of [/Wanted 2\.50 GiB for activations on stream \d+/, /Limit in force 8\.00 GiB/,
        /Largest free block [\d.]+ MiB/, /activations 2\.00 GiB 66\.7 %/, /empty the threads’ caches gave nothing/,
        /fragmented served/, /The map is frozen/]) {
        assert.match(text, part);
      }
      assert.equal(await textOf('#failures')(page), '1');
      // What happens afterwards does not reach the frozen map.
      const frozen = await textOf('#failure-map .summary')(page);
      await server.tell('free activations');
      await until(page, textOf('#map-body .summary'), (now) => now !== frozen, 'the live map moves on');
      assert.equal(await textOf('#failure-map .summary')(page), frozen);
      await untilText(page, '#events', /failure fragmented, failed: out of memory, for activations/);
    });

spec('a failure before the page was opened has a report, and no map of the page’s', {
  lines: [...SCENES.memory, `fill all 600 ${2 * MiB} activations 1`] }, async (page, server) => {
  await server.refuse(`allocate large ${8 * GiB} weights 1`);
  await untilText(page, '#failure-wanted', /^Wanted 8\.00 GiB for weights/);
  await page.reload();
  await untilText(page, '#failure-wanted', /^Wanted 8\.00 GiB for weights/);
});

spec('stale: a banner, dimmed numbers, and back when it answers again', { scene: 'healthy',
  allowed: /Failed to load resource/ }, async (page, server) => {
  await server.tell('stop');
  // Read at once, as the next poll makes it one more.
  const state = await (await page.waitForFunction(() => !document.getElementById('stale').hidden &&
    document.getElementById('state').innerText, null, { timeout: 25_000 })).jsonValue();
  assert.match(await textOf('#stale')(page), /^No answer since \d\d:\d\d:\d\d .*the page goes on asking/);
  assert.match(state.replace(/\s+/g, ' ').trim(), /^stale no answer since .* 3 polls in a row$/);
  const dimmed = await page.locator('#held').evaluate((value) => Number(getComputedStyle(value).opacity));
  assert.ok(dimmed < 1);
  await server.tell('serve');
  await page.waitForSelector('#stale', { state: 'hidden', timeout: 25_000 });
  await untilText(page, '#state', /^ok /);
});

spec('without history and events the page says what is missing', { scene: 'nothing_kept',
  allowed: /Failed to load resource.*404/ }, async (page) => {
  await untilText(page, '#charts-empty', /^No history: no history is kept here/);
  await untilText(page, '#events-empty', /^No events: no events are kept here: the pool was made without an EventLog/);
  assert.match(await textOf('#driver-last')(page), /^[\d,]+ driver calls in all; when the last one was is not kept/);
  assert.match(await textOf('#map-body .summary')(page), /pieces in/);
});

spec('many pools: each is chosen by name, and all numbers follow', { scene: 'many' }, async (page) => {
  const choice = page.locator('#pool-choice');
  await choice.waitFor({ state: 'visible' });
  assert.deepEqual(await choice.locator('option').allInnerTexts(),
      ['device 0 · default', 'device 0 · inference', 'device 1 · default']);
  await choice.selectOption({ label: 'device 0 · inference' });
  await untilText(page, '#allocated', /^1\.25 GiB$/);
  assert.equal(await textOf('#pool-name')(page), 'inference');
  await choice.selectOption({ label: 'device 1 · default' });
  await untilText(page, '#id-device', /^1: simulated$/);
});

spec('a person who sees it for the first time can answer', { scene: 'memory' }, async (page, server) => {
  await server.refuse(FAILING);
  for (let i = 0; i < 12; i += 1) {
    await server.tell(`fill leak 2 ${3 * MiB} optimizer 1`);
    await page.waitForTimeout(450);
  }
  await untilText(page, '#tags-suspect', /Leak suspected/);
  // What is spoken, from the top: headings, names and values; nothing is read off a picture.
  const spoken = (await page.locator('body').ariaSnapshot()).replace(/\s+/g, ' ');
  const answers = {
    'how much is free': /heading "Free" .{0,40}?paragraph: [\d.]+ [GM]iB/,
    'the largest request that fits': /heading "Largest request that fits" .{0,40}?paragraph: [\d.]+ GiB/,
    'which tag grows': /Leak suspected: optimizer grows\./,
    'when the last driver call was, and why': /Last driver call: [a-z ]+ of [\d.]+ MiB, (just now|\d+ s ago), for a request of 3\.00 MiB: /,
    'what the out of memory wanted': /Wanted 2\.50 GiB for activations/,
  };
  for (const [question, answer] of Object.entries(answers)) {
    assert.match(spoken, answer, question);
  }
  assert.match(await textOf('#tags tr:first-child th')(page), /▲ optimizer \(suspect\)/);
});

run('states');
