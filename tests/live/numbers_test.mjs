// The page shows what the pool counts: the same numbers as /api/v1/stats and /metrics at the same
// instant; and what it saves can be read again, by Python, too.
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { FAILING, SCENES } from './scenes.mjs';
import { PageServer } from './server.mjs';
import { assert, nextPoll, run, spec, textOf, until, untilText } from './suite.mjs';

/** Values of a page of metrics by name and labels; of one pool the labels do not matter. */
function metricsOf(text) {
  const values = new Map();
  for (const line of text.split('\n')) {
    const match = /^(\w+)(\{[^}]*\})? (\S+)$/.exec(line);
    if (match === null) continue;
    values.set(match[1] + (match[2] ?? '').replace(/(device|pool)="[^"]*",?/g, '').replace('{}', ''),
        Number(match[3]));
  }
  return values;
}

const NO_MEMORY = ['size', 'budget', 'pending', 'fragmented', 'cold'];

spec('the page’s numbers are the pool’s, to the byte', { lines: [...SCENES.memory, 'hold'] },
    async (page, server) => {
      await server.refuse(FAILING);
      await server.tell('contiguous own 5000000');
      await nextPoll(page);
      await nextPoll(page);
      const stats = (await (await fetch(`${server.url}api/v1/stats`)).json()).stats;
      const metrics = metricsOf(await (await fetch(`${server.url}metrics`)).text());
      const failed = NO_MEMORY.reduce((sum, reason) => sum + stats.failures_by_reason[reason], 0);
      const shown = {
        allocated: [stats.live_requested_bytes, 'gpupool_requested_bytes'],
        held: [stats.held_bytes, 'gpupool_reserved_bytes'],
        free: [stats.free_bytes, 'gpupool_free_bytes'],
        largest: [stats.largest_satisfiable_bytes, 'gpupool_largest_satisfiable_bytes'],
        fragmentation: [stats.fragmentation_ratio, 'gpupool_fragmentation_ratio'],
        fallbacks: [stats.fallbacks, null],
        failures: [failed, null],
      };
      for (const [id, [value, metric]] of Object.entries(shown)) {
        const exact = Number(await page.locator(`#${id}`).getAttribute('data-exact'));
        assert.equal(exact, value, `${id} and /api/v1/stats`);
        if (metric !== null) assert.equal(metrics.get(metric), value, `${metric} and /api/v1/stats`);
      }
      assert.equal(stats.fallbacks, 1);
      assert.equal(failed, 1);
      const sum = (name) => [...metrics].filter(([key]) => key.startsWith(`${name}{`))
        .reduce((all, [, value]) => all + value, 0);
      assert.equal(sum('gpupool_fallbacks_total'), 1);
      assert.equal(sum('gpupool_out_of_memory_total'), 1);
      // Tags, free pieces and states add up to what the tiles say.
      const live = await page.locator('#tags td:nth-child(2)').evaluateAll((cells) =>
        cells.reduce((all, cell) => all + Number(cell.title), 0));
      assert.equal(live, stats.live_requested_bytes);
      assert.equal(stats.held_bytes, stats.live_requested_bytes + stats.waste_bytes +
          stats.cached_bytes + stats.pending_bytes + stats.free_bytes);
      const map = await (await fetch(`${server.url}api/v1/snapshot`)).json();
      assert.match(await textOf('#map-body .summary')(page),
          new RegExp(`^${map.blocks.count.toLocaleString('en-US')} pieces in ` +
              `${map.pages.mapped.toLocaleString('en-US')} pages`));
    });

spec('after a restart of the process the open page shows the new one, to the byte', {
  lines: [...SCENES.memory, 'hold'], allowed: /Failed to load resource/ }, async (page, server) => {
  await server.refuse(FAILING);
  await untilText(page, '#failures', /^1$/);
  const before = await textOf('#id-pid')(page);
  await server.end();
  const next = new PageServer(process.argv[2]);
  try {
    await next.tellAll([...SCENES.many.slice(0, 6), 'hold']);
    await next.serve(server.port);
    await until(page, textOf('#id-pid'), (pid) => pid !== before, 'another process');
    await page.waitForSelector('#stale', { state: 'hidden' });
    await nextPoll(page);
    const { stats } = await (await fetch(`${server.url}api/v1/stats`)).json();
    const metrics = metricsOf(await (await fetch(`${server.url}metrics`)).text());
    for (const [id, value, metric] of [
      ['allocated', stats.live_requested_bytes, 'gpupool_requested_bytes'],
      ['held', stats.held_bytes, 'gpupool_reserved_bytes'],
      ['free', stats.free_bytes, 'gpupool_free_bytes'],
      ['largest', stats.largest_satisfiable_bytes, 'gpupool_largest_satisfiable_bytes'],
      ['fragmentation', stats.fragmentation_ratio, 'gpupool_fragmentation_ratio'],
      ['failures', 0, null]]) {
      const exact = Number(await page.locator(`#${id}`).getAttribute('data-exact'));
      assert.equal(exact, value, `${id} and /api/v1/stats`);
      if (metric !== null) assert.equal(metrics.get(metric), value, `${metric} and /api/v1/stats`);
    }
    // Nothing of the one before is left: its failure, its map, its rates.
    assert.equal(await page.locator('#failure').isVisible(), false);
    const map = await (await fetch(`${server.url}api/v1/snapshot`)).json();
    await until(page, textOf('#map-body .summary'), (text) =>
      text.startsWith(`${map.blocks.count.toLocaleString('en-US')} pieces in `), 'the new map');
  } finally {
    await next.end();
  }
});

spec('a counter’s rise in the last minute is what was counted', { scene: 'healthy' },
    async (page, server) => {
      await nextPoll(page);
      await server.tell('churn 4000');
      const ratio = (p) => p.locator('#hit-ratio').getAttribute('data-exact');
      await until(page, ratio, (text) => Number(text) > 0 && Number(text) <= 1, 'a ratio');
      const before = (await (await fetch(`${server.url}api/v1/stats`)).json()).stats;
      assert.ok(before.requests > 4000);
      await untilText(page, '#hit-ratio-note', /^last \d+ s, [\d,.]+\/s$/);
    });

async function saved(page, button) {
  const [download] = await Promise.all([page.waitForEvent('download'),
    page.getByRole('button', { name: button }).click()]);
  return { name: download.suggestedFilename(), path: await download.path() };
}

const CHECK_PICKLE = `
import json, pickle, sys
snapshot = pickle.load(open(sys.argv[1], 'rb'))
assert sorted(snapshot) == ['allocator_settings', 'device_traces', 'segments'], sorted(snapshot)
live = blocks = 0
for segment in snapshot['segments']:
    assert segment['segment_type'] in ('large', 'small') and segment['segment_pool_id'] == (0, 0)
    address = segment['address']
    for block in segment['blocks']:
        assert block['address'] == address, 'blocks lie one after the other'
        assert block['state'] in ('active_allocated', 'active_pending_free', 'inactive')
        address += block['size']
        blocks += 1
        if block['state'] == 'active_allocated':
            live += block['requested_size']
    assert address == segment['address'] + segment['total_size']
    assert segment['allocated_size'] <= segment['active_size'] <= segment['total_size']
    for key in ('device', 'stream', 'requested_size', 'is_expandable', 'frames'):
        assert key in segment, key
names = {f['name'] for s in snapshot['segments'] for b in s['blocks'] for f in b['frames']}
print(json.dumps({'live': live, 'blocks': blocks, 'names': sorted(names),
                  'traces': snapshot['device_traces']}))
`;

spec('saved as JSON, and as a memory snapshot that PyTorch’s viewer reads', {
  lines: [...SCENES.memory, 'contiguous own 5000000'], options: { acceptDownloads: true } },
async (page, server) => {
  await server.refuse(FAILING);
  await page.waitForSelector('#failure-map:not([hidden]) canvas');
  const stats = (await (await fetch(`${server.url}api/v1/stats`)).json()).stats;
  const whole = await saved(page, 'Save all numbers and the map (JSON)');
  assert.match(whole.name, /^gpupool-default-\d{4}-\d\d-\d\dT\d{6}\.json$/);
  const json = JSON.parse(readFileSync(whole.path, 'utf8'));
  assert.equal(json.schema, 'gpupool.page');
  assert.equal(json.stats.live_requested_bytes, stats.live_requested_bytes);
  assert.equal(json.map.blocks.offset.length, json.map.blocks.shown);
  assert.equal(json.last_failure.requested_bytes, 2.5 * 2 ** 30);
  const mortem = await saved(page, 'Save this post-mortem (JSON)');
  const post = JSON.parse(readFileSync(mortem.path, 'utf8'));
  assert.equal(post.failure.tag, 'activations');
  assert.ok(post.map.blocks.shown > 3000);
  for (const button of ['Save the map for PyTorch', 'Save its map for PyTorch']) {
    const file = await saved(page, button);
    assert.match(file.name, /\.pickle$/);
    const read = JSON.parse(execFileSync('python3', ['-c', CHECK_PICKLE, file.path], { encoding: 'utf8' }));
    assert.equal(read.live, stats.live_requested_bytes);
    assert.deepEqual(read.names, ['activations', 'untagged', 'weights']);
    assert.equal(read.traces.length, 1);
    assert.equal(read.traces[0][0].action, 'oom');
    assert.equal(read.traces[0][0].size, 2.5 * 2 ** 30);
  }
});

run('numbers');
