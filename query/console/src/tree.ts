// A run's calls as the lines of a tree, and as times on one axis.

import type { Call } from "./api";

export interface Line {
  call: Call;
  id: string;
  depth: number;
  children: number; // of the call itself
  below: number; // lines below it, at any depth
  start: number; // ms after the first call began
  length: number; // ms
}

// micros reads RFC 3339 with nanoseconds to a microsecond, which Date alone would lose.
function micros(at: string): number {
  const [whole, fraction = ""] = at.replace("Z", "").split(".");
  return Date.parse(whole + "Z") * 1000 + Number((fraction + "000000").slice(0, 6));
}

// flatten walks the tree in order of time. It keeps no stack of calls: chains of
// thousands are seen in the wild.
export function flatten(roots: Call[]): { lines: Line[]; total: number } {
  const lines: Line[] = [];
  const begun: number[] = [];
  const order = (calls: Call[]) => [...calls].sort((a, b) => micros(b.started_at) - micros(a.started_at)); // to be popped
  const open: [Call, number][] = order(roots).map((c) => [c, 0]);
  while (open.length > 0) {
    const [call, depth] = open.pop()!;
    const children = call.children ?? [];
    lines.push({ call, id: `${call.trace_id}-${call.span_id}-${call.part}`, depth, children: children.length, below: 0, start: 0, length: call.duration_ns / 1e6 });
    begun.push(micros(call.started_at));
    for (const c of order(children)) open.push([c, depth + 1]);
  }
  let first = Infinity;
  for (const b of begun) first = Math.min(first, b);
  let total = 0;
  for (const [i, l] of lines.entries()) {
    l.start = (begun[i] - first) / 1000;
    total = Math.max(total, l.start + l.length);
  }
  const path: number[] = [];
  for (const [i, l] of lines.entries()) {
    path.length = l.depth;
    for (const up of path) lines[up].below++;
    path.push(i);
  }
  return { lines, total: Math.max(total, 0.001) };
}

// shown leaves out what is below closed lines.
export function shown(lines: Line[], closed: Set<string>): Line[] {
  const out: Line[] = [];
  for (let i = 0; i < lines.length; i++) {
    out.push(lines[i]);
    if (closed.has(lines[i].id)) i += lines[i].below;
  }
  return out;
}
