// Elements of the page, made and changed as little as needed: a reader of the screen hears only
// what has become different.

export function element<T extends HTMLElement = HTMLElement>(id: string): T {
  const found = document.getElementById(id);
  if (found === null) throw new Error(`the page has no #${id}`);
  return found as T;
}

export function setText(node: Element | string, text: string): void {
  const target = typeof node === 'string' ? element(node) : node;
  if (target.textContent !== text) target.textContent = text;
}

export function setAttribute(node: Element, name: string, value: string): void {
  if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

type Properties = Record<string, string | number | boolean | undefined>;

/** An element with attributes; false and undefined leave one out. */
export function make<K extends keyof HTMLElementTagNameMap>(tag: K, attributes: Properties = {},
    ...children: (Node | string)[]): HTMLElementTagNameMap[K] {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === false) continue;
    node.setAttribute(name, value === true ? '' : String(value));
  }
  node.append(...children);
  return node;
}

const SVG = 'http://www.w3.org/2000/svg';

export function makeSpark(className: string): SVGSVGElement {
  const svg = document.createElementNS(SVG, 'svg');
  svg.setAttribute('class', className);
  svg.setAttribute('viewBox', '0 0 120 28');
  svg.setAttribute('preserveAspectRatio', 'none');
  svg.setAttribute('aria-hidden', 'true');
  svg.append(document.createElementNS(SVG, 'polyline'));
  return svg;
}

/** The last values, from 0 to their highest, the newest at the right end. */
export function drawSpark(svg: SVGSVGElement, values: readonly number[], highest = 0): void {
  const top = Math.max(highest, ...values, 1e-9);
  const step = values.length > 1 ? 120 / (values.length - 1) : 0;
  const points = values.map((value, i) =>
    `${(i * step).toFixed(1)},${(26 - 24 * Math.min(value / top, 1)).toFixed(1)}`);
  svg.firstElementChild?.setAttribute('points', points.join(' '));
}

/** Keeps as many children as there are items; each is made once and then only changed. */
export function keepRows<T>(box: Element, items: readonly T[], create: () => HTMLElement,
    update: (row: HTMLElement, item: T, index: number) => void): void {
  while (box.childElementCount > items.length) box.lastElementChild?.remove();
  while (box.childElementCount < items.length) box.append(create());
  items.forEach((item, i) => update(box.children[i] as HTMLElement, item, i));
}

/** Says it to who cannot see it, without moving the focus. */
export function announce(text: string): void {
  setText('announcement', text);
}
