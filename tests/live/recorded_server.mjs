// The gpupool program as it serves a recording, as a process of its own.
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';

/** A job in a pool of 512 MiB: steps in which all is freed, one in which every other block of 1 MiB
 * is left, so that no page is empty, and a request that then fails. */
export function jobTrace() {
  const lines = ['# {"seconds": 4.9}'];
  let id = 0;
  const allocate = (bytes) => {
    lines.push(`a ${id} ${bytes} 0 2000`);
    id += 1;
    return id - 1;
  };
  const free = (block) => lines.push(`f ${block} 2000`);
  const some = (count, bytes) => Array.from({ length: count }, () => allocate(bytes));
  for (let step = 0; step < 8; step += 1) some(60, 2 ** 22).forEach(free);
  const left = some(460, 2 ** 20);
  left.forEach((block, i) => { if (i % 2 === 0) free(block); });
  for (let step = 0; step < 20; step += 1) some(6, 2 ** 19).forEach(free);
  allocate(200 * 2 ** 20);
  for (let step = 0; step < 20; step += 1) some(6, 2 ** 19).forEach(free);
  return `${lines.join('\n')}\n`;
}

export class RecordedServer {
  static program = process.argv[3];
  #child;

  static async start(words) {
    const server = new RecordedServer();
    server.#child = spawn(RecordedServer.program, [...words, '--bind', '127.0.0.1:0'],
        { stdio: ['ignore', 'pipe', 'inherit'] });
    const lines = createInterface({ input: server.#child.stdout });
    server.url = await new Promise((resolve, reject) => {
      lines.once('line', (line) => resolve(line.replace(/^page:\s*/, '')));
      server.#child.once('exit', (code) => reject(new Error(`${words.join(' ')}: ended with ${code}`)));
    });
    return server;
  }

  /** At once: stopping in order would take the HTTP server two seconds. */
  async end() {
    const ended = new Promise((resolve) => this.#child.once('exit', resolve));
    this.#child.kill('SIGKILL');
    await ended;
  }
}
