// Light or dark, as the system says or as somebody chose; and the colours that a canvas needs.
//
// Colours are those of Okabe and Ito, which people with any common colour vision tell apart; each
// comes with a pattern, so that nothing is said by colour alone.

const KEY = 'gpupool-theme';
const dark = window.matchMedia('(prefers-color-scheme: dark)');
const paper = window.matchMedia('print');

export type Pattern = 'solid' | 'diagonal' | 'lines' | 'dots' | 'cross' | 'bars' | 'back';
export interface Paint {
  colour: string;
  pattern: Pattern;
}

export const isDark = (): boolean => document.documentElement.dataset['theme'] === 'dark';

const HUES = ['#0072b2', '#e69f00', '#009e73', '#cc79a7', '#56b4e9', '#d55e00', '#b8a900', '#7a5195'];
const PATTERNS: Pattern[] = ['solid', 'diagonal', 'lines', 'cross', 'bars', 'back', 'dots'];

/** The n-th of things without an order: tags, streams. */
export function paintOf(index: number): Paint {
  return {
    colour: HUES[index % HUES.length] ?? '#888888',
    pattern: PATTERNS[index % PATTERNS.length] ?? 'solid',
  };
}

export const STATE_PAINTS: Record<string, Paint> = {
  live: { colour: '#0072b2', pattern: 'solid' },
  cached: { colour: '#cc79a7', pattern: 'diagonal' },
  pending: { colour: '#e69f00', pattern: 'lines' },
  free: { colour: '#7fb79b', pattern: 'dots' },
};
/** What is not live, beside live blocks in many colours. */
export const QUIET_PAINTS: Record<string, Paint> = {
  cached: { colour: '#8d96a3', pattern: 'diagonal' },
  pending: { colour: '#6c7582', pattern: 'lines' },
  free: { colour: '#b9c1cb', pattern: 'dots' },
};
export const OTHER_PAINT: Paint = { colour: '#4a5160', pattern: 'back' };

/** From young to old, darker and darker on white, lighter and lighter on black. */
export function agePaints(count: number): Paint[] {
  return Array.from({ length: count }, (_, i) => {
    const share = count > 1 ? i / (count - 1) : 0;
    const lightness = isDark() ? 34 + 46 * share : 82 - 52 * share;
    return { colour: `hsl(${212 - 12 * share} 72% ${lightness}%)`, pattern: 'solid' as Pattern };
  });
}

/** What a custom property of the stylesheet comes to in this theme. */
export function cssColour(name: string): string {
  const probe = document.createElement('span');
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const colour = getComputedStyle(probe).color;
  probe.remove();
  return colour;
}

function drawPattern(pattern: Pattern, context: CanvasRenderingContext2D, size: number): void {
  context.beginPath();
  switch (pattern) {
    case 'solid': return;
    case 'diagonal': context.moveTo(-1, size + 1); context.lineTo(size + 1, -1); break;
    case 'back': context.moveTo(-1, -1); context.lineTo(size + 1, size + 1); break;
    case 'lines': context.moveTo(0, size / 2); context.lineTo(size, size / 2); break;
    case 'bars': context.moveTo(size / 2, 0); context.lineTo(size / 2, size); break;
    case 'cross':
      context.moveTo(0, size / 2); context.lineTo(size, size / 2);
      context.moveTo(size / 2, 0); context.lineTo(size / 2, size);
      break;
    case 'dots': context.arc(size / 2, size / 2, size / 6, 0, 7); context.fill(); return;
  }
  context.stroke();
}

const made = new Map<string, HTMLCanvasElement>();

/** A tile that is laid over the colour. */
export function patternTile(pattern: Pattern, scale: number): HTMLCanvasElement | null {
  if (pattern === 'solid') return null;
  const key = `${pattern}-${scale}`;
  let tile = made.get(key);
  if (tile === undefined) {
    const size = Math.round(6 * scale);
    tile = document.createElement('canvas');
    tile.width = size;
    tile.height = size;
    const context = tile.getContext('2d');
    if (context !== null) {
      context.strokeStyle = 'rgb(255 255 255 / 55%)';
      context.fillStyle = 'rgb(255 255 255 / 65%)';
      context.lineWidth = 1.3 * scale;
      drawPattern(pattern, context, size);
    }
    made.set(key, tile);
  }
  return tile;
}

function apply(choice: string | null): void {
  const isNowDark = !paper.matches && (choice === 'dark' || (choice !== 'light' && dark.matches));
  document.documentElement.dataset['theme'] = isNowDark ? 'dark' : 'light';
}

/** Storage may be refused to a page; the choice then lasts as long as it does. */
function stored(): string | null {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null;
  }
}

export function startTheme(button: HTMLButtonElement, changed: () => void): void {
  const show = (): void => {
    const text = isDark() ? 'Light' : 'Dark';
    button.textContent = text;
    button.setAttribute('aria-label', `Change to ${text.toLowerCase()} colours`);
  };
  apply(stored());
  show();
  button.addEventListener('click', () => {
    const choice = isDark() ? 'light' : 'dark';
    try {
      localStorage.setItem(KEY, choice);
    } catch {
      // It is only not remembered.
    }
    apply(choice);
    show();
    changed();
  });
  for (const medium of [dark, paper]) {
    medium.addEventListener('change', () => {
      apply(stored());
      show();
      changed();
    });
  }
}
