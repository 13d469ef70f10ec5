// Pieces that several views are made of.

import type { ComponentChildren, JSX } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { type Answer, type Route, navigate, timeOf } from "./hooks";
import { Problem, type Unknowns, post } from "./api";

const local = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const clock = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });

// Time is an instant in the browser's zone; UTC is what hovering shows.
export function Time({ at, short }: { at?: string; short?: boolean }) {
  if (!at || at.startsWith("0001")) return <span class="muted">–</span>;
  const d = new Date(at);
  const today = d.toDateString() === new Date().toDateString();
  return (
    <time dateTime={at} title={d.toISOString().replace("T", " ").replace("Z", " UTC")}>
      {short && today ? clock.format(d) : local.format(d)}
    </time>
  );
}

export function duration(ns: number): string {
  if (ns < 1e3) return ns + " ns";
  if (ns < 1e6) return (ns / 1e3).toFixed(1) + " µs";
  if (ns < 1e9) return (ns / 1e6).toFixed(ns < 1e8 ? 1 : 0) + " ms";
  if (ns < 120e9) return (ns / 1e9).toFixed(2) + " s";
  if (ns < 7200e9) return (ns / 60e9).toFixed(1) + " min";
  return (ns / 3600e9).toFixed(1) + " h";
}

export const ratio = (v: number | null | undefined) => (v === null || v === undefined ? "–" : String(Math.round(v * 1000) / 1000));

// Name shows what a sender called something. It is text, whatever it looks like.
export const Name = ({ v }: { v?: string }) => (v ? <bdi class="name" title={v.length > 40 ? v : undefined}>{v}</bdi> : <span class="muted">(none)</span>);

// USD shows the API's own digits; null is not zero.
export const USD = ({ v }: { v?: string | null }) =>
  v === null || v === undefined ? <span class="muted">unknown</span> : <span class="num">{v}</span>;

// Unknown is what stands beside a total: how much of it nobody knows.
export function Unknown({ u }: { u: Unknowns }) {
  const parts: [number, string][] = [
    [u.unpriced_calls, "without a price"],
    [u.unknown_calls, "of unknown usage"],
    [u.estimated_calls ?? 0, "estimated"],
    [u.sampled_calls ?? 0, "from sampled traces"],
  ];
  const shown = parts.filter(([n]) => n > 0);
  if (shown.length === 0) return <span class="muted">nothing unknown</span>;
  return (
    <span class="doubt">
      {shown.map(([n, what]) => `${n} ${what}`).join(", ")}
    </span>
  );
}

export interface Column<T> {
  head: string;
  cell: (row: T) => ComponentChildren;
  num?: boolean;
  long?: boolean; // of text that wants room
  hint?: string;
}

// Table is one on a desk and a list of cards on a phone.
export function Table<T>({ label, columns, rows, keyOf, empty }: { label: string; columns: Column<T>[]; rows: T[]; keyOf: (row: T) => string; empty?: ComponentChildren }) {
  if (rows.length === 0) return <p class="empty">{empty ?? "Nothing here."}</p>;
  return (
    <div class="scroll">
      <table aria-label={label}>
        <thead>
          <tr>
            {columns.map((c) => (
              <th key={c.head} scope="col" class={c.num ? "n" : ""} title={c.hint}>
                {c.head}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((r) => (
            <tr key={keyOf(r)}>
              {columns.map((c) => (
                <td key={c.head} class={c.num ? "n" : c.long ? "long" : ""} data-label={c.head}>
                  <span>{c.cell(r)}</span>
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

export function Card({ title, note, children, wide }: { title: string; note?: ComponentChildren; children: ComponentChildren; wide?: boolean }) {
  const id = useId();
  return (
    <section class={"card" + (wide ? " wide" : "")} aria-labelledby={id}>
      <h2 id={id}>{title}</h2>
      {note && <p class="note">{note}</p>}
      {children}
    </section>
  );
}

export function Failure({ error, retry }: { error: Problem; retry?: () => void }) {
  const waits = error.status === 503;
  return (
    <div class={"failure" + (waits ? " waits" : "")} role="alert">
      <p>
        <strong>{waits ? "Not yet: " : error.status === 403 ? "Not with this key: " : "This did not work: "}</strong>
        {error.message}
      </p>
      {waits ? (
        <p class="note">It is asked again by itself.</p>
      ) : (
        retry && (
          <button type="button" onClick={retry}>
            Try again
          </button>
        )
      )}
    </div>
  );
}

// Loaded shows an answer, or what there is instead of it. While a newer one is on its
// way the old stays, marked busy.
export function Loaded<T>({ of, children }: { of: Answer<T>; children: (data: T) => ComponentChildren }) {
  return (
    <>
      {of.error && of.error.status !== 401 && <Failure error={of.error} retry={of.reload} />}
      {of.data !== undefined ? (
        <div aria-busy={of.loading}>{children(of.data)}</div>
      ) : (
        !of.error && (
          <div class="skeleton" role="status" aria-label="Loading">
            <i />
            <i />
            <i />
          </div>
        )
      )}
    </>
  );
}

export function Badge({ kind, children, title }: { kind?: string; children: ComponentChildren; title?: string }) {
  return (
    <span class={"badge " + (kind ?? "")} title={title}>
      {children}
    </span>
  );
}

export const statusKind = (s: string) => ({ succeeded: "good", failed: "bad", stopped: "bad", partial: "warn" })[s] ?? "";

export const actionKind = (a: string) => (a === "warn" ? "warn" : a === "throttle" || a === "downgrade" ? "mid" : "bad");

// share is a part of a limit for drawing; undefined where either is no number. Limits
// may be money, counts, ratios or durations.
export function share(part: string, whole: string): number | undefined {
  const n = (s: string) => (/^-?\$?-?[0-9.]+$/.test(s) ? Number(s.replace("$", "")) : NaN);
  const v = n(part) / n(whole);
  return Number.isFinite(v) ? Math.max(0, v) : undefined;
}

export function Meter({ value, label }: { value?: number; label: string }) {
  if (value === undefined) return null;
  const text = (value > 0 && value < 0.01 ? "< 1" : Math.round(value * 100)) + " %";
  return (
    <span class="meter" role="img" aria-label={`${label}: ${text} used`}>
      <span class="track">
        <i style={{ width: Math.min(100, value * 100) + "%" }} class={value >= 1 ? "bad" : value >= 0.8 ? "warn" : ""} />
      </span>
      <span class="part">{text}</span>
    </span>
  );
}

// Range chooses the time that a view shows.
export function Range({ route }: { route: Route }) {
  const fixed = route.q.get("from") || route.q.get("to");
  const [own, setOwn] = useState(false);
  const t = timeOf(route.q);
  const text = (v?: string) => {
    const d = v ? new Date(v) : new Date();
    return Number.isNaN(d.getTime()) ? "" : new Date(d.getTime() - d.getTimezoneOffset() * 60000).toISOString().slice(0, 16);
  };
  const submit = (e: JSX.TargetedEvent<HTMLFormElement>) => {
    e.preventDefault();
    const f = new FormData(e.currentTarget);
    const at = (name: string) => (f.get(name) ? new Date(String(f.get(name))).toISOString() : undefined);
    navigate(route, { last: undefined, from: at("from"), to: at("to") });
    setOwn(false);
  };
  return (
    <div class="range">
      <div class="buttons" role="group" aria-label="Time">
        {["1h", "6h", "24h", "7d", "30d"].map((l) => (
          <button key={l} type="button" aria-pressed={!fixed && (route.q.get("last") ?? "24h") === l} onClick={() => navigate(route, { last: l, from: undefined, to: undefined })}>
            {l}
          </button>
        ))}
        <button type="button" aria-pressed={!!fixed} aria-expanded={own} onClick={() => setOwn(!own)}>
          other
        </button>
      </div>
      {fixed && !own && (
        <span class="note">
          <Time at={t.from} /> to {t.to ? <Time at={t.to} /> : "now"}
        </span>
      )}
      {own && (
        <form class="inline" onSubmit={submit}>
          <label>
            from <input type="datetime-local" name="from" required defaultValue={text(t.from)} />
          </label>
          <label>
            to <input type="datetime-local" name="to" defaultValue={t.to ? text(t.to) : ""} />
          </label>
          <button type="submit">Show</button>
        </form>
      )}
    </div>
  );
}

// Chips are the parameters that narrow a view; each can be removed. One that is there
// and empty means calls that say none.
export function Chips({ route, names }: { route: Route; names: string[] }) {
  const used = names.filter((n) => route.q.has(n));
  if (used.length === 0) return null;
  return (
    <p class="chips">
      {used.map((n) => (
        <button key={n} type="button" class="chip" onClick={() => navigate(route, { [n]: undefined })} aria-label={`Remove the filter ${n}`}>
          {n} = <Name v={route.q.get(n) ?? ""} /> <span aria-hidden="true">×</span>
        </button>
      ))}
    </p>
  );
}

// Confirm is a dialog that asks before something changes, and wants a reason.
export function Confirm({ title, text, action, danger, onDone, run }: { title: string; text: ComponentChildren; action: string; danger?: boolean; onDone: () => void; run: (reason: string) => Promise<unknown> }) {
  const box = useRef<HTMLDialogElement>(null);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<Problem>();
  const id = useId();
  useEffect(() => box.current?.showModal(), []);
  const submit = async (e: JSX.TargetedEvent<HTMLFormElement>) => {
    e.preventDefault();
    setBusy(true);
    setError(undefined);
    try {
      await run(String(new FormData(e.currentTarget).get("reason")));
      box.current?.close();
    } catch (e) {
      setError(e instanceof Problem ? e : new Problem(0, String(e)));
    }
    setBusy(false);
  };
  return (
    <dialog ref={box} aria-labelledby={id} onClose={onDone}>
      <h2 id={id}>{title}</h2>
      {text}
      <form onSubmit={submit}>
        <label>
          Reason, for whoever reads this later
          <textarea name="reason" required maxLength={1000} rows={2} />
        </label>
        {error && <Failure error={error} />}
        <div class="buttons end">
          <button type="button" onClick={() => box.current?.close()}>
            Cancel
          </button>
          <button type="submit" class={danger ? "danger" : "primary"} disabled={busy}>
            {busy ? "Working …" : action}
          </button>
        </div>
      </form>
    </dialog>
  );
}

// say tells something once, also to those who hear the page.
export const say = (text: string) => dispatchEvent(new CustomEvent("flyball-say", { detail: text }));

export const change = <T,>(path: string, body: unknown) => post<T>("/api/v1" + path, body);

export const windowText = (w: { kind: string; start?: string; end?: string; over?: string }) => {
  if (w.kind === "rolling") return "last " + w.over;
  if (w.kind === "run") return "life of the run";
  return w.kind;
};
