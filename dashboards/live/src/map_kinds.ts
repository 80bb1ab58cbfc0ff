// By what the map is coloured: each block is of one kind, and each kind has a name, a colour and a
// pattern.

import { streamName, tagName, type MapData } from './map_data.js';
import { agePaints, OTHER_PAINT, paintOf, QUIET_PAINTS, STATE_PAINTS, type Paint } from './theme.js';

export type Colouring = 'state' | 'tag' | 'stream' | 'age';

export interface Kind {
  name: string;
  paint: Paint;
  bytes: number;
  blocks: number;
}

export interface Kinds {
  list: Kind[];
  of: (block: number) => number;
}

const AGES: [string, number][] = [['under 1 s', 1e3], ['under 10 s', 1e4], ['under 1 min', 6e4],
  ['under 10 min', 6e5], ['under 1 h', 3.6e6], ['older', Infinity]];
const MAX_STREAMS = 7;
const LIVE = 0;

/** What is not live has its state as its kind, whatever the live blocks are told apart by. */
function notLive(colouring: Colouring): Kind[] {
  const paints = colouring === 'state' ? STATE_PAINTS : QUIET_PAINTS;
  return ['cached', 'pending', 'free'].map((name) =>
    ({ name, paint: paints[name] ?? OTHER_PAINT, bytes: 0, blocks: 0 }));
}

const kind = (name: string, paint: Paint): Kind => ({ name, paint, bytes: 0, blocks: 0 });

function liveKinds(data: MapData, colouring: Colouring): { list: Kind[]; of: (i: number) => number } {
  const { tag, stream, ageMs } = data.blocks;
  if (colouring === 'tag') {
    const list = data.tags.map((_, i) => kind(tagName(data, i),
        i === data.tags.length - 1 ? OTHER_PAINT : paintOf(i)));
    return { list, of: (i) => tag[i] ?? 0 };
  }
  if (colouring === 'stream') {
    const order = data.streams.map((_, i) => i).filter((i) => (data.streams[i]?.live_bytes ?? 0) > 0)
      .sort((a, b) => (data.streams[a]?.id ?? 0) - (data.streams[b]?.id ?? 0));
    const shown = order.slice(0, MAX_STREAMS);
    const kindOf = data.streams.map((_, i) => {
      const at = shown.indexOf(i);
      return at < 0 ? shown.length : at;
    });
    const list = shown.map((i, n) => kind(streamName(data, i), paintOf(n)));
    list.push(kind('other streams', OTHER_PAINT));
    return { list, of: (i) => kindOf[stream[i] ?? 0] ?? shown.length };
  }
  if (colouring === 'age') {
    const paints = agePaints(AGES.length);
    const list = AGES.map(([name], i) => kind(name, paints[i] ?? OTHER_PAINT));
    return { list, of: (i) => AGES.findIndex(([, below]) => (ageMs[i] ?? 0) < below) };
  }
  return { list: [kind('live', STATE_PAINTS['live'] ?? OTHER_PAINT)], of: () => 0 };
}

export function kindsOf(data: MapData, colouring: Colouring): Kinds {
  const live = liveKinds(data, colouring);
  const list = [...live.list, ...notLive(colouring)];
  const { state, bytes, shown } = data.blocks;
  const of = (i: number): number =>
    (state[i] === LIVE ? live.of(i) : live.list.length + (state[i] ?? 1) - 1);
  for (let i = 0; i < shown; i += 1) {
    const its = list[of(i)];
    if (its === undefined) continue;
    its.bytes += bytes[i] ?? 0;
    its.blocks += 1;
  }
  return { list, of };
}
