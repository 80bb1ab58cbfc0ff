// The live page: asks once a second while it is visible, and draws what it gets. Nothing here
// changes anything in the process; hidden or closed it asks for nothing.

import 'uplot/dist/uPlot.min.css';
import { ask, nowMs, path, type FailureReport, type PoolName, type PoolsAnswer, type RecordingInfo,
  type Stats, type StatsAnswer } from './api.js';
import { drawBetween } from './between.js';
import { Charts } from './charts.js';
import { announce, element, make, setText } from './dom.js';
import { mapJson, saveJson, saveTorch } from './download.js';
import { EventList } from './events.js';
import { FitPanel } from './fit.js';
import type { MapAnswer, MapData, MapQuestion } from './map_data.js';
import { livePanel } from './map_panel.js';
import { Past, type Resolution } from './past.js';
import { PostMortem } from './postmortem.js';
import { beRecorded, drawRecordedHeader } from './recorded.js';
import { Seen } from './seen.js';
import { drawSizes } from './sizes.js';
import { stateOf } from './status.js';
import { TagTable } from './tags.js';
import { clockText } from './text.js';
import { startTheme } from './theme.js';
import { drawHeader, drawState, drawTiles } from './tiles.js';

const POLL_MS = 1000;
const STALE_AFTER_MISSES = 3;
const POOLS_EVERY = 10;
// A map of a pool that stands still changes by the blocks' ages alone.
const QUIET_MAP_MS = 10_000;

const worker = new Worker('/worker.js');
const map = livePanel();
const fit = new FitPanel((bytes) => map.markFits(bytes));
const charts = new Charts();
const tags = new TagTable();
const events = new EventList();
const postMortem = new PostMortem();
const seen = new Seen();

let pool: PoolName | null = null;
let pools: PoolName[] = [];
let past = new Past(null, '1s');
let answer: StatsAnswer | null = null;
let failure: FailureReport | null = null;
let failuresSeen = -1;
let mapData: MapData | null = null;
let mapAsked = 0;
let mapPending = false;
let mapSignature = '';
let mapAt = -Infinity;
let isMapMissing = false;
let misses = 0;
let answeredAt = 0;
let polls = 0;
let timer = 0;
let isAsking = false;
let recording: RecordingInfo | null = null;  // what is shown does not live
let isLive = true;
let mapWaits: () => void = () => undefined;

// --- the map ----------------------------------------------------------------------------------

/** Changes whenever a block does. */
function signatureOf(stats: Stats): string {
  return [stats.requests, stats.frees, stats.held_bytes, stats.cached_bytes, stats.pending_bytes,
    stats.free_bytes, stats.pages_recycled, stats.start_unix_ns].join();
}

function askForMap(stats: Stats): void {
  if (mapPending || isMapMissing) return;
  const signature = signatureOf(stats);
  if (signature === mapSignature && performance.now() - mapAt < QUIET_MAP_MS) return;
  mapSignature = signature;
  mapAt = performance.now();
  mapPending = true;
  mapAsked += 1;
  const question: MapQuestion = { id: mapAsked, path: path('snapshot', pool) };
  worker.postMessage(question);
}

worker.addEventListener('message', (event: MessageEvent<MapAnswer>) => {
  if (event.data.id !== mapAsked) return;
  mapPending = false;
  isMapMissing = event.data.missing === true;
  if (event.data.error !== undefined) mapSignature = '';
  const { data } = event.data;
  mapWaits();
  if (data === undefined) return;
  mapData = data;
  map.show(data);
  if (recording !== null) drawBetween(data, isReplayTimed() ? data.timeMs : null);
  fit.setStreams(data.streams.map((stream) => stream.id).filter((id) =>
    id > 0 && id <= Number.MAX_SAFE_INTEGER).sort((a, b) => a - b));
  if (answer !== null && failure !== null) postMortem.note(answer, failure, events.events, data);
});

const isReplayTimed = (): boolean => recording?.kind === 'replay' && recording.has_time;

// --- pools ------------------------------------------------------------------------------------

function choose(chosen: PoolName): void {
  pool = chosen;
  seen.clear();
  failure = null;
  failuresSeen = -1;
  mapData = null;
  mapSignature = '';
  mapPending = false;
  mapAsked += 1;  // what is on its way is another pool's
  past = new Past(pool, past.resolution);
  events.choose(pool);
  fit.choose(pool);
  postMortem.forget();
  announce(`Pool ${chosen.pool} of device ${chosen.device}`);
  void poll();
}

async function updatePools(): Promise<void> {
  const answered = await ask<PoolsAnswer>('/api/v1/pools');
  isLive = answered.recording === undefined;
  const list = answered.pools;
  const key = (each: PoolName): string => `${each.device}/${each.pool}`;
  if (list.map(key).join() === pools.map(key).join()) return;
  pools = list;
  const select = element<HTMLSelectElement>('pool-choice');
  select.replaceChildren(...pools.map((each) =>
    make('option', { value: key(each) }, `device ${each.device} · ${each.pool}`)));
  element('pool-chooser').hidden = pools.length < 2;
  const still = pools.find((each) => pool !== null && key(each) === key(pool));
  const chosen = still ?? pools[0];
  if (chosen === undefined) return;
  select.value = key(chosen);
  if (pool === null) {
    pool = chosen;
    events.choose(pool);
    fit.choose(pool);
    past = new Past(pool, past.resolution);
  } else if (still === undefined) choose(chosen);
}

element<HTMLSelectElement>('pool-choice').addEventListener('change', (event) => {
  const chosen = pools[(event.target as HTMLSelectElement).selectedIndex];
  if (chosen !== undefined) choose(chosen);
});

// --- one poll ---------------------------------------------------------------------------------

async function updateFailure(stats: Stats): Promise<void> {
  if (stats.failures === failuresSeen) return;
  const isFirst = failuresSeen < 0;
  failuresSeen = stats.failures;
  if (stats.failures === 0) return;
  failure = await ask<FailureReport>(path('last_failure', pool));
  // Something may have been allocated or freed around it: the map of right now is wanted.
  mapSignature = '';
  if (!isFirst && failure.happened) announce('A request failed for want of memory');
}

function show(current: StatsAnswer): void {
  const before = answer;
  if (before !== null && before.stats.start_unix_ns !== current.stats.start_unix_ns) {
    events.forget();
    postMortem.forget();
    past = new Past(pool, past.resolution);
    failure = null;
    failuresSeen = -1;
    mapSignature = '';  // the map is another pool's
  }
  answer = current;
  if (recording === null) seen.add(current.stats);
  else seen.beFromStart(current.stats);
  drawHeader(current);
  if (recording !== null) drawRecordedHeader(recording, current);
  drawTiles(current, seen);
  drawSizes(current.stats);
  tags.draw(current.stats, seen);
}

function showRest(current: StatsAnswer): void {
  drawState(stateOf(current.stats, failure));
  if (failure !== null) postMortem.note(current, failure, events.events, mapData);
  events.showLastDriverCall(current.stats, nowMs(current.stats));
  if (recording === null) charts.show(past);
  fit.update(current.stats);
  askForMap(current.stats);
  setText('updated', recording === null ? `Updated ${clockText(Date.now())}` :
    'A recording: nothing here changes by itself');
}

// --- what is recorded -------------------------------------------------------------------------

/** Shows all of the place that api.ts was told, its map too; gives the time there. */
async function look(): Promise<number> {
  const current = await ask<StatsAnswer>(path('stats', pool));
  show(current);
  events.forget();
  postMortem.forget();
  failure = null;
  failuresSeen = -1;
  mapSignature = '';
  mapPending = false;
  const drawn = new Promise<void>((resolve) => { mapWaits = resolve; });
  const hasEvents = recording?.kind !== 'snapshot' || recording.has_events;
  await Promise.all([updateFailure(current.stats), ...(hasEvents ? [events.update()] : [])]);
  showRest(current);
  if (mapPending) await drawn;
  showStale(false);
  return nowMs(current.stats);
}

async function startRecorded(): Promise<void> {
  postMortem.noMapText = 'Go to that request (■ above) to see the memory then.';
  await beRecorded(charts, look, (reason) => {
    answeredAt = 0;
    showStale(true, reason);
  }, (info) => { recording = info; });
}

function showStale(isStale: boolean, reason = ''): void {
  element('stale').hidden = !isStale;
  document.body.classList.toggle('is-stale', isStale);
  if (!isStale) return;
  if (recording !== null) {
    setText('stale', `The server of this recording does not answer (${reason}). It is asked again.`);
    return;
  }
  const since = answeredAt === 0 ? 'yet' : `since ${clockText(answeredAt)}`;
  setText('stale', `No answer ${since} (${reason}). What is shown is old; the page goes on asking.`);
  drawState({ level: 'stale', word: 'stale', reason: `no answer ${since}, ${misses} polls in a row` });
}

async function poll(): Promise<void> {
  clearTimeout(timer);
  if (document.hidden || isAsking) return;  // asked again when it is visible
  isAsking = true;
  const started = performance.now();
  try {
    if (polls % POOLS_EVERY === 0) await updatePools();
    if (!isLive) {
      await startRecorded();
      return;  // and isAsking stays: nothing is asked by the clock any more
    }
    const current = await ask<StatsAnswer>(path('stats', pool));
    show(current);
    await Promise.all([updateFailure(current.stats), events.update(), past.update()]);
    showRest(current);
    misses = 0;
    polls += 1;
    answeredAt = Date.now();
    showStale(false);
  } catch (error) {
    misses += 1;
    // The pools may be others by now.
    polls = 0;
    if (misses >= STALE_AFTER_MISSES) {
      showStale(true, error instanceof Error ? error.message : String(error));
    }
  }
  isAsking = false;
  timer = window.setTimeout(() => void poll(), Math.max(0, POLL_MS - (performance.now() - started)));
}

// --- the rest of the controls -------------------------------------------------------------------

function setResolution(resolution: Resolution): void {
  for (const button of document.querySelectorAll<HTMLButtonElement>('#charts-span button')) {
    button.setAttribute('aria-pressed', String(button.dataset['span'] === resolution));
  }
  past = new Past(pool, resolution);
  void past.update().then(() => charts.show(past));
}
for (const button of document.querySelectorAll<HTMLButtonElement>('#charts-span button')) {
  button.addEventListener('click', () =>
    setResolution(button.dataset['span'] === '15s' ? '15s' : '1s'));
}

element('save-json').addEventListener('click', () => {
  if (answer === null) return;
  saveJson(answer.pool, nowMs(answer.stats), { ...answer, schema: 'gpupool.page', version: 1,
    last_failure: failure, events: events.events, map: mapData === null ? null : mapJson(mapData) });
});
element('save-torch').addEventListener('click', () => {
  if (mapData === null || answer === null) return;
  saveTorch(mapData, answer.device.ordinal, events.events);
});

startTheme(element<HTMLButtonElement>('theme'), () => {
  map.themeChanged();
  postMortem.themeChanged();
  charts.themeChanged();
});
document.addEventListener('visibilitychange', () => void poll());
void poll();
