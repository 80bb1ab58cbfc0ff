// Pools in the states that the page tells apart, each made by really asking for memory.

const GiB = 2 ** 30;
const MiB = 2 ** 20;

/** Layers of a model, their optimizer and what a step needs. */
const model = (layers) => [
  `fill weights ${layers} ${96 * MiB} weights 1`,
  `fill optimizer ${layers} ${192 * MiB} optimizer 1`,
  `fill gradients ${layers} ${48 * MiB} gradients 2`,
  `fill small 120 ${40 * 1024} weights 1`,
  `fill buckets 6 ${25 * MiB} communication 2`,
];

/** A pool of 8 GiB whose free memory lies in pieces of 2 MiB, with 2 GiB left to get. */
const pieces = (options = '') => [
  `pool default 0 ${8 * GiB} recycling=off ${options}`,
  'advance 240 60',
  `fill activations 2048 ${2 * MiB} activations 1`,
  `fill weights 1024 ${2 * MiB} weights 2`,
  'free_every activations 2',
  'free_every weights 2',
  'maintain',
];

export const SCENES = {
  empty: [`pool default 0 ${16 * GiB}`],
  healthy: [
    `pool default 0 ${16 * GiB} required=${GiB}`,
    ...model(24),
    'advance 500 30',
    `fill activations 40 ${33 * MiB} activations 2`,
    'advance 200 50',
    'busy 2',
    `fill temporary 3 ${70 * MiB} activations 2`,
    'free temporary',
    'advance 30 40',
  ],
  fragmented: pieces(),
  risk: [...pieces(), `require ${3 * GiB}`, 'maintain'],
  memory: [...pieces(`required=${GiB}`), 'advance 20 10'],
  nothing_kept: [`pool default 0 ${4 * GiB} history=no events=no`, ...model(4)],
  many: [
    `pool default 0 ${16 * GiB}`, ...model(12),
    `pool inference 0 ${8 * GiB}`, `fill weights 20 ${64 * MiB} weights 1`,
    `pool default 1 ${16 * GiB}`, ...model(4),
    'use 0',
  ],
};

/** The failure of the scene `memory`, which the page is to see happen. */
export const FAILING = `allocate large ${Math.round(2.5 * GiB)} activations 1`;
