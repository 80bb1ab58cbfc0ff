// What the server answers, and how it is asked. Types name the fields that the page reads; within a
// version of a schema fields are only added.

export type Counts = Record<string, number>;

export interface Watched {
  bytes: number;
  fits: boolean;
  unusable_free_bytes: number;
}

/** Where the memory is, and how much of it could be given out. */
export interface Memory {
  limit_bytes: number;
  limit_in_force_bytes: number;
  held_bytes: number;
  live_requested_bytes: number;
  waste_bytes: number;
  cached_bytes: number;
  pending_bytes: number;
  free_bytes: number;
  largest_free_block_bytes: number;
  largest_satisfiable_bytes: number;
  device_free_bytes: number;
  device_total_bytes: number;
}

export interface Stats extends Memory {
  time_ns: number;
  start_time_ns: number;
  start_unix_ns: number;
  requests: number;
  hits: number;
  misses: number;
  failures: number;
  fallbacks: number;
  frees: number;
  driver_calls: number;
  driver_wait_ns: number;
  fallback_bytes: number;
  fragmentation_ratio: number;
  peak_requested_bytes: number;
  peak_held_bytes: number;
  window_peak_requested_bytes: number;
  live_blocks: number;
  streams: number;
  runs: number;
  chunks: number;
  slabs: number;
  pages_mapped: number;
  pages_unmapped: number;
  pages_recycled: number;
  threshold_fragmentation_ratio: number;
  threshold_critical_fragmentation_ratio: number;
  threshold_required_block_bytes: number;
  free_runs_by_log2: number[];
  free_run_bytes_by_log2: number[];
  free_buddies_by_log2: number[];
  misses_by_reason: Counts;
  failures_by_reason: Counts;
  driver_calls_by_operation: Counts;
  tag_live_bytes: Counts;
  watched: Watched[];
  recycling: string;
  backing: string;
  policy: string;
}

export interface StatsAnswer {
  pool: string;
  process: {
    host: string;
    pid: number;
    job_id: string;
    rank?: number;
    local_rank?: number;
    world_size?: number;
    library: string;
    cuda: string;
    settings_hash?: string;
  };
  device: { ordinal: number; name: string; uuid: string; driver: string; simulated: boolean };
  stats: Stats;
}

export interface Moment {
  operation: number;
  time_ms: number;
  value: number;
}
export interface Mark {
  operation: number;
  time_ms: number;
  bytes: number;
}
export interface Marks {
  count: number;
  first: Mark[];
}

/** What is shown where nothing lives: a job that was played again, at any place of it. */
export interface ReplayInfo {
  kind: 'replay';
  name: string;
  operations: number;
  stride: number;
  has_time: boolean;
  duration_ms: number;
  measure: 'fragmentation_ratio' | 'split_free_bytes';
  peak_held: Moment;
  worst?: Moment;
  birth?: Moment & { from_operation: number; from: number };
  failures: Marks;
  fallbacks: Marks;
}
/** A moment that somebody has saved. */
export interface SnapshotInfo {
  kind: 'snapshot';
  name: string;
  time_ms: number;
  has_counters: boolean;
  has_events: boolean;
}
export type RecordingInfo = ReplayInfo | SnapshotInfo;

export interface PoolsAnswer {
  pools: PoolName[];
  recording?: RecordingInfo['kind'];
}

export interface PoolName {
  pool: string;
  device: number;
}

export interface HistoryAnswer {
  resolution_seconds: number;
  time_ms: number[];
  columns: Record<string, number[]>;
}

export interface Rung {
  was_tried: boolean;
  gave_bytes: number;
}

export interface FailureReport extends Memory {
  happened: boolean;
  error: string;
  reason: string;
  cause: string;
  tag: string;
  stream_id: number;
  limit_kind: string;
  time_ns: number;
  requested_bytes: number;
  waited_ns: number;
  retries: number;
  live_by_tag: Counts;
  last_misses: { time_ns: number; bytes: number; stream_id: number; reason: string;
    failed: boolean }[];
  rungs: Record<string, Rung>;
}

export interface PoolEvent {
  number: number;
  time_ms: number;
  kind: string;
  bytes: number;
  duration_ns?: number;
  stream?: number;
  operation?: string;
  reason?: string;
  misuse?: string;
  error?: string;
  failure?: FailureReport;
}

export interface EventsAnswer {
  last: number;
  events: PoolEvent[];
}

export interface FitAnswer extends Pick<Memory, 'largest_free_block_bytes' |
    'largest_satisfiable_bytes' | 'free_bytes' | 'pending_bytes' | 'cached_bytes' | 'held_bytes' |
    'limit_in_force_bytes'> {
  bytes: number;
  fit: 'now' | 'by_growth' | 'after_pending' | 'no';
}

const TIMEOUT_MS = 3000;
// A recording may have to be played from its start before it can answer.
const RECORDED_TIMEOUT_MS = 120_000;

let timeoutMs = TIMEOUT_MS;
let place: number | null = null;

/** Answers are those of a recording: they may take their time. */
export function askRecording(): void {
  timeoutMs = RECORDED_TIMEOUT_MS;
}

/** From now on what is asked is how it was right after that operation. */
export function setPlace(operation: number): void {
  place = operation;
}

export class NotServed extends Error {}

const get = (path: string): Promise<Response> =>
  fetch(path, { cache: 'no-store', signal: AbortSignal.timeout(timeoutMs) });

/** The answer as JSON. */
export async function ask<T>(path: string): Promise<T> {
  // A browser opens connections ahead, which the server ends after half a second of silence; one
  // that it takes at that moment fails at once, and the next one does not.
  const response = await get(path).catch((error: unknown) => {
    if (error instanceof TypeError) return get(path);
    throw error;
  });
  if (response.status === 404) throw new NotServed((await response.text()).trim());
  if (!response.ok) throw new Error((await response.text()).trim() || `status ${response.status}`);
  return await response.json() as T;
}

/** A path with the parameters that are given; `pool` says which one is asked about. */
export function path(name: string, pool: PoolName | null,
    parameters: Record<string, string | number> = {}): string {
  const query = new URLSearchParams();
  if (pool !== null) {
    query.set('pool', pool.pool);
    query.set('device', String(pool.device));
  }
  if (place !== null && name !== 'history') query.set('at', String(place));
  for (const [key, value] of Object.entries(parameters)) query.set(key, String(value));
  const text = query.toString();
  return `/api/v1/${name}${text === '' ? '' : `?${text}`}`;
}

/** The time of the pool's clock as Unix time, in milliseconds: nothing here asks the browser's. */
export const unixMs = (stats: Stats, poolNs: number): number =>
  stats.start_unix_ns / 1e6 + (poolNs - stats.start_time_ns) / 1e6;
export const nowMs = (stats: Stats): number => unixMs(stats, stats.time_ns);
