// A map of the pool in the form of torch.cuda.memory._snapshot(), for PyTorch's memory viewer: each
// stretch of memory without a hole is a segment, in which blocks lie one after the other.

import type { PoolEvent } from './api.js';
import { tagName, type Blocks, type MapData } from './map_data.js';
import type { Plain } from './pickle.js';

// What it calls the states here: cached is free to PyTorch, whose own cache that would be.
const STATES = ['active_allocated', 'inactive', 'active_pending_free', 'inactive'];
const LIVE = 0;
const PENDING = 2;

interface Segment {
  address: number;
  stream: number;
  from: number;
  to: number;
}

function segmentsOf(blocks: Blocks, base: number, data: MapData): Segment[] {
  const segments: Segment[] = [];
  for (let i = 0; i < blocks.shown; i += 1) {
    const before = segments.at(-1);
    const end = i === 0 ? NaN : (blocks.offset[i - 1] ?? 0) + (blocks.bytes[i - 1] ?? 0);
    if (before !== undefined && blocks.offset[i] === end) {
      before.to = i + 1;
    } else {
      segments.push({ address: base + (blocks.offset[i] ?? 0),
        stream: data.streams[blocks.stream[i] ?? 0]?.id ?? 0, from: i, to: i + 1 });
    }
  }
  return segments;
}

function segmentValue(blocks: Blocks, segment: Segment, data: MapData, device: number): Plain {
  const list: Plain[] = [];
  let address = segment.address;
  let total = 0;
  let allocated = 0;
  let active = 0;
  let requested = 0;
  for (let i = segment.from; i < segment.to; i += 1) {
    const size = blocks.bytes[i] ?? 0;
    const state = blocks.state[i] ?? LIVE;
    const frames: Plain[] = state === LIVE ?
      [{ filename: 'gpupool', line: 0, name: tagName(data, blocks.tag[i] ?? 0) }] : [];
    list.push({ address, size, requested_size: blocks.requested[i] ?? 0,
      state: STATES[state] ?? 'inactive', frames });
    if (state === LIVE) allocated += size;
    if (state === LIVE || state === PENDING) active += size;
    requested += blocks.requested[i] ?? 0;
    address += size;
    total += size;
  }
  return { device, address: segment.address, total_size: total, allocated_size: allocated,
    active_size: active, requested_size: requested, stream: segment.stream,
    segment_type: 'large', segment_pool_id: { tuple: [0, 0] }, is_expandable: data.backing === 'vmm',
    frames: [], blocks: list };
}

/** Failed requests are all of the past that has an entry there: other events have no addresses. */
function traceOf(events: readonly PoolEvent[]): Plain[] {
  return events.filter((event) => event.kind === 'failure').map((event) => ({
    action: 'oom', addr: event.failure?.device_free_bytes ?? 0, device_free:
      event.failure?.device_free_bytes ?? 0, size: event.bytes, stream: event.stream ?? 0,
    time_us: Math.round(event.time_ms * 1000), frames: [] }));
}

export function torchSnapshot(data: MapData, device: number, events: readonly PoolEvent[]): Plain {
  const segments = [
    ...segmentsOf(data.blocks, data.baseAddress, data)
      .map((segment) => segmentValue(data.blocks, segment, data, device)),
    ...segmentsOf(data.fallbacks, 0, data)
      .map((segment) => segmentValue(data.fallbacks, segment, data, device)),
  ];
  // One list of events a device, as PyTorch numbers them.
  const traces: Plain[] = Array.from({ length: device + 1 }, () => []);
  traces[device] = traceOf(events);
  return { segments, device_traces: traces,
    allocator_settings: { backend: 'gpupool', expandable_segments: data.backing === 'vmm' } };
}
