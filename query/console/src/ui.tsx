// Pieces that several views are made of.

import type { ComponentChildren, JSX } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { type Answer, navigate, refresh, useApi } from "./hooks";
import { type Page, Problem, type Unknowns, address, file, post } from "./api";
import { type Route, callDimensions, href, lead, runDimensions, spanNames, timeOf } from "./route";

// Making a format takes milliseconds of a page's first paint: each is made when it is
// wanted, once.
const format = (options: Intl.DateTimeFormatOptions) => {
  let made: Intl.DateTimeFormat | undefined;
  return () => (made ??= new Intl.DateTimeFormat(undefined, options));
};
const local = format({ dateStyle: "medium", timeStyle: "medium" });
const clock = format({ timeStyle: "medium" });
export const zone = () => clock().resolvedOptions().timeZone;

// Time is an instant in the browser's zone; UTC is what hovering shows. What is none, as
// in an address that was edited by hand, is shown as it stands.
export function Time({ at, short }: { at?: string; short?: boolean }) {
  if (!at || at.startsWith("0001")) return <span class="muted">–</span>;
  const d = new Date(at);
  if (Number.isNaN(d.getTime())) return <span>{at}</span>;
  const today = d.toDateString() === new Date().toDateString();
  return (
    <time dateTime={at} title={d.toISOString().replace("T", " ").replace("Z", " UTC")}>
      {(short && today ? clock() : local()).format(d)}
    </time>
  );
}

export function duration(ns: number): string {
  if (ns < 1e3) return Math.round(ns) + " ns";
  if (ns < 1e6) return (ns / 1e3).toFixed(1) + " µs";
  if (ns < 1e9) return (ns / 1e6).toFixed(ns < 1e8 ? 1 : 0) + " ms";
  if (ns < 120e9) return (ns / 1e9).toFixed(2) + " s";
  if (ns < 7200e9) return (ns / 60e9).toFixed(1) + " min";
  return (ns / 3600e9).toFixed(1) + " h";
}

export const milliseconds = (ms: number | null) => (ms === null ? <span class="muted">–</span> : (ms < 0 ? "−" : "") + duration(Math.abs(ms) * 1e6));

export function bytes(n: number | null) {
  if (n === null) return <span class="muted">unknown</span>;
  const unit = Math.min(4, Math.max(0, Math.floor(Math.log2(Math.abs(n) || 1) / 10)));
  return `${Math.round((n / 1024 ** unit) * 10) / 10} ${["B", "KiB", "MiB", "GiB", "TiB"][unit]}`;
}

export const ratio = (v: number | null | undefined) => (v === null || v === undefined ? "–" : String(Math.round(v * 1000) / 1000));

// Name shows what a sender called something. It is text, whatever it looks like.
export const Name = ({ v }: { v?: string }) => (v ? <bdi class={v.length > 24 ? "name" : "name short"} title={v.length > 40 ? v : undefined}>{v}</bdi> : <span class="muted">(none)</span>);

// Digits are a decimal as it came, with gaps between thousands, which are no characters and
// are not copied, and with what is below a cent, or far behind the point, in the background.
function Digits({ v }: { v: string }) {
  const m = /^(-?)(\d+)(?:\.(\d+))?$/.exec(v);
  if (!m) return <span class="num">{v}</span>;
  const [, sign, whole, fraction = ""] = m;
  const groups = whole.replace(/\B(?=(\d{3})+$)/g, ",").split(",");
  const plain = whole === "0" ? Math.max(4, fraction.search(/[1-9]/) + 2) : 2;
  return (
    <span class="num">
      {sign}
      {groups[0]}
      {groups.slice(1).map((g, i) => (
        <span key={i} class="thousand">{g}</span>
      ))}
      {fraction && "." + fraction.slice(0, plain)}
      {fraction.length > plain && <span class="fine">{fraction.slice(plain)}</span>}
    </span>
  );
}

// USD shows the API's own digits; null is not zero.
export const USD = ({ v }: { v?: string | null }) => (v === null || v === undefined ? <span class="muted">unknown</span> : <Digits v={v} />);

// Count is a whole number; null is not zero.
export const Count = ({ v }: { v: number | null | undefined }) => (v === null || v === undefined ? <span class="muted">unknown</span> : <Digits v={String(v)} />);

export const percent = (v: number | null | undefined) => (v === null || v === undefined ? "–" : v > 0 && v < 0.0005 ? "< 0.1 %" : Math.round(v * 1000) / 10 + " %");

// Doubts are what stands beside a figure: how many calls are not in it, and why.
export function Doubts({ of, none }: { of: [number | undefined, string][]; none?: string }) {
  const shown = of.filter(([n]) => n);
  if (shown.length === 0) return <span class="muted">{none ?? "nothing unknown"}</span>;
  return <span class="doubt">{shown.map(([n, what]) => `${n} ${what}`).join(", ")}</span>;
}

// Unknown is what stands beside a total: how much of it nobody knows.
export const Unknown = ({ u }: { u: Unknowns }) => (
  <Doubts
    of={[
      [u.unpriced_calls, "without a price"],
      [u.unknown_calls, "of unknown usage"],
      [u.estimated_calls, "estimated"],
      [u.sampled_calls, "from sampled traces"],
    ]}
  />
);

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

// AsOf says how old an answer is: when the server made it, else when it came.
export function AsOf<T>({ of }: { of: Answer<T> }) {
  if (of.data === undefined || of.at === undefined) return null;
  const said = (of.data as { as_of?: string }).as_of;
  return (
    <span class="asof">
      as of <Time at={said ?? new Date(of.at).toISOString()} short />
    </span>
  );
}

// Loaded shows an answer, or what there is instead of it, and how old it is unless bare.
// While a newer one is on its way the old stays, marked busy.
export function Loaded<T>({ of, bare, children }: { of: Answer<T>; bare?: boolean; children: (data: T) => ComponentChildren }) {
  return (
    <>
      {of.error && of.error.status !== 401 && <Failure error={of.error} retry={of.reload} />}
      {of.data !== undefined ? (
        <div aria-busy={of.loading}>
          {children(of.data)}
          {!bare && (
            <p class="foot">
              <AsOf of={of} />
            </p>
          )}
        </div>
      ) : (
        !of.error && <Skeleton />
      )}
    </>
  );
}

function Skeleton() {
  const [long, set] = useState(false);
  useEffect(() => {
    const timer = window.setTimeout(() => set(true), 4000);
    return () => clearTimeout(timer);
  }, []);
  return (
    <div class="skeleton" role="status" aria-label="Loading">
      <i />
      <i />
      <i />
      {long && <p class="note">Still being worked out. A shorter time, or one tenant, is answered sooner.</p>}
    </div>
  );
}

interface QuestionProps<A extends { rows: unknown[] }> {
  route: Route;
  title: string;
  note?: ComponentChildren;
  name: string; // of its parameter in the address
  path: string; // below /api/v1
  params: Record<string, string | undefined>;
  by: string[]; // what it may be grouped by, separated by commas; the first is the default
  every?: number;
  only?: (row: A["rows"][number], groups: string[]) => boolean; // rows, which come first, that are worth showing
  children: (answer: A, groups: string[]) => ComponentChildren;
}

// What rows may be grouped by in words.
const groupText = (by: string) => by.split(",").join(", ").replaceAll("_", " ") || "nothing, one sum";

// Question is a card with the rows of one question, grouped as is chosen.
export function Question<A extends Page & { rows: unknown[] }>({ route, title, note, name, path, params, by, every, only, children }: QuestionProps<A>) {
  const chosen = route.q.get("by." + name);
  const group = chosen !== null && by.includes(chosen) ? chosen : by[0];
  const [limit, setLimit] = useState(matchMedia("(max-width: 800px)").matches ? 10 : 25);
  const asked = { ...params, group_by: group };
  const a = useApi<A>(address(path, { ...asked, limit }), every);
  const groups = group.split(",").filter(Boolean);
  const worth = (d: A): A => {
    const rows = only ? d.rows.filter((r) => only(r, groups)) : d.rows;
    return rows.length === d.rows.length ? d : { ...d, rows, truncated: false };
  };
  return (
    <Card title={title} note={note} wide>
      {by.length > 1 && (
        <label class="by">
          by{" "}
          <select value={group} onChange={(e) => navigate(route, { ["by." + name]: e.currentTarget.value })}>
            {by.map((b) => (
              <option key={b} value={b}>
                {groupText(b)}
              </option>
            ))}
          </select>
        </label>
      )}
      <Loaded of={a} bare>
        {(all) => {
          const d = worth(all);
          return (
            <>
              {children(d, groups)}
              <div class="foot">
                <AsOf of={a} />
                {d.truncated && <span>the first {d.rows.length} of more</span>}
                {d.truncated && limit < 1000 && (
                  <button type="button" onClick={() => setLimit(Math.min(1000, limit * 4))}>
                    Show more<span class="hear"> of {title}</span>
                  </button>
                )}
                {d.rows.length > 0 && <Download name={name} path={address(path, { ...asked, format: "csv" })} />}
              </div>
            </>
          );
        }}
      </Loaded>
    </Card>
  );
}

// Download saves a question's answer as a file. A link could not send the key.
function Download({ name, path }: { name: string; path: string }) {
  const save = async () => {
    try {
      const { body, more } = await file(path);
      const url = URL.createObjectURL(body);
      Object.assign(document.createElement("a"), { href: url, download: `${name}.csv` }).click();
      setTimeout(() => URL.revokeObjectURL(url), 60000); // the browser reads it after the click
      say(more ? `The first 10,000 rows were saved as ${name}.csv. flyball export csv fetches all.` : `Saved as ${name}.csv.`);
    } catch (e) {
      say("Nothing was saved: " + (e instanceof Error ? e.message : String(e)));
    }
  };
  return (
    <button type="button" onClick={save}>
      CSV<span class="hear"> of {name}</span>
    </button>
  );
}

// valueColumns are the columns of what rows are grouped by. One of them leads to the runs
// or calls that have these values, and those of more, where the API can list them.
export function valueColumns<T extends Record<string, unknown>>(route: Route, groups: string[], more: Record<string, string> = {}): Column<T>[] {
  const known = groups.filter((g) => runDimensions.includes(g) || callDimensions.includes(g));
  return groups.map((g) => ({
    head: g.replaceAll("_", " "),
    long: g === "run_id",
    cell: (r) => {
      const name = <Name v={String(r[g] ?? "")} />;
      if (g === "run_id") return <a href={href("runs", r.tenant ? { tenant: String(r.tenant) } : {}, String(r.run_id))}>{name}</a>;
      if (g !== known[0] || groups.includes("run_id")) return name;
      return <a href={lead(route, { ...Object.fromEntries(known.map((k) => [k, r[k]])), ...more })}>{name}</a>;
    },
  }));
}

export const keyOf = (groups: string[]) => (r: Record<string, unknown>) => JSON.stringify([...groups.map((g) => r[g]), r.at, r.retries]);

// Figure is a number that is seen from afar.
export const Figure = ({ name, big, children }: { name: string; big?: boolean; children: ComponentChildren }) => (
  <div class={"figure" + (big ? " big" : "")}>
    <span class="note">{name}</span>
    <span class="value">{children}</span>
  </div>
);

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

// Meter draws a part of a limit, which is worse the more is used, or plainly a share.
export function Meter({ value, label, plain }: { value?: number; label: string; plain?: boolean }) {
  if (value === undefined) return null;
  const text = (value > 0 && value < 0.01 ? "< 1" : Math.round(value * 100)) + " %";
  return (
    <span class="meter" role="img" aria-label={`${label}: ${text}${plain ? "" : " used"}`}>
      <span class="track">
        <i style={{ width: Math.min(100, value * 100) + "%" }} class={plain ? "" : value >= 1 ? "bad" : value >= 0.8 ? "warn" : ""} />
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
        {spanNames.map(([l, name]) => (
          <button key={l} type="button" aria-pressed={!fixed && (route.q.get("last") ?? "24h") === l} onClick={() => navigate(route, { last: l, from: undefined, to: undefined })}>
            {name}
          </button>
        ))}
        <button type="button" aria-pressed={!!fixed} aria-expanded={own} onClick={() => setOwn(!own)}>
          other
        </button>
        <button type="button" onClick={refresh}>
          Refresh
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

// Filters narrow a view by the values of dimensions. The first four are in sight; where
// a run id may be given it leads to that run. A fold keeps them away until they are wanted.
export function Filters({ route, names, label, run, fold }: { route: Route; names: string[]; label: string; run?: boolean; fold?: boolean }) {
  const submit = (e: JSX.TargetedEvent<HTMLFormElement>) => {
    e.preventDefault();
    const f = new FormData(e.currentTarget);
    const id = String(f.get("run") ?? "").trim();
    if (id) {
      location.hash = href("runs", { tenant: String(f.get("tenant")).trim() || undefined }, id);
      return;
    }
    const change: Record<string, string | undefined> = {};
    for (const d of names) {
      const v = String(f.get(d) ?? "").trim();
      // What was filtered for being empty stays so until its chip is removed.
      if (v || route.q.get(d)) change[d] = v || undefined;
    }
    navigate(route, change);
  };
  const field = (d: string) => (
    <label key={d}>
      {d.replaceAll("_", " ")}
      <input name={d} defaultValue={route.q.get(d) ?? ""} autocomplete="off" spellcheck={false} />
    </label>
  );
  const form = (
    <form class="filters" onSubmit={submit} aria-label={label} role="search">
      {names.slice(0, 4).map(field)}
      <details open={names.slice(4).some((d) => route.q.has(d))}>
        <summary>More filters</summary>
        <div class="filters">
          {names.slice(4).map(field)}
          {run && (
            <label>
              run id
              <input name="run" autocomplete="off" spellcheck={false} />
            </label>
          )}
        </div>
      </details>
      <button type="submit" class="primary">
        Filter
      </button>
    </form>
  );
  return (
    <>
      {fold ? (
        <details>
          <summary>Filter</summary>
          {form}
        </details>
      ) : (
        form
      )}
      <Chips route={route} names={names} />
    </>
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
