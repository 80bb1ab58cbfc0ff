// Bundles the page and writes it as a table of bytes for the program: node build.mjs OUTPUT.cc
//
// The same sources and lock file give the same output, byte for byte. Each file is there twice: as
// it is, and in gzip's format for nearly everybody.
import { build } from 'esbuild';
import { readFile, writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';

const here = (name) => fileURLToPath(new URL(name, import.meta.url));

async function bundle(entry, isStyle = false) {
  const result = await build({
    entryPoints: [here(entry)],
    outdir: here('unwritten'),
    bundle: true,
    minify: true,
    write: false,
    format: isStyle ? undefined : 'iife',
    target: ['chrome123', 'firefox121', 'safari17.5'],
    legalComments: 'none',  // /licenses.txt has them in whole
    loader: { '.css': 'css' },
  });
  return Object.fromEntries(result.outputFiles.map((file) =>
    [file.path.split('.').at(-1), file.text]));
}

async function assets() {
  const page = await bundle('src/main.ts');
  const worker = await bundle('src/worker.ts');
  const style = await bundle('page.css', true);
  const licence = await readFile(here('node_modules/uplot/LICENSE'), 'utf8');
  return [
    ['/', 'text/html', await readFile(here('index.html'), 'utf8')],
    ['/page.css', 'text/css', page.css + style.css],
    ['/page.js', 'text/javascript', page.js],
    ['/worker.js', 'text/javascript', worker.js],
    ['/icon.svg', 'image/svg+xml', await readFile(here('../../exporter/page/icon.svg'), 'utf8')],
    ['/licenses.txt', 'text/plain', `uPlot, which draws the charts of this page:\n\n${licence}`],
  ];
}

const BYTES_A_LINE = 32;

function literal(bytes) {
  const lines = [];
  for (let at = 0; at < bytes.length; at += BYTES_A_LINE) {
    const line = [...bytes.subarray(at, at + BYTES_A_LINE)];
    lines.push(`    "${line.map((byte) => `\\${byte.toString(8).padStart(3, '0')}`).join('')}"`);
  }
  return lines.length === 0 ? '""' : `\n${lines.join('\n')}`;
}

function source(list) {
  const rows = list.map(([path, type, text]) => {
    const body = Buffer.from(text);
    const packed = gzipSync(body, { level: 9 });
    packed[9] = 255;  // of no system, wherever it is made
    return `    {"${path}", "${type}; charset=utf-8",${literal(body)}sv,${literal(packed)}sv},`;
  });
  return `// Generated from dashboards/live.
#include "exporter/page/page_assets.h"

namespace gpupool::internal {
namespace {

using namespace std::string_view_literals;

constexpr PageAsset kAssets[] = {
${rows.join('\n')}
};

}  // namespace

std::span<const PageAsset> page_assets() { return kAssets; }

}  // namespace gpupool::internal
`;
}

const output = process.argv[2];
if (output === undefined) throw new Error('usage: node build.mjs OUTPUT.cc');
const list = await assets();
await writeFile(output, source(list));
for (const [path, , text] of list) {
  const packed = gzipSync(Buffer.from(text), { level: 9 });
  if (process.argv.includes('--sizes')) console.log(path, text.length, packed.length);
}
