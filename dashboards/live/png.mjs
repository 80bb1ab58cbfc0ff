// Makes a screenshot small: at most 256 colours, which a page of flat colours hardly shows.
import { crc32 as zlibCrc, deflateSync, inflateSync } from 'node:zlib';

const SIGNATURE = Buffer.from([137, 80, 78, 71, 13, 10, 26, 10]);

const table = Array.from({ length: 256 }, (_, n) => {
  let c = n;
  for (let k = 0; k < 8; k += 1) c = c & 1 ? 0xedb88320 ^ (c >>> 1) : c >>> 1;
  return c >>> 0;
});
function crcOf(bytes) {
  if (zlibCrc !== undefined) return zlibCrc(bytes);
  let crc = 0xffffffff;
  for (const byte of bytes) crc = table[(crc ^ byte) & 255] ^ (crc >>> 8);
  return (crc ^ 0xffffffff) >>> 0;
}

function* chunks(png) {
  for (let at = SIGNATURE.length; at < png.length;) {
    const length = png.readUInt32BE(at);
    yield [png.toString('latin1', at + 4, at + 8), png.subarray(at + 8, at + 8 + length)];
    at += length + 12;
  }
}

/** Of what Chromium writes: eight bits a channel, not interlaced. */
function pixels(png) {
  let width = 0;
  let height = 0;
  let channels = 3;
  const data = [];
  for (const [type, body] of chunks(png)) {
    if (type === 'IHDR') {
      width = body.readUInt32BE(0);
      height = body.readUInt32BE(4);
      channels = body[9] === 6 ? 4 : 3;
    } else if (type === 'IDAT') data.push(body);
  }
  const raw = inflateSync(Buffer.concat(data));
  const stride = width * channels;
  const out = Buffer.alloc(stride * height);
  const at = (row, i) => (row < 0 || i < 0 ? 0 : out[row * stride + i]);
  for (let row = 0; row < height; row += 1) {
    const filter = raw[row * (stride + 1)];
    for (let i = 0; i < stride; i += 1) {
      const left = i < channels ? 0 : at(row, i - channels);
      const up = at(row - 1, i);
      const corner = i < channels ? 0 : at(row - 1, i - channels);
      const guess = [0, left, up, (left + up) >> 1, paeth(left, up, corner)][filter];
      out[row * stride + i] = raw[row * (stride + 1) + 1 + i] + guess;
    }
  }
  return { width, height, channels, out };
}

function paeth(left, up, corner) {
  const guess = left + up - corner;
  const [a, b, c] = [Math.abs(guess - left), Math.abs(guess - up), Math.abs(guess - corner)];
  return a <= b && a <= c ? left : b <= c ? up : corner;
}

/** The 256 commonest colours, near ones counted as one. */
function palette(colours) {
  const counts = new Map();
  for (const colour of colours) {
    const key = colour & 0xf8f8f8;
    const entry = counts.get(key) ?? { count: 0, exact: new Map() };
    counts.set(key, entry);
    entry.count += 1;
    entry.exact.set(colour, (entry.exact.get(colour) ?? 0) + 1);
  }
  return [...counts.values()].sort((a, b) => b.count - a.count).slice(0, 256)
    .map(({ exact }) => [...exact].sort((a, b) => b[1] - a[1])[0][0]);
}

function nearest(list, colour) {
  let best = 0;
  let least = Infinity;
  list.forEach((other, i) => {
    const distance = [16, 8, 0].reduce((sum, shift) =>
      sum + (((colour >> shift) & 255) - ((other >> shift) & 255)) ** 2, 0);
    if (distance < least) [best, least] = [i, distance];
  });
  return best;
}

function chunk(type, body) {
  const head = Buffer.alloc(4);
  head.writeUInt32BE(body.length);
  const named = Buffer.concat([Buffer.from(type, 'latin1'), body]);
  const crc = Buffer.alloc(4);
  crc.writeUInt32BE(crcOf(named));
  return Buffer.concat([head, named, crc]);
}

export function smaller(png) {
  const { width, height, channels, out } = pixels(png);
  const colours = new Uint32Array(width * height);
  for (let i = 0; i < colours.length; i += 1) {
    const at = i * channels;
    colours[i] = (out[at] << 16) | (out[at + 1] << 8) | out[at + 2];
  }
  const list = palette(colours);
  const known = new Map();
  const rows = Buffer.alloc((width + 1) * height);
  for (let row = 0; row < height; row += 1) {
    for (let x = 0; x < width; x += 1) {
      const colour = colours[row * width + x];
      if (!known.has(colour)) known.set(colour, nearest(list, colour));
      rows[row * (width + 1) + 1 + x] = known.get(colour);
    }
  }
  const header = Buffer.alloc(13);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  header.set([8, 3, 0, 0, 0], 8);
  const plte = Buffer.from(list.flatMap((c) => [(c >> 16) & 255, (c >> 8) & 255, c & 255]));
  return Buffer.concat([SIGNATURE, chunk('IHDR', header), chunk('PLTE', plte),
    chunk('IDAT', deflateSync(rows, { level: 9 })), chunk('IEND', Buffer.alloc(0))]);
}
