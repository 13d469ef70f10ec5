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

// answer is what the server says to a request, whatever it is. A body is JSON unless a
// type is said.
async function answer(path: string, accept: string, init: RequestInit, type = "application/json"): Promise<Response> {
  const headers: Record<string, string> = { Accept: accept };
  if (key.get()) headers.Authorization = "Bearer " + key.get();
  if (init.body) headers["Content-Type"] = type;
  try {
    return await fetch(path, { ...init, headers, credentials: "same-origin" });
  } catch (e) {
    if (init.signal?.aborted) throw e;
    throw new Problem(0, "The server does not answer. Is it running, and is this machine connected?");
  }
}

async function send(path: string, init: RequestInit): Promise<unknown> {
  return read(await answer(path, "application/json", init));
}

// file is a CSV file of the question at a path, and whether there is more than is in it.
export async function file(path: string): Promise<{ body: Blob; more: boolean }> {
  const res = await answer(path, "text/csv, application/problem+json", {});
  if (!res.ok) await read(res);
  return { body: await res.blob(), more: res.headers.get("X-Flyball-Truncated") === "true" };
}

// read takes an answer as JSON, and throws one that is a problem.
async function read(res: Response): Promise<unknown> {
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

// A question that is asked before whoever wants its answer is there.
let early: { path: string; answer: Promise<unknown>; data?: unknown; stop: AbortController } | undefined;

// askEarly asks what useApi will ask for. If that fails the page asks again, and can say why.
export function askEarly(path: string) {
  const stop = new AbortController();
  const asked = { path, stop, answer: send(path, { signal: stop.signal }), data: undefined as unknown };
  asked.answer.then((data) => (asked.data = data)).catch(() => {});
  early = asked;
}

// answered is the answer to a path that was asked early and is there; it is given once.
export function answered<T>(path: string): T | undefined {
  if (early?.path !== path || early.data === undefined) return undefined;
  const { data } = early;
  early = undefined;
  return data as T;
}

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  if (early?.path === path) {
    const { answer, stop } = early;
    early = undefined;
    signal?.addEventListener("abort", () => stop.abort());
    try {
      return (await answer) as T;
    } catch (e) {
      if (signal?.aborted) throw e;
    }
  }
  return (await send(path, { signal })) as T;
}

// Browsers open six connections to a server. At most four questions are asked at once, the
// first of a page first, so that the kill switch never waits behind slow ones.
let free = 4;
const waiting: (() => void)[] = [];

// question is get in its turn. One that is cancelled while it waits is never sent.
export async function question<T>(path: string, signal: AbortSignal): Promise<T> {
  if (free > 0) free--;
  else await new Promise<void>((turn) => waiting.push(turn));
  try {
    signal.throwIfAborted();
    return await get<T>(path, signal);
  } finally {
    const next = waiting.shift();
    if (next) next();
    else free++;
  }
}
export const post = <T>(path: string, body: unknown, signal?: AbortSignal) => send(path, { method: "POST", body: JSON.stringify(body), signal }) as Promise<T>;

// upload sends files one after the other as one body, which the browser reads from the disk
// as it is sent.
export async function upload<T>(path: string, files: File[], type: string, signal: AbortSignal): Promise<T> {
  return (await read(await answer(path, "application/json", { method: "POST", body: new Blob(files), signal }, type))) as T;
}

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
  as_of: string;
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
export interface Rows<T> extends Page {
  rows: T[];
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
  run_id: string;
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
// Scope is what a guard or a directive is about, by dimension.
export interface Scope {
  values?: Record<string, string>;
  runs?: string[];
}
export interface Live {
  id: string;
  guard: string;
  action: string;
  reason: string;
  scope: Scope;
  match?: Record<string, string[]>;
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
  of: Scope;
  match?: Record<string, string[]>;
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
  limiter?: string;
  class?: string;
  calls?: number;
  usd?: string;
  took_ns?: number;
  trace_id?: string;
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
// Page is what every answer of rows has.
export interface Page {
  truncated: boolean;
  next?: string;
  from?: string;
  to?: string;
  as_of?: string;
}
type Row = Record<string, unknown>;
export interface LoadRow extends Row {
  at?: string;
  requests: number;
  steps: number;
  retries: number;
  fallbacks: number;
  hedges: number;
  provider_calls: number;
  steps_per_request: number;
  retry_multiplier: number | null;
  calls_p50: number;
  calls_p90: number;
  calls_p99: number;
  cost_usd: string;
  unpriced_calls: number;
  unknown_calls: number;
}
export interface RateLimitRow extends Row {
  at?: string;
  attempts: number;
  rate_limited: number;
  rate: number | null;
}
export interface WorkedRow extends Row {
  retries: string;
  calls: number;
  cost_usd: string;
  uncosted_calls: number;
  incomplete_calls: number;
  compared_calls: number;
  compared_usd: string;
  first_try_usd: string | null;
  cost_ratio: number | null;
  mean_ms: number | null;
  extra_ms: number | null;
}
export interface LoopRow extends Row {
  requests: number;
  looping_requests: number;
  tool_calls: number;
  repeats: number;
  repeat_ratio: number | null;
  most_repeats: number;
  cost_usd: string;
  looping_cost_usd: string;
  looping_uncosted_calls: number;
}
export interface PollRow extends Row {
  calls: number;
  polls: number;
  empty_polls: number;
  empty_share: number | null;
  unknown_polls: number;
  empty_turns: number;
  empty_turns_usd: string;
  empty_turns_uncosted: number;
}
export interface PayloadRow extends Row {
  calls: number;
  unsized_calls: number;
  bytes: number | null;
  bytes_per_call: number | null;
  measured_calls: number;
  measured_tokens: number | null;
  tokens_per_call: number | null;
}
export interface CacheRow extends Row {
  calls: number;
  input_tokens: number;
  cache_read_tokens: number;
  cache_write_tokens: number;
  hit_rate: number | null;
  read_saved_usd: string;
  write_extra_usd: string;
  saved_usd: string;
  unknown_price_calls: number;
  unknown_price_tokens: number;
  cache_unknown_calls: number;
}
export interface BatchRow extends Row {
  calls: number;
  spend_usd: string;
  eligible_usd: string;
  saving_usd: string;
  no_batch_price_calls: number;
  unknown_price_calls: number;
  unknown_price_usd: string;
  unpriced_calls: number;
  unknown_calls: number;
}
export const effects = ["volume", "amplification", "retries", "mix", "tokens", "price", "other"] as const;
export interface MoverSide {
  requests: number;
  model_calls: number;
  attempts: number;
  tokens: number;
  uncosted_calls: number;
}
export interface MoverRow extends Row {
  before: MoverSide;
  after: MoverSide;
  before_usd: string;
  after_usd: string;
  change_usd: string;
  main: string;
  effects: Record<(typeof effects)[number], string>;
}
export interface Movers extends Page {
  rows: MoverRow[];
  total: MoverRow;
  requests_counted: boolean;
  base_from: string;
  base_to: string;
}
export interface Closed {
  tenant: string;
  period: string;
  timezone: string;
  as_of: string;
  closed_at: string;
  closed_by: string;
  cost_usd: string;
}
export interface CloseReport extends Page {
  closes: Closed[];
  rows: {
    tenant: string;
    provider: string;
    model: string;
    frozen_usd: string;
    current_usd: string;
    adjustment_usd: string;
    frozen_calls: number;
    current_calls: number;
    current_unpriced: number;
    current_unknown: number;
  }[];
  total: { frozen_usd: string; current_usd: string; adjustment_usd: string; frozen_calls: number; current_calls: number };
}
interface Differing {
  ours_usd: string;
  theirs_usd: string;
  difference_usd: string;
  priced_usd: string | null;
  only_ours_usd: string | null;
  only_theirs_usd: string | null;
  rounding_usd: string;
  unsplit_usd: string;
}
export interface Reconciliation extends Differing {
  id: string;
  source: string;
  made_at: string;
  made_by: string;
  from: string;
  to: string;
  theirs: string;
  currency: string;
  skipped_rows: number;
  skipped_usd: string;
}
export interface BillRow extends Differing {
  day: string;
  provider: string;
  model: string;
  item: string;
  error_usd: string | null;
  calls: number;
  unpriced: number;
  unknown: number;
  estimated: number;
  sampled: number;
  split_by: string;
  theirs: string;
  currency: string;
  rate: { usd: string; of: string; source: string } | null;
}
export interface Reconciled extends Page {
  reconciliation: Reconciliation;
  rows: BillRow[];
  already?: boolean; // the same file was compared before
}
export interface LeakRow extends Row {
  guard: string;
  limiter: string;
  propagation_calls: number;
  propagation_usd: string;
  leak_calls: number;
  leak_usd: string;
  unguarded_calls: number;
  unguarded_usd: string;
}
interface Durations {
  p50_ns: number | null;
  p90_ns: number | null;
  p99_ns: number | null;
  max_ns: number | null;
}
export interface TimesRow extends Row, Durations {
  limiter: string;
  count: number;
  after_span: Durations & { count: number };
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
