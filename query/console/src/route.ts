// What an address means: which view, which of it, and for which time. It needs nothing of
// the rest, so that the first question of a page can be asked before the rest is there.

import { type Scope, type Window, address } from "./api";

export interface Route {
  view: string; // "runs"
  id: string; // of #/runs/ID
  q: URLSearchParams;
}

// parseRoute reads a hash. An id is everything up to the question mark, since run ids
// are whatever the operator's attribute says, slashes included.
export function parseRoute(hash: string): Route {
  const [path, query] = split(hash.replace(/^#\/?/, ""), "?");
  const [view, id] = split(path, "/");
  let plain = id;
  try {
    plain = decodeURIComponent(id);
  } catch {
    // A lone percent sign that nobody encoded stands for itself.
  }
  return { view: view || "overview", id: plain, q: new URLSearchParams(query) };
}

function split(s: string, at: string): [string, string] {
  const i = s.indexOf(at);
  return i < 0 ? [s, ""] : [s.slice(0, i), s.slice(i + 1)];
}

export function href(view: string, params: Record<string, string | undefined> | URLSearchParams = {}, id = ""): string {
  const q = params instanceof URLSearchParams ? params : new URLSearchParams();
  if (!(params instanceof URLSearchParams)) for (const [k, v] of Object.entries(params)) if (v !== undefined) q.set(k, v);
  const s = q.toString();
  return "#/" + view + (id ? "/" + encodeURIComponent(id) : "") + (s ? "?" + s : "");
}

const spans: Record<string, number> = { "1h": 1, "6h": 6, "24h": 24, "7d": 168, "30d": 720 };

// spanNames are the spans that a button chooses, as it calls them.
export const spanNames: [string, string][] = [...Object.keys(spans).map((s): [string, string] => [s, s]), ["month", "this month"], ["last-month", "last month"]];

// timeOf is the time a route means, for the API. A span that ends now begins on a
// whole minute, so that drawing a page again asks nothing new. Months begin in the tenant's
// zone, which the API knows.
export function timeOf(q: URLSearchParams): { from?: string; to?: string; hours: number } {
  const from = q.get("from") || undefined;
  const to = q.get("to") || undefined;
  const last = q.get("last") ?? "";
  if (!from && !to && last.endsWith("month")) return { from: last, to: last === "month" ? undefined : "month", hours: last === "month" ? 24 * new Date().getUTCDate() : 720 };
  if (from || to) {
    const end = to ? Date.parse(to) : Date.now();
    const hours = from ? (end - Date.parse(from)) / 3.6e6 : 24;
    return { from, to, hours: hours > 0 ? hours : 24 };
  }
  const hours = spans[last] ?? 24;
  return { from: new Date(Math.floor(Date.now() / 60000) * 60000 - hours * 3.6e6).toISOString(), hours };
}

// timeParams are the parameters of a route that say its time, for links to other views.
export const timeParams = (q: URLSearchParams): Record<string, string | undefined> => ({ last: q.get("last") ?? undefined, from: q.get("from") ?? undefined, to: q.get("to") ?? undefined });

// What a run is known by, and what only its calls are.
export const runDimensions = ["tenant", "user", "feature", "workflow", "workflow_version", "agent", "environment", "mode", "criticality"];
export const callDimensions = ["model", "provider", "kind", "retry_layer", "failure", "tool"];

// spendDimensions narrow the overview: all of its questions know them.
export const spendDimensions = [...runDimensions, "model", "provider", "kind"];

// filtersOf are the parameters of a route that narrow a question. An empty value means
// what says none; a tenant always says one.
export function filtersOf(q: URLSearchParams, names: string[]): Record<string, string> {
  const out: Record<string, string> = {};
  for (const n of names) if (q.has(n) && (n !== "tenant" || q.get(n))) out[n] = q.get(n) ?? "";
  return out;
}

// lead is the address of the runs that have these values in the time of a route, or of
// the calls where runs do not have them all; undefined where neither can be listed.
export function lead(route: Route, values: Record<string, unknown>): string | undefined {
  const filters: Record<string, string> = filtersOf(route.q, [...runDimensions, ...callDimensions]);
  for (const [n, v] of Object.entries(values)) filters[n] = String(v);
  const names = Object.keys(filters);
  const params = { ...timeParams(route.q), ...filters };
  if (names.every((n) => runDimensions.includes(n))) return href("runs", params);
  return names.every((n) => runDimensions.includes(n) || callDimensions.includes(n)) ? href("calls", params) : undefined;
}

// Behind is where what a guard counts can be seen.
export interface Behind {
  run?: string; // of a scope that is a run
  spend: string;
  list: string; // the runs, or the calls where runs do not tell them apart
  calls: boolean;
  wider: string[]; // conditions of the guard that no address can say
}

// behind are the addresses of what a guard counts: of its scope, in its window, with times
// that stay, so that they can be passed on. A rolling window is the one that ends now.
export function behind(of: Scope, window: Window, match: Record<string, string[]> = {}): Behind {
  const params: Record<string, string> = { ...of.values };
  const wider: string[] = [];
  for (const [n, values] of Object.entries(match)) {
    if (values.length === 1 && spendDimensions.includes(n)) params[n] ??= values[0];
    else wider.push(`${n.replaceAll("_", " ")} ${values.join(" or ")}`);
  }
  const calls = Object.keys(params).some((n) => !runDimensions.includes(n));
  const minute = Math.ceil(Date.now() / 60000) * 60000;
  const from = window.start ?? (window.over && new Date(minute - milliseconds(window.over)).toISOString());
  const to = window.end ?? (window.over && new Date(minute).toISOString());
  const timed = { from, to, ...params };
  return {
    run: of.runs?.length ? href("runs", { tenant: of.values?.tenant }, of.runs[0]) : undefined,
    spend: href("overview", timed),
    list: href(calls ? "calls" : "runs", timed),
    calls,
    wider,
  };
}

// milliseconds reads a length such as 1h30m.
function milliseconds(text: string): number {
  const units: Record<string, number> = { h: 3.6e6, m: 6e4, s: 1e3 };
  return [...text.matchAll(/([\d.]+)(h|m|s)/g)].reduce((n, [, v, unit]) => n + Number(v) * units[unit], 0);
}

// intervalOf are buckets of which a chart has some dozens, and their length in seconds.
export function intervalOf(hours: number): [string, number] {
  const all: [string, number][] = [["15m", 0.25], ["30m", 0.5], ["1h", 1], ["2h", 2], ["4h", 4], ["6h", 6], ["12h", 12], ["1d", 24], ["1w", 168]];
  const [name, h] = all.find(([, h]) => hours / h <= 60) ?? all[all.length - 1];
  return [name, h * 3600];
}

// totalPath is the first question of the overview: what was spent in all, and over time.
export function totalPath(q: URLSearchParams): string {
  const t = timeOf(q);
  return address("/spend", { from: t.from, to: t.to, ...filtersOf(q, spendDimensions), group_by: "", interval: intervalOf(t.hours)[0] });
}
