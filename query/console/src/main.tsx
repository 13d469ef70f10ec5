// The frame: which view is shown, the key, and what is said once.

import { render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { type Kill, address, key } from "./api";
import { Calls } from "./calls";
import { CoveragePage } from "./coverage";
import { Finance } from "./finance";
import { Guards } from "./guards";
import { useApi, useRoute } from "./hooks";
import { KillPage, killText } from "./kill";
import { Limiters } from "./limiters";
import { Load } from "./load";
import { Overview } from "./overview";
import { type Route } from "./route";
import { RunPage } from "./run";
import { Runs } from "./runs";
import { zone } from "./ui";
import { Waste } from "./waste";

const views: Record<string, [string, (p: { route: Route }) => preact.ComponentChild]> = {
  overview: ["Overview", Overview],
  runs: ["Runs", ({ route }) => (route.id ? <RunPage key={route.id + route.q} route={route} /> : <Runs route={route} />)],
  load: ["Load", Load],
  waste: ["Waste", Waste],
  finance: ["Finance", Finance],
  guards: ["Guards", Guards],
  kill: ["Kill switch", KillPage],
  limiters: ["Limiters", Limiters],
  coverage: ["Coverage", CoveragePage],
};

// within are views that are reached from another one, and stand under it.
const within: Record<string, [string, string, (p: { route: Route }) => preact.ComponentChild]> = {
  calls: ["runs", "Calls", ({ route }) => <Calls key={String(route.q)} route={route} />],
};

function App() {
  const route = useRoute();
  const [wanted, setWanted] = useState<string>(); // why a key is wanted
  const [said, setSaid] = useState("");
  const main = useRef<HTMLElement>(null);
  const [under, ...inner] = within[route.view] ?? [route.view];
  const [name, View] = inner.length ? inner : (views[route.view] ?? ["Not found", NotFound]);
  const title = route.view === "runs" && route.id ? "Run " + route.id : name;
  useEffect(() => {
    const want = (e: Event) => setWanted((e as CustomEvent<string>).detail);
    let timer = 0;
    const say = (e: Event) => {
      setSaid((e as CustomEvent<string>).detail);
      clearTimeout(timer);
      timer = window.setTimeout(() => setSaid(""), 8000);
    };
    addEventListener("flyball-key", want);
    addEventListener("flyball-say", say);
    return () => {
      removeEventListener("flyball-key", want);
      removeEventListener("flyball-say", say);
      clearTimeout(timer);
    };
  }, []);
  const place = route.view + "/" + route.id;
  const before = useRef(place);
  useEffect(() => {
    document.title = title + " – Flyball";
    if (before.current === place) return;
    before.current = place;
    scrollTo(0, 0);
    main.current?.focus();
  }, [place]);
  return (
    <>
      <a class="skip" href="#main" onClick={(e) => (e.preventDefault(), main.current?.focus())}>
        Skip to the content
      </a>
      <header class="top">
        <a class="brand" href="#/">
          Flyball
        </a>
        <nav aria-label="Views">
          {Object.entries(views).map(([view, [name]]) => (
            <a key={view} href={"#/" + view} aria-current={view === under ? "page" : undefined}>
              {name}
            </a>
          ))}
        </nav>
        {wanted === undefined && <Switch />}
        {key.get() && wanted === undefined && (
          <button type="button" onClick={() => (key.set(""), setWanted("The key was forgotten."))}>
            Forget key
          </button>
        )}
      </header>
      <main class="view" id="main" ref={main} tabIndex={-1}>
        <h1>
          <bdi>{title}</bdi>
        </h1>
        {wanted !== undefined ? <KeyForm why={wanted} done={() => setWanted(undefined)} /> : <View route={route} />}
      </main>
      <footer class="view note">Times are those of this browser, {zone()}; pointing at one shows UTC. Money is USD.</footer>
      <div class="said" role="status" aria-live="polite">
        {said && <p>{said}</p>}
      </div>
    </>
  );
}

function NotFound() {
  return (
    <p>
      There is no such view. <a href="#/overview">Overview</a>
    </p>
  );
}

// Switch is seen from everywhere while the kill switch is on.
function Switch() {
  const { data: k, reload } = useApi<Kill>(address("/kill"), 10000);
  useEffect(() => {
    addEventListener("flyball-say", reload); // something was changed, perhaps this
    return () => removeEventListener("flyball-say", reload);
  }, [reload]);
  return k?.on ? (
    <a class="badge bad" href="#/kill">
      kill switch {killText(k)}
    </a>
  ) : null;
}

function KeyForm({ why, done }: { why: string; done: () => void }) {
  return (
    <form
      class="card key"
      onSubmit={(e) => {
        e.preventDefault();
        key.set(String(new FormData(e.currentTarget).get("key")).trim());
        done();
      }}
    >
      <h2>A key is needed</h2>
      <p role="alert">{why}</p>
      <label>
        Key with role read or admin
        <input type="password" name="key" required autocomplete="off" autofocus />
      </label>
      <p class="note">It stays in this tab and is forgotten with it. Whoever runs the server makes one with <code>flyball key new</code>.</p>
      <button type="submit" class="primary">
        Use this key
      </button>
    </form>
  );
}

const root = document.getElementById("app")!;
root.replaceChildren();
render(<App />, root);
