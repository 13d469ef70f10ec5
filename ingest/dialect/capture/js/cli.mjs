// Agent command lines, run once without a terminal: CLI says which. Each gets a home of its own, so that neither
// its settings nor its memory of earlier runs come from the machine.

import { spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { PROMPT, sc, TENANT, tolerate } from './lib.mjs';

const home = mkdtempSync(join(tmpdir(), 'capture-'));
const work = join(home, 'work');
mkdirSync(work);
const file = (path, text) => {
  mkdirSync(dirname(join(home, path)), { recursive: true });
  writeFileSync(join(home, path), typeof text === 'string' ? text : JSON.stringify(text));
};
file('work/canary.txt', 'canary text');
const otlp = process.env.OTEL_EXPORTER_OTLP_ENDPOINT;

const CLIS = {
  gemini() {
    file('.gemini/settings.json', {
      security: { auth: { selectedType: 'gemini-api-key' } },
      telemetry: { enabled: true, target: 'local', otlpEndpoint: otlp, otlpProtocol: 'http', useCollector: true, traces: false },
      privacy: { usageStatisticsEnabled: false }, general: { enableAutoUpdate: false },
    });
    return {
      bin: 'gemini', args: ['-m', sc.model, '--approval-mode', 'yolo', '--skip-trust', '-p', PROMPT],
      env: { GOOGLE_GEMINI_BASE_URL: sc.base.replace(/\/v1beta$/, ''), GEMINI_API_KEY: 'none', GEMINI_CLI_NO_RELAUNCH: 'true' },
    };
  },
  claude() {
    return {
      bin: 'claude', args: ['-p', PROMPT, '--model', sc.model, '--allowedTools', 'Read'],
      env: {
        ANTHROPIC_BASE_URL: sc.base, ANTHROPIC_API_KEY: 'none', CLAUDE_CODE_ENABLE_TELEMETRY: '1', CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1', DISABLE_AUTOUPDATER: '1', ...(sc.mode === 'always-429' ? { CLAUDE_CODE_MAX_RETRIES: '2' } : {}),
        OTEL_LOGS_EXPORTER: 'otlp', OTEL_METRICS_EXPORTER: 'otlp', OTEL_EXPORTER_OTLP_PROTOCOL: 'http/protobuf', OTEL_EXPORTER_OTLP_ENDPOINT: otlp,
        ...(process.env.TRACES ? { CLAUDE_CODE_ENHANCED_TELEMETRY_BETA: '1', OTEL_TRACES_EXPORTER: 'otlp' } : {}),
        ...(sc.tenant ? { OTEL_RESOURCE_ATTRIBUTES: `tenant.id=${TENANT},app.feature=coding` } : {}),
      },
    };
  },
  codex() {
    file('.codex/config.toml', `
model = "${sc.model}"
model_provider = "script"
[model_providers.script]
name = "script"
base_url = "${sc.base}"
wire_api = "responses"
env_key = "CAPTURE_KEY"
[otel]
exporter = { otlp-http = { endpoint = "${otlp}/v1/logs", protocol = "binary" } }
`);
    return { bin: 'codex', args: ['exec', '--skip-git-repo-check', '--dangerously-bypass-approvals-and-sandbox', PROMPT], env: { CAPTURE_KEY: 'none' } };
  },
};

const cli = CLIS[process.env.CLI]();
const child = spawn(join(dirname(fileURLToPath(import.meta.url)), 'node_modules', '.bin', cli.bin), cli.args, {
  cwd: work, stdio: ['ignore', 'inherit', 'inherit'],
  env: { PATH: process.env.PATH, LANG: process.env.LANG, HOME: home, ...cli.env },
});
const code = await new Promise((done) => child.on('close', done));
rmSync(home, { recursive: true, force: true });
if (code !== 0) tolerate(new Error(`${cli.bin} ended with ${code}`));
