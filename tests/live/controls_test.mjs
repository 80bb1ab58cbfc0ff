// Each control of the page, by mouse and by keyboard alone.
import { SCENES } from './scenes.mjs';
import { assert, nextPoll, run, spec, textOf, until, untilText } from './suite.mjs';

const GiB = 2 ** 30;
const MiB = 2 ** 20;
const announced = textOf('#announcement');
const pressed = (page, text) =>
  page.getByRole('button', { name: text, exact: true }).first().getAttribute('aria-pressed');
const tool = (page, name) =>
  page.locator('#map-body').getByRole('button', { name, exact: true });

/** What the canvas shows, as one number that changes with it. */
const picture = (page, selector = '#map-body canvas') => page.locator(selector).evaluate((canvas) => {
  const data = canvas.toDataURL();
  let sum = 0;
  for (let i = 0; i < data.length; i += 1) sum = (sum * 31 + data.charCodeAt(i)) % 1_000_000_007;
  return sum;
});
const changes = async (page, act) => {
  const before = await picture(page);
  await act();
  await until(page, (p) => picture(p), (now) => now !== before, 'the map is drawn anew');
};

/** A pool that stands still, so that a picture changes by what is pressed alone. */
const still = { lines: [...SCENES.healthy, 'hold'] };

spec('the map: colouring, filter, zoom and pan by mouse', still, async (page) => {
  for (const colouring of ['Tag', 'Age', 'Stream', 'State']) {
    await changes(page, () => tool(page, colouring).click());
    assert.equal(await tool(page, colouring).getAttribute('aria-pressed'), 'true');
  }
  await tool(page, 'Tag').click();
  await untilText(page, '#map-body .legend', /optimizer 4\.50 GiB/);
  const optimizer = page.locator('#map-body .legend button', { hasText: 'optimizer' });
  await changes(page, () => optimizer.click());
  assert.equal(await announced(page), 'Only optimizer is shown in full colour');
  await optimizer.click();
  assert.equal(await announced(page), 'All blocks are shown');
  for (const name of ['Closer', 'Move towards higher addresses', 'Move towards lower addresses',
    'Farther', 'Closer', 'All of the arena']) {
    await changes(page, () => tool(page, name).click());
  }
  const box = await page.locator('#map-body canvas').boundingBox();
  await page.mouse.move(box.x + 300, box.y + 10);
  await untilText(page, '#map-body .tip', /^live 96\.0 MiB, all of it asked for, tag weights, run, stream \d+/);
  await changes(page, () => page.mouse.click(box.x + 300, box.y + 10));
  await untilText(page, '#map-body .detail', /^Selected: live 96\.0 MiB/);
  assert.equal(await announced(page), 'Only weights is shown in full colour');
  await changes(page, () => page.mouse.dblclick(box.x + 500, box.y + 60));
  await changes(page, async () => {
    await page.mouse.move(box.x + 500, box.y + 60);
    await page.mouse.down();
    await page.mouse.move(box.x + 380, box.y + 60, { steps: 4 });
    await page.mouse.up();
  });
});

spec('the map: a walk from block to block by keyboard', still, async (page) => {
  const canvas = page.locator('#map-body canvas');
  await canvas.focus();
  await page.keyboard.press('ArrowRight');
  await untilText(page, '#map-body .detail', /^Selected: .* at \+0 B$/);
  await page.keyboard.press('ArrowRight');
  await untilText(page, '#map-body .detail', /^Selected: live 96\.0 MiB.* at \+96\.0 MiB$/);
  assert.match(await announced(page), /^live 96\.0 MiB/, 'and it is spoken');
  await page.keyboard.press('ArrowLeft');
  await untilText(page, '#map-body .detail', / at \+0 B$/);
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('End');
  await page.keyboard.press('Home');
  await untilText(page, '#map-body .detail', / at \+0 B$/);
  await changes(page, () => page.keyboard.press('+'));
  await changes(page, () => page.keyboard.press('PageDown'));
  await changes(page, () => page.keyboard.press('PageUp'));
  await changes(page, () => page.keyboard.press('-'));
  await changes(page, () => page.keyboard.press('Enter'));
  assert.equal(await announced(page), 'Only live is shown in full colour');
  await page.keyboard.press('Escape');
  await untilText(page, '#map-body .detail', /^Point at a block/);
  await page.keyboard.press('0');
});

spec('would it fit: what is asked is what the pool says', {
  lines: [`pool default 0 ${8 * GiB} recycling=off`, `fill a 1024 ${2 * MiB} activations 1`,
    `allocate b ${GiB} weights 2`, 'free_every a 64', 'maintain'] }, async (page, server) => {
  const ask = async (text) => {
    await page.locator('#fit-bytes').fill(text);
    await page.keyboard.press('Enter');
  };
  await ask('2 MiB');
  await untilText(page, '#fit-answer', /^yes, at once Yes, at once: a free piece/);
  await ask('3 GiB');
  await untilText(page, '#fit-answer', /^yes, by growth Yes, by growth: no free piece is that long/);
  await ask('7 GiB');
  await untilText(page, '#fit-answer', /^no No: the largest request that fits is [\d.]+ GiB\. 8\.00 GiB is the limit/);
  await server.refuse(`allocate c ${7 * GiB} weights 1`);
  await ask('nonsense');
  await untilText(page, '#fit-answer', /^not a size/);
  // By growth alone, and by pending work of one stream.
  await server.tellAll([`allocate c ${5 * GiB} weights 2`, 'busy 2', 'free b', 'maintain']);
  await ask('1 GiB');
  await untilText(page, '#fit-answer', /^after pending work Only after pending work: 1\.00 GiB was freed/);
  const streams = await page.locator('#fit-stream option').allInnerTexts();
  assert.equal(streams.length, 3);
  await page.locator('#fit-stream').selectOption({ index: 2 });
  await untilText(page, '#fit-answer', /^yes, at once/);
  await page.locator('#fit-stream').selectOption({ index: 0 });
  await untilText(page, '#fit-answer', /^after pending work/);
  await server.tell('complete');
  await untilText(page, '#fit-answer', /^yes, at once/);
  // The slider, by keyboard.
  await page.locator('#fit-slider').focus();
  await page.keyboard.press('Home');
  await until(page, (p) => p.locator('#fit-bytes').inputValue(), (v) => v === '4 KiB', 'the least');
  await page.keyboard.press('End');
  await until(page, (p) => p.locator('#fit-bytes').inputValue(), (v) => v === '8 GiB', 'the most');
  await untilText(page, '#fit-answer', /^no /);
});

spec('tags: sorted by each column, by mouse and by keyboard', { scene: 'healthy' }, async (page) => {
  const first = textOf('#tags tr:first-child th');
  const sort = (name) => page.locator('#tags-table').getByRole('button', { name, exact: true });
  const sorted = (key) => page.locator(`#tags-table th:has(button[data-key=${key}])`)
    .getAttribute('aria-sort');
  await untilText(page, '#tags tr:first-child th', /^optimizer$/);
  await sort('Tag').click();
  assert.equal(await first(page), 'activations');
  assert.equal(await sorted('name'), 'ascending');
  await sort('Tag').focus();
  await page.keyboard.press('Space');
  assert.equal(await first(page), 'weights');
  for (const [name, key] of [['Live', 'live'], ['Peak', 'peak'], ['Share', 'share'], ['Trend', 'trend']]) {
    await sort(name).press('Enter');
    assert.equal(await sorted(key), 'descending');
    assert.equal(await sorted('name'), 'none');
  }
});

spec('events: kinds, size, words and holding still', { scene: 'memory' }, async (page, server) => {
  const rows = page.locator('#events tr');
  await until(page, () => rows.count(), (count) => count > 5, 'events come');
  for (const kind of ['driver call', 'growth', 'miss']) {
    await page.locator('#events-kinds').getByRole('button', { name: kind, exact: true }).press('Enter');
  }
  await untilText(page, '#events-empty', /^No event passes the filters/);
  await server.refuse(`allocate large ${5 * GiB} weights 1`);
  await untilText(page, '#events', /failure budget|failure fragmented/);
  await page.locator('#events-bytes').fill('6 GiB');
  await untilText(page, '#events-empty', /^No event passes/);
  await page.locator('#events-bytes').fill('');
  await page.locator('#events-text').fill('weights');
  await untilText(page, '#events', /for weights/);
  await page.locator('#events-text').fill('');
  await page.getByRole('button', { name: 'Hold still' }).click();
  const held = await rows.count();
  await server.refuse(`allocate large ${6 * GiB} weights 1`);
  await nextPoll(page);
  await nextPoll(page);
  assert.equal(await rows.count(), held);
  await page.getByRole('button', { name: 'Go on' }).click();
  await until(page, () => rows.count(), (count) => count > held, 'it goes on');
});

spec('charts: the span, and the values of another time by keyboard', still, async (page) => {
  const chart = page.locator('#charts .chart').first();
  const label = () => chart.getAttribute('aria-label');
  await until(page, label, (text) => /^Memory, now: allocated 9\.\d+ GiB, held /.test(text ?? ''), 'now');
  await chart.focus();
  await page.keyboard.press('PageUp');
  await until(page, label, (text) => /^Memory, \d\d:\d\d:\d\d: allocated /.test(text ?? ''), 'then');
  await page.getByRole('button', { name: '24 hours' }).click();
  assert.equal(await pressed(page, '24 hours'), 'true');
  await page.waitForResponse((response) => response.url().includes('resolution=15s'));
  await page.getByRole('button', { name: '15 minutes' }).press('Enter');
  assert.equal(await pressed(page, '15 minutes'), 'true');
});

spec('the theme is switched and kept, and the keyboard reaches everything', still, async (page) => {
  const theme = () => page.locator('html').getAttribute('data-theme');
  assert.equal(await theme(), 'light');
  await changes(page, () => page.locator('#theme').press('Enter'));
  assert.equal(await theme(), 'dark');
  await page.reload();
  await until(page, theme, (value) => value === 'dark', 'it is kept');
  await page.locator('#theme').click();
  assert.equal(await theme(), 'light');
  await nextPoll(page);
  // From the top, one stop after the other: every control is one, and shows that it has the focus.
  const wanted = await page.evaluate(() => [...document.querySelectorAll(
    'button, input, select, a[href], canvas[tabindex], summary')]
    .filter((node) => node.checkVisibility() && !node.disabled).length);
  await page.evaluate(() => { document.activeElement?.blur(); window.scrollTo(0, 0); });
  const reached = await page.evaluate(() => { window.stops = new Set(); });
  assert.equal(reached, undefined);
  let unseen = 0;
  for (let i = 0; i < wanted + 20; i += 1) {
    await page.keyboard.press('Tab');
    unseen += await page.evaluate(() => {
      const node = document.activeElement;
      if (node === null || node === document.body || window.stops.has(node)) return 0;
      window.stops.add(node);
      return getComputedStyle(node).outlineStyle === 'none' ? 1 : 0;
    });
  }
  const got = await page.evaluate(() => [...window.stops].filter((node) =>
    node.matches('button, input, select, a[href], canvas[tabindex], summary')).length);
  assert.ok(got >= wanted, `${got} of ${wanted} are reached`);
  assert.equal(unseen, 0, 'each shows that it has the focus');
});

run('controls');
