// Numbers as a person reads them.

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

export function bytesText(bytes: number): string {
  let value = Math.abs(bytes);
  let unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  const digits = unit === 0 || value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return `${bytes < 0 ? '−' : ''}${value.toFixed(digits)} ${UNITS[unit]}`;
}

/** As bytesText(), without zeros behind the point: what somebody has set. */
export const sizeText = (bytes: number): string =>
  bytesText(bytes).replace(/(\.\d*?)0+ /, '$1 ').replace('. ', ' ');

export const countText = (count: number): string => Math.round(count).toLocaleString('en-US');
export const exactText = (bytes: number): string => `${countText(bytes)} bytes`;
export const ratioText = (ratio: number): string => `${(100 * ratio).toFixed(1)} %`;
export const shareText = (part: number, whole: number): string =>
  (whole > 0 ? ratioText(part / whole) : '–');

export function rateText(perSecond: number): string {
  return perSecond >= 100 || perSecond === 0 ? countText(perSecond) : perSecond.toFixed(1);
}

export function durationText(seconds: number): string {
  const whole = Math.floor(seconds);
  const days = Math.floor(whole / 86400);
  const hours = Math.floor(whole / 3600) % 24;
  const minutes = Math.floor(whole / 60) % 60;
  if (days > 0) return `${days} d ${hours} h`;
  if (hours > 0) return `${hours} h ${minutes} min`;
  if (minutes > 0) return `${minutes} min ${whole % 60} s`;
  return `${whole} s`;
}

export function agoText(ms: number): string {
  if (ms < 1500) return 'just now';
  return `${durationText(ms / 1000)} ago`;
}

export function shortTimeText(ns: number): string {
  if (ns >= 100e9) return durationText(ns / 1e9);
  if (ns >= 1e9) return `${(ns / 1e9).toFixed(1)} s`;
  if (ns >= 1e6) return `${(ns / 1e6).toFixed(1)} ms`;
  if (ns >= 1e3) return `${(ns / 1e3).toFixed(1)} µs`;
  return `${ns} ns`;
}

/** Of a recording: from its start, to the millisecond. */
export function elapsedText(ms: number): string {
  if (ms < 60_000) return `${(ms / 1000).toFixed(3)} s`;
  const minutes = Math.floor(ms / 60_000);
  const seconds = ((ms - minutes * 60_000) / 1000).toFixed(1).padStart(4, '0');
  return minutes < 60 ? `${minutes}:${seconds}` :
    `${Math.floor(minutes / 60)}:${String(minutes % 60).padStart(2, '0')}:${seconds}`;
}

const wallClock = (ms: number): string =>
  new Date(ms).toLocaleTimeString('en-GB', { hour12: false });
let clock = wallClock;

/** How a time reads: the hour of the day, unless what is shown has another clock. */
export const clockText = (ms: number): string => clock(ms);
export function setClock(text: (ms: number) => string): void {
  clock = text;
}

/** "1.5 GiB", "512 MiB", "1g" or plain bytes; NaN where it is none of them. */
export function readSize(text: string): number {
  const match = /^\s*([\d.,  ]+)\s*([kmgtp]?)(i?b)?\s*$/i.exec(text);
  if (match === null) return NaN;
  const value = Number((match[1] ?? '').replace(/[,  ]/g, ''));
  const power = ' kmgtp'.indexOf((match[2] ?? '').toLowerCase() || ' ');
  return Math.round(value * 1024 ** power);
}

export const words = (name: string): string => name.replaceAll('_', ' ');
