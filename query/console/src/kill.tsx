// The kill switch: what it does now, how near it is to tripping, and the handles.

import { useState } from "preact/hooks";
import { type Drill, type Event, type Kill, Problem, address } from "./api";
import { useApi } from "./hooks";
import { Events } from "./guards";
import { LimiterTable } from "./limiters";
import { AsOf, Badge, Card, Confirm, Failure, Loaded, Meter, Name, Time, change, duration, say, share } from "./ui";

const stages = [0, 10, 25, 50, 100];

export function KillPage() {
  const kill = useApi<Kill>(address("/kill"), 3000);
  const events = useApi<{ events: Event[] }>(address("/enforcement", { limit: 100 }), 10000);
  const [ask, setAsk] = useState<{ state: "on" | "off"; stage: number }>();
  const refresh = () => {
    kill.reload();
    events.reload();
  };
  return (
    <>
      <Loaded of={kill} bare>
        {(k) => (
          <>
            <Status k={k} asOf={<AsOf of={kill} />} />
            <Handles k={k} ask={setAsk} />
            <DrillCard done={refresh} />
            {k.limiters && (
              <Card title="Limiters" wide note="Whoever is behind has not acknowledged the latest state yet.">
                <LimiterTable limiters={k.limiters} />
              </Card>
            )}
          </>
        )}
      </Loaded>
      <Events events={{ ...events, data: events.data && { events: events.data.events.filter((e) => e.kind === "kill" || e.kind === "drill") } }} />
      {ask && (
        <Confirm
          title={ask.state === "off" ? "Turn the kill switch off?" : ask.stage === 0 ? "Stop every agent?" : `Admit ${ask.stage} % of the runs?`}
          text={
            <p>
              {ask.state === "off"
                ? "All calls pass again. The switch does not trip by itself for an hour, or until spend was under its limit once."
                : ask.stage === 0
                  ? "Every limiter of the whole organisation refuses all calls that are not exempt, from now on and over restarts, until somebody turns the switch off."
                  : `The switch stays on, and ${ask.stage} of 100 runs pass, always the same ones. All others are refused.`}
            </p>
          }
          action={ask.state === "off" ? "Turn off" : ask.stage === 0 ? "Stop everything" : `Admit ${ask.stage} %`}
          danger={ask.state === "on"}
          onDone={() => setAsk(undefined)}
          run={async (reason) => {
            await change("/kill", { ...ask, reason });
            say("The kill switch is " + killText({ on: ask.state === "on", stage: ask.stage }) + ".");
            refresh();
          }}
        />
      )}
    </>
  );
}

export const killText = (k: Kill) => (!k.on ? "off" : k.stage === 0 ? "on: everything is stopped" : `on: ${k.stage} % of the runs pass`);

function Status({ k, asOf }: { k: Kill; asOf: preact.ComponentChild }) {
  const gauge = (name: string, v?: string, limit?: string) =>
    v !== undefined &&
    limit !== undefined && (
      <div>
        <dt>{name}</dt>
        <dd>
          {v} of {limit} USD <Meter value={share(v, limit)} label={name} />
        </dd>
      </div>
    );
  return (
    <section class={"card wide switch " + (k.on ? "is-on" : "is-off")} aria-label="State of the kill switch">
      <p class="state" role="status">
        Kill switch {killText(k)}
      </p>
      <dl class="facts">
        {k.reason && (
          <div>
            <dt>Reason</dt>
            <dd>
              <bdi>{k.reason}</bdi>
            </dd>
          </div>
        )}
        {k.actor && (
          <div>
            <dt>By</dt>
            <dd>
              <Name v={k.actor} />, <Time at={k.since} />
            </dd>
          </div>
        )}
        {k.on && (
          <div>
            <dt>Exempt</dt>
            <dd>{(k.exempt ?? []).join(", ") || "nobody"}</dd>
          </div>
        )}
        {gauge("Last hour", k.last_hour_usd, k.last_hour_limit_usd)}
        {gauge("Today (UTC)", k.today_usd, k.today_limit_usd)}
        {k.mode && (
          <div>
            <dt>By itself</dt>
            <dd>
              {k.mode === "enforce" ? "trips at the limits above" : k.mode === "warn" ? "only says that it would trip" : "never trips"}
              {k.history_days !== undefined && k.history_days < 14 && k.mode !== "off" && `; with ${k.history_days} days of history only the floor counts`}
              {k.suspended_until && !k.suspended_until.startsWith("0001") && <>; not before <Time at={k.suspended_until} />, since somebody turned it off</>}
            </dd>
          </div>
        )}
      </dl>
      <p class="foot">{asOf}</p>
    </section>
  );
}

function Handles({ k, ask }: { k: Kill; ask: (a: { state: "on" | "off"; stage: number }) => void }) {
  return (
    <Card title={k.on ? "Recover" : "Stop"} note={k.on ? "Let more and more runs pass, then turn it off." : "Stop everything, or all but a part of the runs."} wide>
      <div class="buttons">
        {stages.map((s) => (
          <button key={s} type="button" class={s === 0 ? "danger" : ""} disabled={k.on && k.stage === s} onClick={() => ask({ state: "on", stage: s })}>
            {s === 0 ? "Stop everything" : `Admit ${s} %`}
          </button>
        ))}
        <button type="button" class="primary" disabled={!k.on} onClick={() => ask({ state: "off", stage: 0 })}>
          Turn off
        </button>
      </div>
    </Card>
  );
}

function DrillCard({ done }: { done: () => void }) {
  const [busy, setBusy] = useState(false);
  const [result, setResult] = useState<{ drill: Drill; failed?: string }>();
  const [error, setError] = useState<Problem>();
  const drill = async () => {
    setBusy(true);
    setError(undefined);
    setResult(undefined);
    try {
      setResult({ drill: await change<Drill>("/kill/drill", { wait_ms: 5000 }) });
    } catch (e) {
      if (e instanceof Problem && e.body.drill) setResult({ drill: e.body.drill as Drill, failed: e.message });
      else setError(e instanceof Problem ? e : new Problem(0, String(e)));
    }
    setBusy(false);
    done();
  };
  return (
    <Card title="Drill" note="Walks the whole way of the switch without stopping anybody: every limiter has to acknowledge within five seconds." wide>
      <div class="buttons">
        <button type="button" onClick={drill} disabled={busy}>
          {busy ? "Waiting for limiters …" : "Run a drill"}
        </button>
      </div>
      <div role="status">
        {result && (
          <>
            <p>
              <Badge kind={result.failed ? "bad" : "good"}>{result.failed ? "failed" : "passed"}</Badge> <bdi>{result.failed ?? `The slowest limiter, ${result.drill.slowest}, took ${duration(result.drill.took_ns)}.`}</bdi>
            </p>
            <ul>
              {(result.drill.acknowledged ?? []).map((a) => (
                <li key={a.id}>
                  <Name v={a.id} /> acknowledged after {duration(a.took_ns)}
                </li>
              ))}
              {(result.drill.missing ?? []).map((id) => (
                <li key={id}>
                  <Name v={id} /> <Badge kind="bad">did not acknowledge</Badge>
                </li>
              ))}
            </ul>
          </>
        )}
      </div>
      {error && <Failure error={error} retry={drill} />}
    </Card>
  );
}
