// The live page: asks /api/v1/stats once a second while it is visible, and draws what it gets.
// Nothing here changes anything in the process, and nothing comes from anywhere else.
'use strict';

const POLL_MS = 1000;
const TIMEOUT_MS = 3000;
const STALE_AFTER_MISSES = 3;
const WINDOW_MS = 60 * 1000;
const HISTORY = 120;  // polls shown by the small curves
const SMALLEST_LOG2 = 12;
const PAGE_BYTES = 2 * 1024 * 1024;
const MOST_RANGES = 4;

const PARTS = [
  ['live', 'live_requested_bytes', 'live', 'asked for, in use'],
  ['waste', 'waste_bytes', 'waste', 'rounding, slab tails'],
  ['cached', 'cached_bytes', 'cached', 'freed, kept at hand'],
  ['pending', 'pending_bytes', 'pending', 'freed, work still runs'],
  ['free', 'free_bytes', 'free', 'for any stream'],
];
const TRIM_TEXT = {
  api: 'asked for',
  idle: 'unused for long',
  pressure: 'for others on the device',
  out_of_memory: 'before a failure',
};
const MISS_TEXT = {
  size: 'larger than the limit',
  budget: 'limit or device full',
  pending: 'stream work running',
  fragmented: 'pieces too short',
  cold: 'the pool grew',
};

// Empty pages are moved, not only counted.
const moves = (stats) => stats.recycling !== 'off' && stats.backing === 'vmm';

const element = (id) => document.getElementById(id);
const setText = (id, text) => {
  const node = element(id);
  if (node.textContent !== text) node.textContent = text;
};

function make(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

function bytesText(bytes) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  const digits = unit === 0 || value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return `${value.toFixed(digits)} ${units[unit]}`;
}

const sizeText = (bytes) => bytesText(bytes).replace(/\.0+ /, ' ');
const countText = (count) => Math.round(count).toLocaleString('en-US');
const shareText = (part, whole) => (whole > 0 ? `${(100 * part / whole).toFixed(1)} %` : '–');
const ratioText = (ratio) => `${(100 * ratio).toFixed(1)} %`;

function rateText(perSecond) {
  if (perSecond === null) return '';
  return perSecond >= 100 || perSecond === 0 ? countText(perSecond) : perSecond.toFixed(1);
}

function durationText(seconds) {
  const days = Math.floor(seconds / 86400);
  const hours = Math.floor(seconds / 3600) % 24;
  const minutes = Math.floor(seconds / 60) % 60;
  if (days > 0) return `${days} d ${hours} h`;
  if (hours > 0) return `${hours} h ${minutes} min`;
  if (minutes > 0) return `${minutes} min ${Math.floor(seconds) % 60} s`;
  return `${Math.floor(seconds)} s`;
}

// What was seen: [{at, stats}], the last minute of it, and values for the curves.
const seen = [];
const curves = new Map();

function remember(stats) {
  const now = performance.now();
  // A pool that started anew counts from 0 again: what was seen of the one before is no base.
  if (seen.length > 0 && stats.start_unix_ns !== seen[seen.length - 1].stats.start_unix_ns) {
    seen.length = 0;
    curves.clear();
  }
  seen.push({at: now, stats});
  while (seen.length > 2 && now - seen[0].at > WINDOW_MS) seen.shift();
}

// How much a counter rose since the last poll and in the last minute, and over how long.
function rise(name) {
  const last = seen[seen.length - 1];
  const before = seen[Math.max(0, seen.length - 2)];
  const first = seen[0];
  return {
    now: last.stats[name] - before.stats[name],
    minute: last.stats[name] - first.stats[name],
    seconds: (last.at - first.at) / 1000,
  };
}

// Over how long a rise was seen; the page knows nothing of before it was opened.
function spanText(change) {
  return change.seconds < 59 ? `${Math.round(change.seconds)} s` : 'minute';
}

function perSecond(name) {
  const change = rise(name);
  return change.seconds > 0 ? change.minute / change.seconds : null;
}

function drawCurve(name, value, top) {
  const values = curves.get(name) || [];
  values.push(value);
  if (values.length > HISTORY) values.shift();
  curves.set(name, values);
  const highest = top || Math.max(...values, 1e-9);
  // An interval in which there was nothing to measure has no point: it is no zero.
  const points = values.flatMap((v, i) => {
    if (v === null) return [];
    const x = 120 - (values.length - 1 - i) * (120 / (HISTORY - 1));
    const y = 26 - 24 * Math.min(v / highest, 1);
    return [`${x.toFixed(1)},${y.toFixed(1)}`];
  });
  element(`${name}-spark`).firstElementChild.setAttribute('points', points.join(' '));
}

function drawState(stats) {
  let level = 'ok';
  let word = 'ok';
  let text = '';
  const failed = rise('failures').minute;
  const required = stats.threshold_required_block_bytes;
  if (failed > 0) {
    [level, word] = ['bad', 'out of memory'];
    text = `${countText(failed)} requests failed in the last minute`;
  } else if (required > 0 && stats.largest_satisfiable_bytes < required) {
    [level, word] = ['bad', 'at risk'];
    text = `${sizeText(required)} is required, ` +
        `${bytesText(stats.largest_satisfiable_bytes)} would fit`;
  } else if (stats.fragmentation_ratio > stats.threshold_fragmentation_ratio) {
    [level, word] = ['warn', 'fragmented'];
    text = `${ratioText(stats.fragmentation_ratio)} is above ` +
        ratioText(stats.threshold_fragmentation_ratio);
  }
  if (element('state').dataset.level !== level) element('state').dataset.level = level;
  setText('state-word', word);
  setText('state-text', text);
}

function drawTiles(stats) {
  const limit = stats.limit_in_force_bytes || stats.limit_bytes;
  setText('requested', bytesText(stats.live_requested_bytes));
  setText('requested-note', `peak ${bytesText(stats.peak_requested_bytes)}, ` +
      `now ${countText(stats.live_blocks)} blocks`);
  drawCurve('requested', stats.live_requested_bytes, limit);
  setText('held', bytesText(stats.held_bytes));
  setText('held-note', `${shareText(stats.held_bytes, limit)} of ${bytesText(limit)}`);
  drawCurve('held', stats.held_bytes, limit);
  setText('free', bytesText(stats.free_bytes));
  setText('free-note', `and ${bytesText(stats.device_free_bytes)} free on the device`);
  drawCurve('free', stats.free_bytes, 0);
  setText('fragmentation', ratioText(stats.fragmentation_ratio));
  setText('fragmentation-note', `alert above ${ratioText(stats.threshold_fragmentation_ratio)}`);
  drawCurve('fragmentation', stats.fragmentation_ratio, 1);
  drawHitRate();
  setText('largest-free', bytesText(stats.largest_free_block_bytes));
  setText('largest-satisfiable', bytesText(stats.largest_satisfiable_bytes));
  setText('largest-satisfiable-note', stats.threshold_required_block_bytes > 0 ?
      `required: ${sizeText(stats.threshold_required_block_bytes)}` : moves(stats) ?
    'by growth and by moving pages' : 'up to the limit, by growth');
  drawCounter('driver-calls', 'driver_calls');
  drawCounter('fallbacks', 'fallbacks');
  drawCounter('failures', 'failures');
  element('failures-tile').classList.toggle('is-bad', stats.failures > 0);
}

function drawHitRate() {
  const requests = rise('requests');
  const hits = rise('hits');
  const now = requests.now > 0 ? hits.now / requests.now : null;
  const minute = requests.minute > 0 ? hits.minute / requests.minute : null;
  const shown = now === null ? minute : now;
  setText('hit-rate', shown === null ? '–' : ratioText(shown));
  const rate = rateText(perSecond('requests'));
  setText('hit-rate-note', requests.seconds === 0 ? '\u00a0' :
      minute === null ? `no requests in the last ${spanText(requests)}` :
      `${ratioText(minute)} in the last ${spanText(requests)}, ${rate}/s`);
  drawCurve('hit-rate', shown, 1);
}

function drawCounter(id, name) {
  setText(id, countText(seen[seen.length - 1].stats[name]));
  const change = rise(name);
  setText(`${id}-note`, change.seconds > 0 ?
      `${countText(change.minute)} in the last ${spanText(change)}` : '\u00a0');
}

function showLegend(item, bytes, limit) {
  item.querySelector('.amount').textContent = bytesText(bytes);
  item.querySelector('.share').textContent = ` ${shareText(bytes, limit)}`;
}

function drawMemory(stats) {
  const limit = Math.max(stats.limit_in_force_bytes || stats.limit_bytes, stats.held_bytes, 1);
  const bar = element('memory-bar');
  const legend = element('memory-legend');
  if (bar.childElementCount === 0) {
    for (const [key, , name, meaning] of [...PARTS,
        ['unheld', '', 'not held', 'left up to the limit']]) {
      if (key !== 'unheld') bar.append(make('div', `part-${key}`));
      const item = make('li');
      const label = make('span');
      label.append(make('b', '', name), make('span', 'share'));
      item.append(make('i', `part-${key}`), label, make('span', 'amount'),
          make('small', '', meaning));
      legend.append(item);
    }
  }
  const said = [];
  PARTS.forEach(([, field, name], i) => {
    const share = stats[field] / limit;
    const part = bar.children[i];
    part.style.width = `${100 * share}%`;
    part.hidden = stats[field] === 0;
    const fits = share > 0.07;
    part.classList.toggle('is-thin', !fits);
    const text = fits ? name : '';
    if (part.textContent !== text) part.textContent = text;
    showLegend(legend.children[i], stats[field], limit);
    said.push(`${name} ${bytesText(stats[field])}`);
  });
  showLegend(legend.lastElementChild, limit - stats.held_bytes, limit);
  bar.setAttribute('aria-label', `Of ${bytesText(limit)}: ${said.join(', ')}`);
  setText('memory-scale', stats.limit_in_force_bytes < stats.limit_bytes ?
      `limit ${bytesText(stats.limit_bytes)}, ${bytesText(limit)} in force: others hold the rest` :
      `the bar is the limit, ${bytesText(limit)}`);
  setText('axis-half', bytesText(limit / 2));
  setText('axis-full', bytesText(limit));
}

// Rows of name, bar and amount; made once for each name, then only changed.
function drawRows(id, rows, emptyText, isWide) {
  const box = element(id);
  if (rows.length === 0) {
    box.replaceChildren(make('p', 'empty', emptyText));
    return;
  }
  if (box.firstElementChild && !box.firstElementChild.classList.contains('row')) {
    box.replaceChildren();
  }
  while (box.childElementCount > rows.length) box.lastElementChild.remove();
  while (box.childElementCount < rows.length) {
    const row = make('div', isWide ? 'row is-wide' : 'row');
    const track = make('div', 'track');
    track.append(make('div', 'fill'));
    const name = make('span', 'name');
    name.append(make('span'), make('span', 'hint'));
    row.append(name, track, make('span', 'amount'));
    box.append(row);
  }
  const most = Math.max(...rows.map((row) => row.value), 1e-9);
  rows.forEach((row, i) => {
    const [name, track, amount] = box.children[i].children;
    const hint = row.hint ? ` ${row.hint}` : '';
    name.title = row.name + hint;
    if (name.firstElementChild.textContent !== row.name) name.firstElementChild.textContent = row.name;
    if (name.lastElementChild.textContent !== hint) name.lastElementChild.textContent = hint;
    // What is there is seen, however little it is.
    const share = row.value > 0 ? Math.max(100 * row.value / (row.most || most), 0.8) : 0;
    track.firstElementChild.style.width = `${share}%`;
    if (amount.textContent !== row.amount) amount.textContent = row.amount;
    box.children[i].classList.toggle('is-zero', row.value === 0);
  });
}

function drawFreeBlocks(stats) {
  const rows = [];
  stats.free_runs_by_log2.forEach((runs, log2) => {
    const buddies = stats.free_buddies_by_log2[log2];
    if (log2 < SMALLEST_LOG2 || runs + buddies === 0) return;
    const bytes = stats.free_run_bytes_by_log2[log2] + buddies * 2 ** log2;
    rows.push({name: `≥ ${sizeText(2 ** log2)}`, value: bytes,
      amount: `${countText(runs + buddies)} × · ${bytesText(bytes)}`});
  });
  rows.reverse();
  drawRows('runs', rows, 'No free block: what the pool holds is in use or in caches.');
}

// Where pages move, too short pieces are a reason to move some, and no loss.
function missText(name, stats) {
  if (name === 'fragmented' && moves(stats)) return 'pages moved';
  return MISS_TEXT[name] || '';
}

function drawRequests(stats) {
  setText('requests-total', `${countText(stats.requests)} in all, ` +
      `${shareText(stats.hits, stats.requests)} hits`);
  const amount = (count) => `${countText(count)} · ${shareText(count, stats.requests)}`;
  drawRows('tiers', Object.entries(stats.hits_by_tier).map(([name, count]) =>
    ({name: name.replace('_', ' '), value: count, most: Math.max(stats.hits, 1),
      amount: amount(count)})), '', false);
  drawRows('misses', Object.entries(stats.misses_by_reason).map(([name, count]) =>
    ({name, hint: missText(name, stats), value: count, most: Math.max(stats.misses, 1),
      amount: countText(count)})), '', true);
}

function drawTags(stats) {
  const tags = Object.entries(stats.tag_live_bytes);
  const tagged = tags.reduce((sum, [, bytes]) => sum + bytes, 0);
  tags.push(['untagged', Math.max(0, stats.live_requested_bytes - tagged)]);
  tags.sort((a, b) => b[1] - a[1]);
  drawRows('tags', tags.map(([name, bytes]) =>
    ({name, value: bytes, most: Math.max(stats.live_requested_bytes, 1),
      amount: `${bytesText(bytes)} · ${shareText(bytes, stats.live_requested_bytes)}`})), '',
  false);
}

function fitText(size, stats) {
  if (!size.fits) return '✗ no';
  if (size.bytes <= stats.largest_free_block_bytes) return '✓ at once';
  const room = (stats.limit_in_force_bytes || stats.limit_bytes) - stats.held_bytes;
  return moves(stats) && (stats.recycling === 'eager' || size.bytes > room) ?
      '✓ by moving pages' : '✓ by growth';
}

function drawWatched(stats) {
  const box = element('watched');
  if (stats.watched.length === 0) {
    box.replaceChildren(make('p', 'empty', 'No size is watched (pool.watched_sizes).'));
    return;
  }
  box.replaceChildren(...stats.watched.map((size) => {
    const row = make('div', 'row is-text');
    row.append(make('span', 'name', sizeText(size.bytes)),
        make('span', 'hint', `${shareText(size.unusable_free_bytes, stats.free_bytes)} ` +
            'of free is shorter'),
        make('b', size.fits ? 'yes' : 'no', fitText(size, stats)));
    return row;
  }));
}

function secondsText(ns) {
  const seconds = ns / 1e9;
  if (seconds >= 100) return durationText(seconds);
  return seconds >= 1 ? `${seconds.toFixed(1)} s` : `${(1000 * seconds).toFixed(1)} ms`;
}

// What a time counter rose in the last minute, as a share of that; 100 % is one thread, always.
function timeShareText(name) {
  const change = rise(name);
  return change.seconds > 0 ?
    `${(change.minute / 1e7 / change.seconds).toFixed(2)} % of the last ${spanText(change)}` : '';
}

function trimText(stats) {
  const parts = Object.entries(stats.trimmed_bytes_by_reason).filter(([, bytes]) => bytes > 0)
      .map(([name, bytes]) => `${bytesText(bytes)} ${TRIM_TEXT[name] || name}`);
  return parts.join(', ') || 'nothing was trimmed';
}

function showFact(id, value, note) {
  setText(id, value);
  setText(`${id}-note`, note || '\u00a0');
}

function drawMoving(stats) {
  const slack = stats.recycling === 'eager' ? `, ${ratioText(stats.slack)} slack` : '';
  const policy = stats.recycling === 'off' ? 'off: empty pages stay where they are' :
    moves(stats) ? `${stats.recycling}${slack}, alias reuse ${stats.alias_reuse}` :
    `${stats.recycling}${slack}: segments do not move, empty ones go back`;
  setText('moving-policy', policy);
  const moved = rise('pages_recycled');
  showFact('moved', bytesText(stats.pages_recycled * PAGE_BYTES), moved.seconds > 0 ?
      `${bytesText(moved.minute * PAGE_BYTES)} in the last ${spanText(moved)}` : '');
  showFact('moving-time', secondsText(stats.recycle_ns), timeShareText('recycle_ns'));
  showFact('waited', secondsText(stats.driver_wait_ns), timeShareText('driver_wait_ns'));
  showFact('grown', bytesText(stats.pages_mapped * PAGE_BYTES),
      `peak held ${bytesText(stats.peak_held_bytes)}`);
  showFact('given-back', bytesText(stats.pages_unmapped * PAGE_BYTES), trimText(stats));
  const stale = stats.stale_pages > 0 ?
    `, ${bytesText(stats.stale_pages * PAGE_BYTES)} left behind` : '';
  showFact('addresses', shareText(stats.address_range_used_bytes, stats.address_range_bytes),
      stats.address_ranges === 0 ? 'segments need no range' :
      `of ${bytesText(stats.address_range_bytes)}, range ${stats.address_ranges} of ` +
          `${MOST_RANGES}${stale}`);
}

function draw(answer) {
  const stats = answer.stats;
  remember(stats);
  const device = answer.device;
  setText('pool-name', answer.pool);
  setText('identity', [`device ${device.ordinal}: ${device.name}`, device.uuid,
    `backing ${stats.backing}`, `cross-stream ${stats.policy}`,
    `up ${durationText((stats.time_ns - stats.start_time_ns) / 1e9)}`]
      .filter((part) => part).join('  ·  '));
  drawState(stats);
  drawTiles(stats);
  drawMemory(stats);
  drawMoving(stats);
  drawFreeBlocks(stats);
  drawRequests(stats);
  drawTags(stats);
  drawWatched(stats);
  const limit = stats.limit_in_force_bytes || stats.limit_bytes;
  document.title = `${shareText(stats.held_bytes, limit)} held · gpupool ${answer.pool}`;
  setText('updated', `updated ${new Date().toLocaleTimeString()}`);
}

let misses = 0;
let lastAnswer = null;
let timer = 0;
let isAsking = false;

function showStale(isStale, reason) {
  element('stale').hidden = !isStale;
  document.body.classList.toggle('is-stale', isStale);
  if (!isStale) return;
  const since = lastAnswer ? `since ${lastAnswer.toLocaleTimeString()}` : 'yet';
  setText('stale', `No answer ${since} (${reason}). ` +
      'What is shown is old; the page goes on asking.');
  element('state').dataset.level = 'unknown';
  setText('state-word', 'no answer');
  setText('state-text', '');
}

async function poll() {
  clearTimeout(timer);
  if (document.hidden || isAsking) return;  // asked again when it is visible
  isAsking = true;
  const started = performance.now();
  try {
    const response = await fetch('/api/v1/stats',
        {cache: 'no-store', signal: AbortSignal.timeout(TIMEOUT_MS)});
    if (!response.ok) throw new Error(`status ${response.status}`);
    draw(await response.json());
    misses = 0;
    lastAnswer = new Date();
    showStale(false);
  } catch (error) {
    misses += 1;
    if (misses >= STALE_AFTER_MISSES) showStale(true, error.message);
  }
  isAsking = false;
  timer = setTimeout(poll, Math.max(0, POLL_MS - (performance.now() - started)));
}

document.addEventListener('visibilitychange', poll);
poll();
