// How the page gets into the program: bundled the same way each time, and the plain page, with one
// line that says why, where that cannot be done. node build_check.mjs CMAKE
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const source = fileURLToPath(new URL('../../', import.meta.url));
const page = join(source, 'exporter/page');
const live = join(source, 'dashboards/live');
const cmake = process.argv[2];
const folder = mkdtempSync(join(tmpdir(), 'gpupool-page-'));

function make(options) {
  const output = join(folder, 'page_assets.cc');
  rmSync(output, { force: true });
  const { status, stdout } = spawnSync(cmake, [`-DFOLDER=${page}`, `-DOUTPUT=${output}`,
    ...Object.entries(options).map(([key, value]) => `-D${key}=${value}`),
    '-P', join(page, 'make_page.cmake')], { encoding: 'utf8' });
  assert.equal(status, 0, stdout);
  return { said: stdout, text: readFileSync(output, 'utf8') };
}

const isPlain = ({ text }) => text.includes('Generated from the files of the page');
const copied = join(folder, 'dashboards/live');

try {
  const none = make({ NODE: '', NPM: '', LIVE: live });
  assert.ok(isPlain(none));
  assert.match(none.said, /^-- gpupool: the plain page is embedded, .*\(no npm\)\n$/);

  cpSync(live, copied, { recursive: true, filter: (path) => !path.includes('node_modules') });
  const failing = make({ NODE: process.execPath, NPM: '/bin/false', LIVE: copied });
  assert.ok(isPlain(failing));
  assert.match(failing.said, /^-- gpupool: the plain page is embedded, .*\(npm ci: .*1\)\n$/);

  if (!existsSync(join(live, 'node_modules/esbuild'))) {
    console.log('skipped from here: there is no node_modules in dashboards/live (npm ci)');
    process.exit(77);
  }
  symlinkSync(join(live, 'node_modules'), join(copied, 'node_modules'));
  cpSync(join(page, 'icon.svg'), join(folder, 'exporter/page/icon.svg'), { recursive: true });
  const whole = make({ NODE: process.execPath, NPM: '/bin/false', LIVE: copied });
  assert.equal(whole.said, '', 'with the packages there, nothing is fetched');
  assert.ok(!isPlain(whole));
  for (const path of ['/', '/page.css', '/page.js', '/worker.js', '/icon.svg', '/licenses.txt']) {
    assert.ok(whole.text.includes(`{"${path}", "`), path);
  }
  assert.equal(make({ NODE: process.execPath, NPM: '/bin/false', LIVE: copied }).text, whole.text);

  writeFileSync(join(copied, 'src/main.ts'), 'this is no program;');
  const broken = make({ NODE: process.execPath, NPM: '/bin/false', LIVE: copied });
  assert.ok(isPlain(broken));
  assert.match(broken.said, /^-- gpupool: the plain page is embedded, .*\(bundling: .*\)\n$/);
  console.log('five ways to build, each with its page');
} finally {
  rmSync(folder, { recursive: true, force: true });
}
