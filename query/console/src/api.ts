// The HTTP API: one way to ask, one way to change, and what answers look like.

const keyName = "flyball.key";

// The key lives in this tab only and goes nowhere but into the Authorization header.
export const key = {
  get: () => sessionStorage.getItem(keyName) ?? "",
  set: (v: string) => (v ? sessionStorage.setItem(keyName, v) : sessionStorage.removeItem(keyName)),
};

// A Problem is an answer that is not what was asked for, in words for people.
export class Problem extends Error {
  constructor(
    readonly status: number,
    detail: string,
    readonly body: Record<string, unknown> = {},
  ) {
    super(detail);
  }
}

async function send(path: string, init: RequestInit): Promise<unknown> {
  const headers: Record<string, string> = { Accept: "application/json" };
  if (key.get()) headers.Authorization = "Bearer " + key.get();
  if (init.body) headers["Content-Type"] = "application/json";
  let res: Response;
  try {
    res = await fetch(path, { ...init, headers, credentials: "same-origin" });
  } catch (e) {
    if (init.signal?.aborted) throw e;
    throw new Problem(0, "The server does not answer. Is it running, and is this machine connected?");
  }
  const text = await res.text();
  let body: Record<string, unknown> = {};
  try {
    body = text ? JSON.parse(text) : {};
  } catch {
    if (res.ok) throw new Problem(res.status, "The answer is not JSON; something between this page and the server may have changed it.");
  }
  if (!res.ok) {
    const detail = typeof body.detail === "string" ? body.detail : `The server answered ${res.status} ${res.statusText}.`;
    if (res.status === 401) dispatchEvent(new CustomEvent("flyball-key", { detail }));
    throw new Problem(res.status, detail, body);
  }
  return body;
}

export const get = <T>(path: string, signal?: AbortSignal) => send(path, { signal }) as Promise<T>;
export const post = <T>(path: string, body: unknown, signal?: AbortSignal) => send(path, { method: "POST", body: JSON.stringify(body), signal }) as Promise<T>;

// address is an API path with parameters; what is undefined is left out, "" is a value.
export function address(path: string, params: Record<string, string | number | undefined> = {}): string {
  const q = new URLSearchParams();
  for (const [k, v] of Object.entries(params)) if (v !== undefined) q.set(k, String(v));
  const s = q.toString();
  return "/api/v1" + path + (s ? "?" + s : "");
}

// Money and counts that may be large are strings and are shown as they came.
export interface Unknowns {
  unpriced_calls: number;
  unknown_calls: number;
  estimated_calls?: number;
  sampled_calls?: number;
}
export interface SpendRow extends Unknowns, Record<string, unknown> {
  at?: string;
  calls: number;
  cost_usd: string;
}
export interface Spend {
  rows: SpendRow[];
  total: SpendRow & { complete: boolean };
  truncated: boolean;
  from: string;
  to: string;
  timezone: string;
}
export interface AmplificationRow extends Unknowns, Record<string, unknown> {
  requests: number;
  model_calls: number;
  tool_calls: number;
  retries: number;
  fallbacks: number;
  hedges: number;
  ratio: number | null;
  retry_multiplier: number | null;
  cost_amplification: number | null;
  cost_usd: string;
  wasted_usd: string;
  p50: number;
  p90: number;
  p99: number;
}
export interface RetryRow {
  layer: string;
  failure: string;
  retries: number;
  fallbacks: number;
  hedges: number;
  wasted_usd: string;
}
export interface Rows<T> {
  rows: T[];
  truncated: boolean;
}
export interface RunRow extends Unknowns {
  tenant: string;
  run_id: string;
  status: string;
  name: string;
  user: string;
  feature: string;
  workflow: string;
  workflow_version: string;
  agent: string;
  started_at: string;
  ended_at: string;
  model_calls: number;
  tool_calls: number;
  retries: number;
  fallbacks: number;
  hedges: number;
  amplification: number;
  cost_usd: string;
}
export interface Call extends Record<string, unknown> {
  tenant: string;
  trace_id: string;
  span_id: string;
  parent_span_id: string;
  part: number;
  started_at: string;
  duration_ns: number;
  kind: string;
  name: string;
  provider: string;
  model: string;
  tool: string;
  cost_usd: string | null;
  estimate_usd: string | null;
  cost_status: string;
  usage: string;
  tokens: Record<string, number>;
  failure: string;
  http_status: number;
  retry_layer: string;
  retry_cause: string;
  hidden_attempts: number;
  hidden_cause: string;
  retries: number;
  attempt: number;
  fallback: boolean;
  hedge: boolean;
  aggregate: boolean;
  duplicate_of: string;
  flags: string[];
  children?: Call[];
}
export interface Run extends RunRow {
  requests: number;
  wasted_usd: string;
  cost_amplification: number | null;
  retry_multiplier: number | null;
  retries_by_layer: Record<string, number>;
  failures: Record<string, number>;
  kinds: Record<string, number>;
  flags: Record<string, number>;
  repeats: number;
  truncated: boolean;
  session: string;
  criticality: string;
  mode: string;
  environment: string;
  calls: Call[];
}
export interface GuardRow {
  name: string;
  scope: string[];
  measure: string;
  window: string;
  limit: string;
  ladder: string[] | null;
  mode: string;
  outcome: string;
  warming: boolean;
  live: number;
  blocking: number;
}
export interface Window {
  kind: string;
  start?: string;
  end?: string;
  over?: string;
  zone?: string;
}
interface Leaked {
  calls: number;
  usd: string;
}
export interface Live {
  id: string;
  guard: string;
  action: string;
  reason: string;
  scope_text: string;
  rung: string;
  shadow?: boolean;
  outcome?: string;
  measure?: string;
  limit?: string;
  spent?: string;
  window: Window;
  issued_at: string;
  expires_at?: string;
  leaked: { Propagation: Leaked; Leak: Leaked; Unguarded: Leaked };
}
export interface Budget {
  guard: string;
  scope: string;
  measure: string;
  limit: string;
  spend: string;
  holds: string;
  leases: string;
  left: string;
  window: Window;
  as_of: string;
  mode: string;
  warming?: boolean;
  unclear_tool_calls?: number;
  overshoot_bound?: { usd: string; export_delay_ns: number; propagation_ns: number; usd_per_second: string };
}
export interface Event {
  seq: number;
  at: string;
  kind: string;
  guard?: string;
  tenant?: string;
  scope?: string;
  action?: string;
  value?: string;
  limit?: string;
  rung?: string;
  shadow?: boolean;
  actor?: string;
  reason?: string;
}
export interface Limiter {
  id: string;
  key?: string;
  acknowledged: string;
  behind: boolean;
  seen_at: string;
  since: string;
  active: boolean;
  time_to_enforce_ns?: number;
}
export interface Kill {
  on: boolean;
  stage: number;
  exempt?: string[];
  reason?: string;
  actor?: string;
  since?: string;
  drill?: string;
  // Only for keys that see every tenant:
  auto?: boolean;
  mode?: string;
  suspended_until?: string;
  last_hour_usd?: string;
  last_hour_limit_usd?: string;
  today_usd?: string;
  today_limit_usd?: string;
  history_days?: number;
  version?: { epoch: number; revision: number };
  limiters?: Limiter[];
}
export interface Drill {
  id: string;
  version: string;
  took_ns: number;
  slowest?: string;
  acknowledged: { id: string; took_ns: number }[] | null;
  missing?: string[];
}
export interface Light {
  provider: string;
  color: string;
  since?: string;
  headroom: { model?: string; dimension: string; limit: number; remaining: number; reset_at?: string }[];
}
export interface Coverage {
  rows: { provider: string; model: string; calls: number; unpriced: number; unknown: number; estimated: number; assumed_basis: number; sampled: number; cost_usd: string }[];
  flags: Record<string, number>;
  total: Record<string, number>;
  findings: { finding: string; text: string; tenants: string[]; trace_id: string }[];
  truncated: boolean;
}
export interface Ready {
  listen: Record<string, string>;
}
