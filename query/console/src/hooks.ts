// Where the page is, and what it asked for.

import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Problem, answered, get, question } from "./api";
import { type Route, href, parseRoute, timeOf } from "./route";

export function useRoute(): Route {
  const [hash, set] = useState(location.hash);
  useEffect(() => {
    // Other hashes are anchors within a page and lead nowhere else.
    const on = () => (location.hash.startsWith("#/") || location.hash === "") && set(location.hash);
    addEventListener("hashchange", on);
    return () => removeEventListener("hashchange", on);
  }, []);
  return useMemo(() => parseRoute(hash), [hash]);
}

// navigate changes parameters of the current view; undefined removes one.
export function navigate(r: Route, change: Record<string, string | undefined>) {
  const q = new URLSearchParams(r.q);
  for (const [k, v] of Object.entries(change)) {
    if (v === undefined) q.delete(k);
    else q.set(k, v);
  }
  location.hash = href(r.view, q, r.id);
}

// useTime is timeOf as time goes on: where a refresh is asked for, a span that ends now
// begins later too.
export function useTime(q: URLSearchParams) {
  const [, again] = useState(0);
  useEffect(() => onRefresh(() => again((n) => n + 1)), []);
  return timeOf(q);
}

// refresh asks every question of the page again.
export const refresh = () => dispatchEvent(new Event("flyball-refresh"));

function onRefresh(f: () => void) {
  addEventListener("flyball-refresh", f);
  return () => removeEventListener("flyball-refresh", f);
}

export interface Answer<T> {
  data?: T;
  error?: Problem;
  loading: boolean;
  at?: number; // when the data came, in ms
  reload: () => void;
}

// useApi asks for a path, and again every so many milliseconds while the page is seen.
// A question that another one overtook is cancelled. Old data stays until there is new.
export function useApi<T>(path: string | undefined, every = 0): Answer<T> {
  const [state, set] = useState<Omit<Answer<T>, "reload">>(() => {
    const data = path && answered<T>(path);
    return data ? { data, loading: false, at: Date.now() } : { loading: true };
  });
  const there = useRef(state.data !== undefined); // the answer, before it was asked for here
  const [again, bump] = useState(0);
  const reload = useCallback(() => bump((n) => n + 1), []);
  useEffect(() => onRefresh(reload), [reload]);
  useEffect(() => {
    if (!path) return;
    const stop = new AbortController();
    let timer = 0;
    let first = true; // it is asked even by a tab that opened in the background
    const ask = async () => {
      let pause = every;
      if (first || !document.hidden) {
        first = false;
        set((s) => ({ ...s, loading: true }));
        try {
          const data = await (path.startsWith("/api/v1/kill") ? get<T> : question<T>)(path, stop.signal);
          if (stop.signal.aborted) return;
          set({ data, loading: false, at: Date.now() });
        } catch (e) {
          if (stop.signal.aborted) return;
          const error = e instanceof Problem ? e : new Problem(0, String(e));
          // What cannot be now may be in a moment; what is wrong stays wrong.
          if (error.status === 503 || error.status === 0) pause = every ? Math.min(every, 2000) : 2000;
          set((s) => ({ ...s, data: error.status === 404 ? undefined : s.data, error, loading: false }));
        }
      }
      if (pause) timer = window.setTimeout(ask, pause);
    };
    if (!there.current) void ask();
    else if (every) timer = window.setTimeout(ask, every);
    there.current = false;
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [path, every, again]);
  return { ...state, reload };
}
