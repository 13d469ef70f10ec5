// Records every set-up of setups.mjs against the scripted provider and writes the stripped result.
//
//	node record.mjs --cache DIR --out DIR [--only name,name] [--scenario name,name]
//
// One process runs one scenario of one set-up. A set-up that cannot run is reported and the others go on;
// the exit status is 1 if any scenario could not be recorded.

import { spawn } from 'node:child_process';
import { mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { startProvider } from './provider.mjs';
import { startRecorder } from './recorder.mjs';
import { strip } from './strip.mjs';
import { SETUPS } from './setups.mjs';

const here = dirname(fileURLToPath(import.meta.url));
const option = (name, fallback) => {
  const at = process.argv.indexOf(`--${name}`);
  return at < 0 ? fallback : process.argv[at + 1];
};
const cache = option('cache');
const out = option('out', join(here, '..', 'testdata', 'captures'));
const only = option('only')?.split(',');
const scenarios = option('scenario')?.split(',');
const TIMEOUT_MS = 90_000;

// Ports are fixed because URLs are part of the captures.
const provider = await startProvider(Number(process.env.CAPTURE_PROVIDER_PORT ?? 14400));
const recorder = await startRecorder(Number(process.env.CAPTURE_RECORDER_PORT ?? 14401));
const providerURL = `http://127.0.0.1:${provider.address().port}`;

// A recording that is ended takes the app it runs with it.
let running;
for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => { running?.kill('SIGKILL'); process.exit(1); });

// Packages that would bring thousands into one tree are installed apart.
const jsDir = (setup) => (setup.env ? `js-${setup.env}` : 'js');

function run(setup, scenario) {
  const js = setup.file.endsWith('.mjs');
  const command = js ? process.execPath : join(cache, `py-${setup.env}`, 'bin', 'python');
  const file = js ? join(cache, jsDir(setup), setup.file) : join(here, 'py', setup.file);
  const env = {
    PATH: process.env.PATH, HOME: process.env.HOME, LANG: 'C.UTF-8', PYTHONDONTWRITEBYTECODE: '1',
    OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${recorder.port}`, LANGSMITH_ENDPOINT: `http://127.0.0.1:${recorder.port}`,
    OTEL_SERVICE_NAME: 'capture', CAPTURE_PROVIDER: providerURL, CAPTURE_SCENARIO: scenario,
    OPENAI_API_KEY: 'none', ANTHROPIC_API_KEY: 'none', GOOGLE_GENERATIVE_AI_API_KEY: 'none', GEMINI_API_KEY: 'none',
    ...(setup.vars ?? {}),
  };
  return new Promise((done) => {
    const child = spawn(command, [file], { env, cwd: cache, stdio: ['ignore', 'pipe', 'pipe'] });
    running = child;
    let log = '';
    child.stdout.on('data', (d) => { log += d; });
    child.stderr.on('data', (d) => { log += d; });
    const timer = setTimeout(() => child.kill('SIGKILL'), TIMEOUT_MS);
    child.on('error', (err) => { clearTimeout(timer); done({ code: 'none', log: err.message }); });
    child.on('close', (code) => { clearTimeout(timer); done({ code, log }); });
  });
}

function versions(setup) {
  return Object.fromEntries(setup.packages.map((name) => [name, setup.file.endsWith('.mjs')
    ? JSON.parse(readFileSync(join(cache, jsDir(setup), 'node_modules', name, 'package.json'))).version
    : readFileSync(join(here, 'py', `requirements-${setup.env}.txt`), 'utf8').match(new RegExp(`^${name}==(\\S+)`, 'm'))[1]])
    .map(([name, version]) => [setup.names?.[name] ?? name, version]));
}

const spans = (requests) => requests.flatMap((r) => (r.resourceSpans ?? []).flatMap((rs) => rs.scopeSpans.flatMap((ss) => ss.spans)));
const records = (requests) => requests.flatMap((r) => (r.resourceLogs ?? []).flatMap((rl) => rl.scopeLogs.flatMap((sl) => sl.logRecords)));
const sorted = (list) => [...list].sort();
mkdirSync(out, { recursive: true });
let failed = 0;
for (const setup of SETUPS.filter((s) => !only || only.includes(s.name))) {
  for (const scenario of setup.scenarios.filter((s) => !scenarios || scenarios.includes(s))) {
    const name = `${setup.name}--${scenario}`;
    try {
      await fetch(`${providerURL}/reset`, { method: 'POST' });
      recorder.take();
      const { code, log } = await run(setup, scenario);
      const { billed, answers } = await (await fetch(`${providerURL}/bill`)).json();
      const requests = recorder.take().filter((r) => r.resourceSpans || setup.logs).map(strip);
      if (code !== 0) throw new Error(`exit ${code}: ${log.trim().slice(-1500)}`);
      if (setup.http !== false && answers.length === 0) throw new Error(`the provider saw no request: ${log.trim().slice(-1500)}`);
      const lines = requests.map((r) => JSON.stringify(r) + '\n').join('');
      const leak = lines.match(/.{60}canary.{40}/);
      if (leak) throw new Error(`content survived: ${leak[0]}`);
      if (lines.length > 200_000) throw new Error(`too large: ${lines.length} bytes`);
      const bill = {
        setup: setup.name, packages: versions(setup), scenario, user_requests: 1, billed, answers,
        comment: [setup.comment, setup.comments?.[scenario]].filter(Boolean).join(' '),
      };
      writeFileSync(join(out, `${name}.jsonl`), lines);
      writeFileSync(join(out, `${name}.bill.json`), JSON.stringify(bill, null, 1) + '\n');
      console.log(`ok    ${name}: ${spans(requests).length} spans, ${setup.logs ? `${records(requests).length} log records, ` : ''}${billed.length} billed${process.env.CAPTURE_VERBOSE ? '\n' + log : ''}`);
    } catch (err) {
      failed++;
      console.log(`FAIL  ${name}: ${err.message}`);
    }
  }
}
provider.close();
provider.closeAllConnections();
recorder.close();

// Remove captures of set-ups and scenarios that are no longer listed, then list what is there.
const known = new Set(SETUPS.flatMap((s) => s.scenarios.map((x) => `${s.name}--${x}`)));
for (const file of readdirSync(out)) {
  const name = file.replace(/\.(jsonl|bill\.json)$/, '');
  if (name !== file && !known.has(name)) rmSync(join(out, file));
}
const index = sorted(readdirSync(out).filter((f) => f.endsWith('.bill.json'))).map((file) => {
  const { setup, scenario, billed } = JSON.parse(readFileSync(join(out, file)));
  const base = file.replace('.bill.json', '');
  const requests = readFileSync(join(out, `${base}.jsonl`), 'utf8').split('\n').filter(Boolean).map((l) => JSON.parse(l));
  const logs = records(requests).length;
  return { capture: base, setup, scenario, spans: spans(requests).length, ...(logs ? { logs } : {}), billed: billed.length };
});
writeFileSync(join(out, 'index.json'), `[\n${index.map((x) => JSON.stringify(x)).join(',\n')}\n]\n`);
console.log(`${index.length} captures, ${failed} not recorded`);
process.exitCode = failed ? 1 : 0;
