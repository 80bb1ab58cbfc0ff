// Python's pickle format, protocol 2, of plain values: what json has, with numbers that are whole.
// Written down byte by byte, as no library does it in a browser.

export type Plain = null | boolean | number | string | Plain[] | { [key: string]: Plain } |
  { tuple: Plain[] };

const MARK = 0x28;
const encoder = new TextEncoder();

class Writer {
  private bytes = new Uint8Array(1 << 16);
  private length = 0;

  byte(value: number): void {
    this.room(1);
    this.bytes[this.length] = value;
    this.length += 1;
  }
  number32(value: number): void {
    for (let shift = 0; shift < 32; shift += 8) this.byte((value >>> shift) & 0xff);
  }
  raw(values: Uint8Array): void {
    this.room(values.length);
    this.bytes.set(values, this.length);
    this.length += values.length;
  }
  take(): Uint8Array {
    return this.bytes.slice(0, this.length);
  }
  private room(more: number): void {
    if (this.length + more <= this.bytes.length) return;
    const larger = new Uint8Array(Math.max(2 * this.bytes.length, this.length + more));
    larger.set(this.bytes.subarray(0, this.length));
    this.bytes = larger;
  }
}

function writeNumber(out: Writer, value: number): void {
  if (!Number.isInteger(value)) {
    out.byte(0x47);  // BINFLOAT, big-endian
    const view = new DataView(new ArrayBuffer(8));
    view.setFloat64(0, value);
    out.raw(new Uint8Array(view.buffer));
  } else if (value >= -(2 ** 31) && value < 2 ** 31) {
    out.byte(0x4a);  // BININT
    out.number32(value);
  } else {
    out.byte(0x8a);  // LONG1: two's complement, little-endian
    out.byte(9);
    let rest = BigInt(value);
    for (let i = 0; i < 9; i += 1) {
      out.byte(Number(rest & 0xffn));
      rest >>= 8n;
    }
  }
}

function writeList(out: Writer, items: readonly Plain[]): void {
  out.byte(0x5d);  // EMPTY_LIST
  out.byte(MARK);
  for (const item of items) write(out, item);
  out.byte(0x65);  // APPENDS
}

function writeText(out: Writer, text: string): void {
  const bytes = encoder.encode(text);
  out.byte(0x58);  // BINUNICODE
  out.number32(bytes.length);
  out.raw(bytes);
}

function write(out: Writer, value: Plain): void {
  if (value === null) out.byte(0x4e);  // NONE
  else if (typeof value === 'boolean') out.byte(value ? 0x88 : 0x89);
  else if (typeof value === 'number') writeNumber(out, value);
  else if (typeof value === 'string') writeText(out, value);
  else if (Array.isArray(value)) writeList(out, value);
  else if ('tuple' in value && Array.isArray(value.tuple)) {
    out.byte(MARK);
    for (const item of value.tuple) write(out, item);
    out.byte(0x74);  // TUPLE
  } else {
    out.byte(0x7d);  // EMPTY_DICT
    out.byte(MARK);
    for (const [key, item] of Object.entries(value)) {
      writeText(out, key);
      write(out, item as Plain);
    }
    out.byte(0x75);  // SETITEMS
  }
}

export function pickle(value: Plain): Uint8Array {
  const out = new Writer();
  out.byte(0x80);  // PROTO
  out.byte(2);
  write(out, value);
  out.byte(0x2e);  // STOP
  return out.take();
}
