// The pool's own history as the server keeps it, completed at each poll by what is new.

import { ask, NotServed, path, type HistoryAnswer, type PoolName } from './api.js';

export type Resolution = '1s' | '15s';

const COLUMNS = ['held_bytes', 'live_requested_bytes', 'limit_in_force_bytes',
  'largest_free_block_bytes', 'largest_satisfiable_bytes', 'fragmentation_ratio', 'requests',
  'hits', 'failures', 'driver_calls', 'trims', 'reconfigurations', 'pages_recycled'] as const;
export type Column = typeof COLUMNS[number];

const MAX_ROWS: Record<Resolution, number> = { '1s': 900, '15s': 5760 };
const REST_MS: Record<Resolution, number> = { '1s': 0, '15s': 5000 };

export class Past {
  timesMs: number[] = [];
  columns = {} as Record<Column, number[]>;
  /** Of a recording: the operation that each row is of. */
  operations: number[] = [];
  /** Why there is nothing; empty where there is, or may be. */
  missing = '';
  private lastAsked = 0;

  constructor(readonly pool: PoolName | null, readonly resolution: Resolution) {
    for (const name of COLUMNS) this.columns[name] = [];
  }

  /** Whether anything came. */
  async update(): Promise<boolean> {
    if (performance.now() - this.lastAsked < REST_MS[this.resolution]) return false;
    this.lastAsked = performance.now();
    const since = this.timesMs.at(-1) ?? 0;
    try {
      const answer = await ask<HistoryAnswer>(path('history', this.pool,
          { since: Math.floor(since), resolution: this.resolution }));
      this.add(answer);
      return answer.time_ms.length > 0;
    } catch (error) {
      if (!(error instanceof NotServed)) throw error;
      this.missing = error.message;
      return false;
    }
  }

  private add(answer: HistoryAnswer): void {
    this.timesMs.push(...answer.time_ms);
    const excess = Math.max(0, this.timesMs.length - MAX_ROWS[this.resolution]);
    this.timesMs.splice(0, excess);
    for (const name of COLUMNS) {
      const column = this.columns[name];
      column.push(...(answer.columns[name] ?? answer.time_ms.map(() => 0)));
      column.splice(0, excess);
    }
  }

  /** The whole of what was recorded, at once. `x`: what stands for time. */
  static recorded(answer: HistoryAnswer, x: readonly number[]): Past {
    const past = new Past(null, '1s');
    past.timesMs = [...x];
    past.operations = answer.columns['operation'] ?? [];
    for (const name of COLUMNS) past.columns[name] = answer.columns[name] ?? [];
    return past;
  }

  /** By how much a counter rose from each row to the next; null: there is none, or it began anew. */
  rises(name: Column): (number | null)[] {
    return this.columns[name].map((value, i, all) => {
      const before = all[i - 1];
      return before === undefined || value < before ? null : value - before;
    });
  }

  /** The row that shows an operation of a recording: the first that is not before it. */
  rowOf(operation: number): number {
    let low = 0;
    let high = this.operations.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.operations[middle] ?? 0) < operation) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** The same for a second, of a recording for 1,000 operations; the first row has none. */
  perSecond(name: Column): (number | null)[] {
    // Rows of a recording lie at equal numbers of operations, and at times as they come.
    if (this.operations.length > 0) {
      return this.rises(name).map((rise, i) => {
        const operations = (this.operations[i] ?? 0) - (this.operations[i - 1] ?? 0);
        return rise === null || operations <= 0 ? null : rise / operations * 1000;
      });
    }
    return this.columns[name].map((value, i, all) => {
      const before = all[i - 1];
      const seconds = ((this.timesMs[i] ?? 0) - (this.timesMs[i - 1] ?? 0)) / 1000;
      return before === undefined || value < before || seconds <= 0 ? null :
        (value - before) / seconds;
    });
  }
}
