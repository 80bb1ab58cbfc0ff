// The page server as a process of its own, which is told line by line what to do (page_server.cc).
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';

export class PageServer {
  #child;
  #answers = [];
  #waiting = [];
  #ended;

  constructor(program, environment = {}) {
    this.#child = spawn(program, [], {
      stdio: ['pipe', 'pipe', 'inherit'],
      env: { ...process.env, RANK: '3', LOCAL_RANK: '3', WORLD_SIZE: '8', SLURM_JOB_ID: '48213',
        ...environment },
    });
    this.#ended = new Promise((resolve) => this.#child.once('exit', resolve));
    createInterface({ input: this.#child.stdout }).on('line', (line) => {
      const next = this.#waiting.shift();
      if (next === undefined) this.#answers.push(line);
      else next(line);
    });
  }

  /** What it answers behind "ok"; an "error" becomes one. */
  async tell(line) {
    this.#child.stdin.write(`${line}\n`);
    const answer = this.#answers.shift() ??
        await new Promise((resolve) => this.#waiting.push(resolve));
    if (!answer.startsWith('ok')) throw new Error(`${line}: ${answer}`);
    return answer.slice(3);
  }

  async tellAll(lines) {
    for (const line of lines) await this.tell(line);
  }

  /** A request that is to fail; gives why it did. */
  async refuse(line) {
    try {
      await this.tell(line);
    } catch (error) {
      return error.message;
    }
    throw new Error(`${line}: was served`);
  }

  async serve(port = '') {
    this.port = Number(await this.tell(`serve ${port}`));
    this.url = `http://127.0.0.1:${this.port}/`;
    return this.url;
  }

  /** At once: stopping in order would take the HTTP server two seconds. */
  async end() {
    this.#child.kill('SIGKILL');
    await this.#ended;
  }
}
