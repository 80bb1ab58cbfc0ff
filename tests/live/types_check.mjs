// The page's sources by the TypeScript compiler, and what its lock file must not have: where packages
// came from, which is each machine's own affair.
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const live = fileURLToPath(new URL('../../dashboards/live/', import.meta.url));
const lock = readFileSync(`${live}package-lock.json`, 'utf8');
if (/"resolved"\s*:/.test(lock) || /registry\./.test(lock)) {
  console.log('package-lock.json names where packages came from:' +
      ' npm install --omit-lockfile-registry-resolved');
  process.exit(1);
}
const compiler = `${live}node_modules/typescript/bin/tsc`;
if (!existsSync(compiler)) {
  console.log('skipped: there is no node_modules in dashboards/live (npm ci)');
  process.exit(77);
}
const checked = spawnSync(process.execPath, [compiler, '--project', live], { stdio: 'inherit' });
process.exit(checked.status ?? 1);
