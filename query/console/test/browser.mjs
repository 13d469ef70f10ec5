// Uses the console in headless Chromium. What to do comes as JSON on stdin from
// cmd/app/console_test.go; each line on stdout is a measurement, or "fail" and why;
// "done" is the last one. Screenshots go to the directory that was given.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const facts = JSON.parse(readFileSync(0, "utf8"));
const origin = new URL(facts.url).origin;
const views = ["overview", "runs", "load", "waste", "finance", "guards", "kill", "limiters", "coverage"];
const say = (...text) => console.log(...text);
const fail = (...text) => console.log("fail", ...text.map((t) => String(t).replaceAll("\n", " ")));
const check = (ok, ...text) => ok || fail(...text);

let looked = 0; // ms that axe took

const browser = await chromium.launch({ executablePath: facts.chromium, args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"] });

// open makes a page that reports whatever a page of ours must not do. allowed are
// statuses that the scenario provokes.
async function open(options = {}, allowed = []) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, timezoneId: "Europe/Berlin", locale: "en-GB", ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(20000);
  page.on("pageerror", (e) => fail("error in the page:", e.message));
  page.on("dialog", (d) => (fail("a name ran as script:", d.message()), d.dismiss()));
  page.on("console", (m) => {
    const status = /status of (\d+)/.exec(m.text())?.[1];
    if (["error", "warning"].includes(m.type()) && !allowed.includes(Number(status))) fail("console:", m.text(), m.location().url);
  });
  page.on("request", (r) => check(new URL(r.url()).origin === origin, "external request:", r.url()));
  await page.addInitScript(() => addEventListener("securitypolicyviolation", (e) => console.error(`policy violated: ${e.violatedDirective} ${e.blockedURI} ${e.sourceFile}:${e.lineNumber}`)));
  return page;
}

async function visit(page, hash) {
  await page.goto(facts.url + "/#/" + hash);
  await settled(page);
}

// settled waits until nothing is a skeleton any more.
async function settled(page) {
  await page.waitForSelector("main h1");
  await page.waitForFunction(() => !document.querySelector(".skeleton") && !document.querySelector("[aria-busy=true]"));
}

const text = (page) => page.locator("main").innerText();

// rules has axe look at the page as it is, with every fold open: at all of it, or at its
// colours alone.
async function rules(page, where, only) {
  const begun = Date.now();
  if (!(await page.evaluate(() => "axe" in window))) await page.evaluate(axe);
  const wrong = await page.evaluate(async (only) => {
    const folded = [...document.querySelectorAll("details:not([open])")];
    for (const d of folded) d.open = true;
    await new Promise(requestAnimationFrame);
    const { violations, passes } = await axe.run(document, { resultTypes: ["violations"], ...(only && { runOnly: only }) });
    for (const d of folded) d.open = false;
    if (passes.length < (only ? only.length : 10)) return ["it has looked at nothing"];
    return violations.flatMap((v) => v.nodes.map((n) => `${v.id} (${v.impact}): ${n.html.slice(0, 150)}`));
  }, only);
  for (const w of wrong) fail(where + ", axe:", w);
  looked += Date.now() - begun;
}

// basics are what every view has to have for those who do not see or do not point, and
// axe does not look for: it takes text that is cut short for one whose contrast it cannot tell.
async function basics(page, where) {
  const wrong = await page.evaluate(() => {
    const out = [];
    const name = (el) => (el.getAttribute("aria-label") || el.labels?.[0]?.textContent || el.textContent || el.title || "").trim();
    const of = (s) => [...document.querySelectorAll(s)];
    if (of("h1").length !== 1) out.push(of("h1").length + " h1");
    if (of("main").length !== 1 || of("nav[aria-label]").length !== 1) out.push("landmarks");
    if (of("nav [aria-current=page]").length !== 1) out.push("no current view in nav");
    for (const el of of("[role=img], [role=treegrid], section"))
      if (!name(el) && !el.hasAttribute("aria-labelledby")) out.push("no name: " + el.outerHTML.slice(0, 100));
    for (const el of of("button")) if (!el.type) out.push("no type: " + el.outerHTML);
    for (const el of of("a")) if (!el.hasAttribute("href")) out.push("no href: " + el.outerHTML);
    for (const el of of("table:not(.u-legend)")) if (!el.getAttribute("aria-label") || !el.querySelector("th[scope=col]")) out.push("table without a label or heads");
    for (const el of of("div, span")) if (el.onclick || (el.l && "clickfalse" in el.l && !el.getAttribute("role"))) out.push("button made of " + el.outerHTML.slice(0, 100));
    for (const el of of("[aria-activedescendant]")) if (!document.getElementById(el.getAttribute("aria-activedescendant"))) out.push("aria-activedescendant leads nowhere");
    // Contrast of text with what is behind it.
    const canvas = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d", { willReadFrequently: true });
    const colors = new Map();
    const rgb = (c) => {
      if (!colors.has(c)) canvas.clearRect(0, 0, 1, 1), (canvas.fillStyle = c), canvas.fillRect(0, 0, 1, 1), colors.set(c, canvas.getImageData(0, 0, 1, 1).data);
      return colors.get(c);
    };
    const light = ([r, g, b]) => [r, g, b].map((v) => ((v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)).reduce((s, v, i) => s + v * [0.2126, 0.7152, 0.0722][i], 0);
    const seen = new Set();
    for (const el of of("body *")) {
      if (![...el.childNodes].some((n) => n.nodeType === 3 && n.data.trim()) || !el.checkVisibility() || el.closest(":disabled, .u-legend")) continue;
      let behind = el;
      while (behind && rgb(getComputedStyle(behind).backgroundColor)[3] < 255) behind = behind.parentElement;
      const [a, b] = [light(rgb(getComputedStyle(el).color)), light(rgb(getComputedStyle(behind ?? document.body).backgroundColor))];
      const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
      if (contrast < 4.5 && !seen.has(el.className)) seen.add(el.className), out.push(`contrast ${contrast.toFixed(1)} of ${el.className || el.tagName}`);
    }
    return out;
  });
  for (const w of wrong) fail(where + ":", w);
}

// shot keeps what is seen first, and not the end of long lists.
async function shot(page, name) {
  const [width, height] = await page.evaluate(() => [innerWidth, document.documentElement.scrollHeight]);
  await page.screenshot({ path: `${facts.shots}/${facts.scenario}-${name}.png`, fullPage: true, clip: { x: 0, y: 0, width, height: Math.min(height, 3000) } });
}

// everyView looks at each view by day, by night and on a phone.
async function everyView(hashes) {
  for (const [look, options] of Object.entries({
    light: { colorScheme: "light" },
    dark: { colorScheme: "dark" },
    phone: { colorScheme: "light", viewport: { width: 360, height: 740 }, isMobile: true, hasTouch: true, deviceScaleFactor: 2 },
  })) {
    const page = await open(options);
    for (const hash of hashes) {
      await visit(page, hash);
      const name = hash.replace(/[^a-z].*/, "") + (hash.includes("/") ? "-" + hashes.indexOf(hash) : "");
      await basics(page, `${look} ${name}`);
      if (hash === "overview" && facts.scenario === "full") await page.waitForSelector(".chart canvas");
      const wide = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
      check(wide[0] <= wide[1] && (look !== "phone" || wide[1] === 360), `${look} ${name}: ${wide[0]} px wide in ${wide[1]}`);
      if (facts.hostile) check((await page.locator("main img, main script, main b").count()) === 0, name, "a name became markup");
      await shot(page, `${name}-${look}`);
      if (look !== "phone") await rules(page, `${look} ${name}`, look === "dark" ? ["color-contrast"] : undefined);
    }
    await page.context().close();
  }
}

// longNames: whatever things are called, and however long, a phone shows it without
// scrolling sideways.
async function longNames(hashes, names) {
  const page = await open({ viewport: { width: 360, height: 740 }, isMobile: true, hasTouch: true });
  const long = "W".repeat(1500) + "<b>x</b>";
  let changed = 0;
  await page.route("**/api/v1/**", async (route) => {
    const answer = await route.fetch().catch(() => undefined);
    let body = (await answer?.text().catch(() => undefined)) ?? "";
    for (const n of names) (changed += body.split(`"${n}"`).length - 1), (body = body.replaceAll(`"${n}"`, JSON.stringify(long + n)));
    await (answer ? route.fulfill({ response: answer, body }) : route.abort()).catch(() => {}); // the page may have gone on
  });
  for (const hash of hashes) {
    await visit(page, hash);
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    check(wide <= 360, `with long names ${hash} is ${wide} px wide on a phone`);
    check((await page.locator("main b").count()) === 0, hash, "a long name became markup");
  }
  check(changed > 50, "only so many names were long:", changed);
  await page.unrouteAll({ behavior: "wait" });
  await page.context().close();
}

// gone: where the engine does not answer, every view says so, and is whole when it does again.
async function gone() {
  const page = await open({}, [503]);
  const detail = "ClickHouse cannot answer now; see /readyz and ask again";
  let away = true;
  await page.route("**/api/v1/**", (route) => (away ? route.fulfill({ status: 503, contentType: "application/problem+json", body: JSON.stringify({ status: 503, title: "Service Unavailable", detail }) }) : route.continue()));
  for (const view of [...views, "calls", "runs/any"]) {
    await page.goto(facts.url + "/#/" + view);
    await page.getByRole("alert").filter({ hasText: "Not yet: " + detail }).first().waitFor();
    check(!/NaN|undefined|Infinity/.test(await text(page)), view, "shows a value that is none");
  }
  await rules(page, "gone");
  await page.goto(facts.url + "/#/coverage");
  await page.getByText("Not yet").first().waitFor();
  away = false;
  await page.getByRole("table", { name: "What is not known" }).waitFor();
  check((await page.getByRole("alert").count()) === 0, "a problem that is over is still told");
  await page.context().close();
}

async function firstPaint() {
  const paints = [];
  for (let i = 0; i < 3; i++) {
    const page = await open();
    const begun = Date.now();
    await visit(page, "overview");
    const shown = Date.now() - begun;
    paints.push(await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? Infinity));
    say(`first contentful paint ${Math.round(paints.at(-1))} ms, answers shown ${shown} ms`);
    await page.context().close();
  }
  // What else runs on the machine only makes it later, so the soonest tells.
  check(Math.min(...paints) < 1000, "first contentful paint", paints);
}

const scenarios = {
  async empty() {
    await firstPaint();
    await everyView(views);
    const page = await open();
    await visit(page, "overview");
    check((await text(page)).includes("OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:"), "the empty overview does not say what to do");
    for (const [hash, words] of [["runs", "OTEL_EXPORTER_OTLP_ENDPOINT"], ["guards", "No guard acts"], ["limiters", "No limiter follows"], ["coverage", "No model was called"], ["calls", "No call matches"], ["nowhere", "no such view"]]) {
      await visit(page, hash);
      check((await text(page)).includes(words), hash, "does not say", words);
    }
    for (const [hash, all] of [
      ["load", ["No run has called a model", "No model was called"]],
      ["waste", ["No call has worked", "No run has repeated a tool call", "No tool was called"]],
      ["waste?of=requests", ["No request has worked"]],
      ["finance", ["Nothing was spent in either time", "No model was called", "No call in this time could have waited", "No month is closed", "No bill was compared"]],
      ["limiters", ["No limiter had anything new", "Nothing was seen to pass"]],
    ]) {
      await visit(page, hash);
      const said = await text(page);
      for (const words of all) check(said.includes(words), hash, "does not say", words);
      check(!/NaN|undefined|Infinity/.test(said), hash, "shows a value that is none");
    }
    // A drill fails where nobody follows, and says so.
    await page.context().close();
    const drill = await open({}, [409]);
    await visit(drill, "kill");
    await drill.getByRole("button", { name: "Run a drill" }).click();
    await drill.getByText("no limiter acknowledged", { exact: false }).first().waitFor();
    await drill.context().close();
  },

  async full() {
    await firstPaint();
    await everyView([...views, `runs/${facts.quote}?tenant=acme`, `runs/${encodeURIComponent(facts.odd)}?tenant=${encodeURIComponent(facts.hostile)}`]);
    await names();
    await routes();
    await paging();
    await keyboard();
    await large();
    await trouble();
    await budgets();
    await release();
    await killSwitch();
    await gone();
    await longNames([...views, `runs/${facts.quote}?tenant=acme`], ["acme", "globex", "quote", "research", "crawl", "m-1", "gateway-1", "task-dollars", "feature-day", "sales", "many"]);
  },

  async one() {
    await oneRun();
  },

  async many() {
    await manyRuns();
    await closing();
    await comparing();
    await noAnswer();
    await inTurn();
    await everyView(["load?last=1h", "waste?last=1h", "finance?last=1h", "calls?last=1h", "limiters"]);
  },

  async keys() {
    const page = await open({}, [401, 403]);
    await page.goto(facts.url + "/#/runs");
    const field = page.getByLabel("Key with role read or admin");
    await field.waitFor();
    await basics(page, "key form");
    await shot(page, "form");
    const use = async (key) => {
      await field.fill(key);
      await page.getByRole("button", { name: "Use this key" }).click();
    };
    await use("nonsense");
    await page.getByText("unknown or expired key").waitFor();
    await use(facts.sender);
    await page.getByText("reading needs role read or admin").first().waitFor();
    await page.getByRole("button", { name: "Forget key" }).click();
    await use(facts.all);
    await page.getByText("Nothing in this time").waitFor();
    const kept = await page.evaluate(() => [Object.values(sessionStorage), Object.keys(localStorage), document.cookie, location.href].flat());
    check(kept[0] === facts.all && kept.length === 3 && !kept[2].includes(facts.all), "the key is kept as", kept);
    await page.reload();
    await page.getByText("Nothing in this time").waitFor();
    await page.getByRole("button", { name: "Forget key" }).click();
    await field.waitFor();
    check((await page.evaluate(() => sessionStorage.length)) === 0, "the key was not forgotten");
    // A key of one tenant reads what is its own, and is told what is not.
    await use(facts.one);
    await page.getByText("Nothing in this time").waitFor();
    await visit(page, "limiters");
    await page.getByText("not for every tenant").waitFor();
    await visit(page, "kill");
    await page.getByRole("button", { name: "Stop everything" }).click();
    await page.getByLabel(/Reason/).fill("may I?");
    await page.getByRole("dialog").getByRole("button", { name: "Stop everything" }).click();
    await page.getByText("this needs role admin").waitFor();
    await page.keyboard.press("Escape");
    await visit(page, "finance");
    await page.getByRole("button", { name: "Close the month" }).click();
    await page.getByLabel(/Reason/).fill("may I?");
    await page.getByRole("button", { name: "Close for good" }).click();
    await page.getByRole("dialog").getByText("Not with this key: key one has role read; this needs role admin").waitFor();
    await page.context().close();
  },
};

// cells are the texts of a table's row that has some words, by the heads of its columns.
async function cells(page, table, words) {
  const row = page.getByRole("table", { name: table, exact: true }).getByRole("row").filter({ hasText: words }).first();
  return row.locator("td").evaluateAll((all) => Object.fromEntries(all.map((td) => [td.dataset.label, td.innerText.trim()])));
}

async function expectCells(page, table, words, want) {
  const got = await cells(page, table, words);
  for (const [head, value] of Object.entries(want)) check(got[head] === value, `${table}, ${words}: ${head} is`, got[head], "and not", value);
}

// oneRun: what each question answers of the run that was worked out by hand.
async function oneRun() {
  const page = await open();
  await visit(page, "load?last=1h");
  check(/Requests\s+1\s+×\s+Steps of each\s+4\s+×\s+Retry multiplier\s+1.25\s+=\s+Model calls\s+5/.test(await text(page)), "the product of load is", await text(page));
  check((await page.locator(".figure.big .value").innerText()) === "20 %", "the 429 rate is", await page.locator(".figure.big .value").innerText());
  await expectCells(page, "Load", "0.0429", { requests: "1", "steps / request": "4", "retry ×": "1.25", "model calls": "5", USD: "0.0429", unknown: "nothing unknown" });
  await expectCells(page, "429 rate by model", "m-1", { "429 rate": "20 %", refused: "1", attempts: "5" });
  await page.getByRole("table", { name: "429 rate by model" }).getByRole("link", { name: "1", exact: true }).click();
  await page.waitForURL(/#\/calls\?/);
  await settled(page);
  check((await page.locator("tbody tr").count()) === 1 && (await text(page)).includes("rate_limited 429"), "the refused call is", await text(page));
  check((await page.locator("nav [aria-current=page]").innerText()) === "Runs", "calls stand under runs");
  await page.locator("tbody a").click();
  await page.waitForURL(/#\/runs\/.*tenant=/);
  await settled(page);
  check((await text(page)).includes("rate_limited 429"), "a call leads to its run");

  await visit(page, "waste?last=1h");
  await page.getByLabel("by").first().selectOption("layer,kind");
  await page.waitForURL(/by.worked=layer/);
  await settled(page);
  // Three at once cost 0.0289, and the one after a retry 0.014: 1.4533 times as much.
  await expectCells(page, "Worked after retries", "after 1 retry", { "tried again by": "framework", calls: "1", "cost × a first try": "× 1.453", "all cost, USD": "0.014", "not compared": "all compared" });
  check((await cells(page, "Worked after retries", "after 1 retry"))["USD compared"].startsWith("0.014 to 0.009633333333"), "what is compared is", JSON.stringify(await cells(page, "Worked after retries", "after 1 retry")));
  await expectCells(page, "Loops", "0.0429", { "repeat ratio": "33 %", repeats: "1", "tool calls": "3", "USD of these runs": "0.0429", "not in it": "nothing unknown" });
  await expectCells(page, "Empty polls", "status", { "empty share": "100 %", empty: "2", polls: "2", "of calls": "2", "empty turns": "2", "these cost, USD": "0.0157" });
  await expectCells(page, "Payloads", "html", { tool: "fetch", bytes: "1000 B", "tokens / call": "300", "tokens measured": "300 of 1", "not in it": "all results recorded" });
  await page.getByRole("table", { name: "Payloads" }).getByRole("link", { name: "fetch" }).click();
  await page.waitForURL(/#\/calls\?.*tool=fetch/);
  await settled(page);
  check((await page.locator("tbody tr").count()) === 1, "the calls of a tool");
  await visit(page, "waste?last=1h");
  await page.getByRole("button", { name: "Requests that worked" }).click();
  await page.waitForURL(/of=requests/);
  await settled(page);
  await expectCells(page, "Worked after retries", "0.0429", { worked: "after 1 retry", requests: "1", "cost × a first try": "not comparable" });

  await visit(page, "finance?last=1h");
  await expectCells(page, "What caches saved", "m-1", { "saved, USD": "0.0065", "reads saved, USD": "0.009", "writes cost, USD": "0.0025", "input tokens": "4690", "not in it": "nothing unknown" });
  await expectCells(page, "What batches would save", "m-1", { "would save, USD": "0.02145", "with a batch price, USD": "0.0429", "cost, USD": "0.0429" });
  await expectCells(page, "What changed", "default", { "change, USD": "+0.0429", "mostly by": "volume", "before, USD": "0", "now, USD": "0.0429" });
  await page.context().close();
}

// pico is a decimal as a whole number of 1e-12.
const pico = (v) => {
  const [, sign, whole, fraction = ""] = /^([+-]?)(\d+)(?:\.(\d+))?$/.exec(v.trim());
  return BigInt(sign + whole + fraction.padEnd(12, "0"));
};

// manyRuns: names, sums, what is not known, and what leads where.
async function manyRuns() {
  const page = await open();
  await visit(page, "finance?last=1h");
  const bridge = Object.fromEntries(await page.locator("[data-effect]").evaluateAll((all) => all.map((el) => [el.dataset.effect, el.innerText])));
  const { before, now, ...by } = Object.fromEntries(Object.entries(bridge).map(([k, v]) => [k, pico(v)]));
  check(before > 0n && now > before && Object.keys(by).length >= 2 && Object.values(by).reduce((a, b) => a + b, before) === now, "the effects do not sum to the change:", JSON.stringify(bridge));
  const movers = await page.evaluate(async () => (await fetch("/api/v1/movers?from=" + new Date(Date.now() - 36e5).toISOString())).json());
  check(movers.rows.every((r) => Object.values(r.effects).reduce((a, v) => a + pico(v), 0n) === pico(r.change_usd)), "effects of a row do not sum");
  check((await cells(page, "What changed", "acme"))["not in it"].includes("1 of no known cost before"), "an unpriced call is not beside the change", JSON.stringify(await cells(page, "What changed", "acme")));
  check((await text(page)).includes(facts.hostile), "the hostile tenant is not text");
  // The month that was closed before its calls came.
  await expectCells(page, "Closed month", facts.hostile.slice(0, 12), { "adjustment, USD": "+0.0021", "frozen, USD": "0", "now, USD": "0.0021", calls: "0 → 1" });
  await page.getByRole("link", { name: /^openai, / }).click();
  await page.waitForURL(/bill=/);
  await settled(page);
  const bill = await cells(page, "The bill by day and item", facts.hostile.slice(0, 12));
  check(bill["theirs, USD"] === "1.5" && bill["ours, USD"] === "0" && bill["difference, USD"] === "+1.5", "the bill's item is", JSON.stringify(bill));
  const saved = page.waitForEvent("download");
  await page.getByRole("button", { name: "CSV of movers" }).click();
  const file = readFileSync(await (await saved).path(), "utf8");
  check(file.startsWith("tenant,before_usd,after_usd,change_usd,main,effects_volume") && file.includes("acme"), "the file is", file.slice(0, 200));
  await page.getByText("Saved as movers.csv.").waitFor();

  await visit(page, "load?last=1h");
  const table = page.getByRole("table", { name: "Load", exact: true });
  check((await table.locator("tbody tr").count()) === 25, "a first page has 25 rows");
  await page.getByRole("button", { name: "Show more of Who makes the load" }).click();
  await page.waitForFunction(() => document.querySelectorAll("table[aria-label=Load] tbody tr").length > 60);
  await expectCells(page, "Load", "unpriced-flow", { unknown: "1 without a price, 1 of unknown usage" });
  // By the keyboard alone.
  await page.getByRole("region", { name: "Who makes the load" }).getByLabel("by").focus();
  await page.keyboard.press("ArrowDown");
  await page.waitForURL(/by\.load=tenant/);
  await settled(page);
  check(await page.evaluate(() => document.activeElement.tagName === "SELECT"), "the choice keeps the focus");
  check((await text(page)).includes(facts.hostile), "the hostile tenant's load");
  await page.getByRole("region", { name: "Who makes the load" }).getByRole("link", { name: facts.hostile }).focus();
  await page.keyboard.press("Enter");
  await page.waitForURL(/#\/runs\?/);
  await settled(page);
  check((await page.locator("tbody tr").count()) === 1 && (await text(page)).includes(facts.hostile), "its one run");
  await page.getByRole("link", { name: "Their calls, one by one" }).click();
  await page.waitForURL(/#\/calls\?/);
  await settled(page);
  check((await text(page)).includes(facts.hostile) && (await page.locator("tbody tr").count()) === 4, "its calls are", await page.locator("tbody tr").count());
  await visit(page, "load?last=1h&tenant=acme&by.load=tenant");
  check((await page.getByRole("table", { name: "Load", exact: true }).locator("tbody tr").count()) === 1, "a filter holds for the question");
  await page.locator("summary", { hasText: "Filter" }).first().click();
  await page.getByLabel("workflow", { exact: true }).fill("no such");
  await page.keyboard.press("Enter");
  await page.getByText("Choose a longer one, or remove a filter").waitFor();

  // What passed a directive, and how soon the limiter knew.
  await visit(page, "limiters");
  const times = await cells(page, "Time to enforce", "gateway-1");
  check(times.applied === "1" && /\d (ms|s|µs)$/.test(times.p99), "time to enforce is", JSON.stringify(times));
  check((await cells(page, "Leakage", "task"))["leaked"] === "1 call, 0.00002 USD", "what leaked is", JSON.stringify(await cells(page, "Leakage", "task")));
  await page.getByRole("link", { name: "1 call", exact: true }).click();
  await page.waitForURL(/#\/guards\?/);
  await settled(page);
  check((await page.getByRole("table", { name: "Events" }).locator("tbody tr").count()) === 1, "one call leaked");
  await page.getByRole("link", { name: "its calls" }).click();
  await page.waitForURL(/trace_id=/);
  await settled(page);
  check((await page.locator("tbody tr").count()) === 3, "the calls of its trace are", await page.locator("tbody tr").count());
  await page.context().close();
}

// closing: a month that is over is closed, with a reason, and once.
async function closing() {
  const page = await open({}, [409]);
  await visit(page, "finance?last=1h");
  const card = page.getByRole("region", { name: "Closed months" });
  await card.getByLabel("month to close").selectOption(facts.month);
  const ask = async (reason) => {
    await card.getByRole("button", { name: "Close the month" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByText("The month comes to").waitFor();
    await dialog.getByLabel(/Reason/).fill(reason);
    return dialog;
  };
  let dialog = await ask("books of the month");
  await rules(page, "close");
  await shot(page, "close");
  await dialog.getByRole("button", { name: "Close for good" }).click();
  await page.getByText(`Closed ${facts.month} for `).waitFor();
  await dialog.waitFor({ state: "detached" });
  await page.waitForURL(new RegExp(`period=${facts.month}`));
  await card.getByText("Nothing was spent in that month").waitFor();
  check((await card.getByLabel("month shown").inputValue()) === facts.month, "the month that was closed is not shown");
  dialog = await ask("again");
  await dialog.getByRole("button", { name: "Close for good" }).click();
  await dialog.getByRole("alert").filter({ hasText: `${facts.month} was closed on` }).waitFor();
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
  await card.locator("summary", { hasText: "Who closed it" }).click();
  await card.getByRole("link", { name: "history of closes" }).click();
  await page.waitForURL(/kind=close/);
  await settled(page);
  const events = await page.getByRole("table", { name: "Events" }).innerText();
  check(events.includes("books of the month") && events.includes(`month ${facts.month} of every tenant`), "the history of closes is", events);
  await page.context().close();
}

// comparing: a provider's bill is sent as a file, and what is wrong with one is told.
async function comparing() {
  const page = await open({}, [400, 413]);
  await visit(page, "finance?last=1h");
  const card = page.getByRole("region", { name: "Bills of providers" });
  await card.locator("summary", { hasText: "Compare a bill" }).click();
  const send = async (...files) => {
    await card.getByLabel("file").setInputFiles(files.map((buffer, i) => ({ name: `bill-${i}.txt`, mimeType: "text/plain", buffer: Buffer.from(buffer) })));
    await card.getByRole("button", { name: "Compare", exact: true }).click();
  };
  await send("no bill at all");
  await card.getByRole("alert").waitFor();
  const told = await page.evaluate(async () => (await (await fetch("/api/v1/reconcile?source=openai", { method: "POST", headers: { "Content-Type": "application/json" }, body: "no bill at all" })).json()).detail);
  check(told && (await card.getByRole("alert").innerText()).includes(told), "a wrong file is told as", await card.getByRole("alert").innerText(), "and the API says", told);
  await rules(page, "wrong bill");
  await shot(page, "wrong-bill");
  // Two files are one bill.
  const page_ = (n, usd) => JSON.stringify({ object: "page", data: [{ object: "bucket", start_time: facts.billed + n * 86400, end_time: facts.billed + (n + 1) * 86400, results: [{ object: "organization.costs.result", amount: { value: usd, currency: "usd" }, line_item: "odd item", project_id: null }] }], has_more: false, next_page: null });
  await send(page_(0, 2.25), page_(1, 0.5));
  await page.getByText("The bill was compared; theirs less ours is 2.75 USD.").waitFor();
  await page.waitForURL(/bill=/);
  await settled(page);
  check((await card.getByRole("alert").count()) === 0, "the wrong file is still told of");
  const days = await page.getByRole("table", { name: "The bill by day and item" }).locator("tbody tr").evaluateAll((all) => all.map((tr) => ["theirs, USD", "only theirs", "split by"].map((n) => [...tr.cells].find((td) => td.dataset.label === n).innerText).join(" ")));
  check(days.filter((d) => /^(2\.25|0\.50?) \+(2\.25|0\.50?) not split$/.test(d)).length === 2, "the days of the bill are", JSON.stringify(days));
  await send(page_(0, 2.25), page_(1, 0.5));
  await card.getByText("This file was compared before").waitFor();
  await card.getByRole("button", { name: "Compare it with what is known now" }).click();
  await page.getByText("The bill was compared; theirs").waitFor();
  await settled(page);
  check((await page.getByRole("table", { name: "Bills", exact: true }).locator("tbody tr").count()) === 3, "three comparisons are kept");
  // A FOCUS file goes as CSV.
  await card.getByLabel("bill of").selectOption("focus");
  await send("BilledCost,Nonsense\n1,2\n");
  await card.getByRole("alert").filter({ hasText: "Charge" }).waitFor();
  await page.context().close();
}

// noAnswer: a question that cannot be answered says why and what to do; the others are there.
async function noAnswer() {
  const page = await open({}, [504]);
  const detail = "the query took too long; ask for a shorter time or one tenant";
  await page.route("**/api/v1/payloads?*", (route) => route.fulfill({ status: 504, contentType: "application/problem+json", body: JSON.stringify({ status: 504, title: "Gateway Timeout", detail }) }));
  await visit(page, "waste?last=1h");
  const card = page.getByRole("region", { name: "Payloads" });
  check((await card.getByRole("alert").innerText()).includes(detail), "a failure is told as", await card.innerText());
  check((await page.getByRole("table", { name: "Loops" }).count()) === 1, "the other questions are not answered");
  await shot(page, "failure");
  await page.unroute("**/api/v1/payloads?*");
  await card.getByRole("button", { name: "Try again" }).click();
  await page.getByRole("table", { name: "Payloads" }).waitFor();
  // The server itself refuses what makes no sense, in words.
  await page.context().close();
  const odd = await open({}, [400]);
  await visit(odd, "load?from=2026-01-02&to=2026-01-01");
  check((await text(odd)).includes("is not before to"), "a time that ends before it begins is told as", await text(odd));
  await odd.context().close();
}

// inTurn: what is seen first is asked first, and never more than four questions at once.
async function inTurn() {
  const page = await open();
  const asked = [];
  let hold, most = 0, under = 0;
  const held = new Promise((go) => (hold = go));
  await page.route(/\/api\/v1\/(load|rate-limits|spend|retries|amplification|budgets)\?/, async (route) => {
    asked.push(new URL(route.request().url()));
    most = Math.max(most, ++under);
    await held;
    under--;
    await route.continue().catch(() => {});
  });
  await page.goto(facts.url + "/#/load");
  while (asked.length < 4) await page.waitForTimeout(50);
  await page.waitForTimeout(500);
  check(most === 4 && asked[0].pathname.endsWith("/load") && asked[0].searchParams.get("group_by") === "" && !asked[0].searchParams.has("interval"), "of load is asked first", asked[0].href, "and at once", most);
  asked.length = 0;
  await page.goto(facts.url + "/#/overview");
  while (asked.length < 1) await page.waitForTimeout(50);
  await page.waitForTimeout(500);
  check(asked.length === 1 && asked[0].searchParams.has("interval"), "before the total is there these are asked:", asked.map((u) => u.href));
  // The switch does not wait for any of them.
  await page.goto(facts.url + "/#/kill");
  await page.locator(".state", { hasText: "off" }).waitFor();
  await page.goto(facts.url + "/#/load");
  hold();
  await settled(page);
  check((await page.getByRole("table", { name: "429 rate by model" }).count()) === 1, "after all of them were answered the view is whole");
  await page.context().close();
}

// names: whatever a sender calls things is text.
async function names() {
  const page = await open();
  await visit(page, "overview");
  check((await text(page)).includes(facts.hostile), "the hostile tenant is not shown as text");
  check(/1 without a price, 1 of unknown usage/.test(await text(page)), "what is unknown is not beside the total");
  const shown = await page.locator(".figure.big .value").innerText();
  const total = await page.evaluate(async () => (await (await fetch("/api/v1/spend?group_by=")).json()).total.cost_usd);
  check(shown.trim() === total, "the total is shown as", shown, "and is", total);
  await page.getByRole("link", { name: facts.hostile }).first().click();
  await page.waitForURL(/#\/runs\?/);
  await settled(page);
  check(new URLSearchParams(new URL(page.url()).hash.split("?")[1]).get("tenant") === facts.hostile, "the link of a tenant leads to", page.url());
  await page.locator("a.id").first().click();
  await page.waitForURL(/#\/runs\/run/);
  await settled(page);
  check((await page.locator("h1").innerText()).includes(facts.odd), "the odd run is", await page.locator("h1").innerText());
  check((await text(page)).includes("invoke_agent " + facts.hostile), "the hostile run's tree");
  await page.context().close();
}

// routes: where the Grafana boards lead.
async function routes() {
  const page = await open({}, [404]);
  const day = (n) => encodeURIComponent(new Date(Date.now() + n * 864e5).toISOString());
  await visit(page, `runs?from=${day(-1)}&to=${day(1)}&tenant=acme&feature=sales&user=user-1&workflow=quote`);
  check((await page.locator("tbody tr").count()) === 1, "one run has these values");
  await visit(page, `runs?from=${day(-1)}&to=${day(1)}&tenant=many&user=&workflow=batch&workflow_version=`);
  check((await page.locator("tbody tr").count()) === 50, "runs without a user");
  await visit(page, `runs?from=${day(-3)}&to=${day(-2)}`);
  const nothing = await page.getByText("Nothing in this time").first().waitFor({ timeout: 5000 }).then(() => true, () => false);
  check(nothing, "no run two days ago", await text(page));
  await visit(page, `runs/${facts.quote}?tenant=acme`);
  const run = await text(page);
  for (const words of ["retry by framework", "rate_limited 429", "no price", "usage unknown", "retry by agent", "1 without a price, 1 of unknown usage"]) check(run.includes(words), "the run does not say", words, run);
  await page.getByRole("row", { name: "m-9-preview" }).click();
  check((await page.locator(".detail").innerText()).includes("unpriced"), "the detail of an unpriced call");
  await visit(page, "overview?tenant=acme");
  check((await page.locator(".figure.big .value").innerText()) === "0.0092", "the spend of one tenant");
  await page.getByRole("button", { name: "Remove the filter tenant" }).click();
  await page.waitForFunction(() => !document.querySelector(".chip") && document.querySelector(".figure.big .value")?.textContent !== "0.0092");
  await visit(page, "coverage");
  check((await text(page)).includes('Spans of one trace came under tenant "left" and under tenant "right"'), "a split trace is no finding");
  await page.getByRole("link", { name: "part of right" }).click();
  await page.locator("h1", { hasText: "Run 0" }).waitFor();
  await visit(page, "runs/..?tenant=dots");
  check((await page.locator("h1").innerText()).includes("Run .."), "a run of the id .. is", await page.locator("h1").innerText());
  await visit(page, "runs/no-such-run");
  check((await text(page)).includes("no run no-such-run"), "a run that is not there");
  await page.context().close();
}

async function paging() {
  const page = await open();
  await visit(page, "runs?tenant=many");
  check((await page.locator("tbody tr").count()) === 50, "a page is 50 runs");
  await page.getByRole("button", { name: "Older runs" }).click();
  await page.waitForFunction(() => document.querySelectorAll("tbody tr").length === 70);
  check((await page.getByRole("button", { name: "Older runs" }).count()) === 0, "there is nothing older");
  await page.getByLabel("user", { exact: true }).fill("nobody");
  await page.keyboard.press("Enter");
  await page.getByText("No run matches").waitFor();
  await page.getByRole("button", { name: "Remove the filter user" }).click();
  await page.waitForFunction(() => document.querySelectorAll("tbody tr").length === 50);
  await page.context().close();
}

async function keyboard() {
  const page = await open();
  await visit(page, `runs/${facts.quote}?tenant=acme`);
  await page.keyboard.press("Tab");
  const first = () => page.evaluate(() => [document.activeElement.className, getComputedStyle(document.activeElement).outlineStyle, document.activeElement.getBoundingClientRect().top >= 0]);
  await page.waitForFunction(() => document.activeElement.getBoundingClientRect().top >= 0);
  check(String(await first()) === "skip,solid,true", "the first stop is", await first());
  await page.keyboard.press("Enter");
  check((await page.evaluate(() => document.activeElement.id)) === "main" && page.url().includes(facts.quote), "the skip link leads to", page.url());
  await page.locator("[role=treegrid]").focus();
  const at = () => page.locator("[role=treegrid]").getAttribute("aria-activedescendant");
  await page.keyboard.press("ArrowDown");
  check((await at()) === "line-1", "arrow down leads to", await at());
  await page.keyboard.press("ArrowLeft"); // up to the root
  await page.keyboard.press("ArrowLeft"); // which closes
  check((await page.locator("[role=row]").count()) === 1, "a closed root hides what is below");
  await page.keyboard.press("ArrowRight");
  await page.keyboard.press("End");
  check((await page.locator("[role=row]").count()) > 5 && (await at()) !== "line-0", "it opens again");
  // A dialog takes the focus, Escape gives it back.
  await visit(page, "kill");
  await page.getByRole("button", { name: "Stop everything" }).focus();
  await page.keyboard.press("Enter");
  await page.getByRole("dialog").waitFor();
  check(await page.evaluate(() => document.activeElement.closest("dialog") !== null), "the dialog has the focus");
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  await page.context().close();
}

// large: a run of 5,000 calls scrolls like a small one.
async function large() {
  const page = await open();
  const begun = Date.now();
  await visit(page, `runs/${facts.crawl}?tenant=globex`);
  await page.waitForSelector("[role=row]");
  say(`a run of 5,000 calls is shown after ${Date.now() - begun} ms`);
  const r = await page.evaluate(async () => {
    const box = document.querySelector("[role=treegrid]");
    let rows = 0, slow = 0, last = performance.now();
    for (let i = 0; i < 60; i++) {
      box.scrollTop = (box.scrollHeight * i) / 60;
      await new Promise(requestAnimationFrame);
      rows = Math.max(rows, document.querySelectorAll("[role=row]").length);
      slow = Math.max(slow, performance.now() - last);
      last = performance.now();
    }
    return { count: Number(box.getAttribute("aria-rowcount")), rows, slow };
  });
  say(`the slowest of 60 frames of scrolling took ${Math.round(r.slow)} ms with ${r.rows} rows drawn`);
  check(r.count === 5001 && r.rows < 100 && r.slow < 500, "scrolling", JSON.stringify(r));
  await page.getByRole("button", { name: "Close all" }).click();
  await page.getByRole("button", { name: "Next failure" }).click();
  await page.context().close();
}

// trouble: a server that is slow, starting, or says no.
async function trouble() {
  // An address that was edited by hand is answered with what is wrong with it.
  const edited = await open({ viewport: { width: 800, height: 900 } }, [400]);
  for (const time of ["from=abc", "from=2026-13-01", "to=abc", "from=2026-12-01&to=2026-11-01"]) {
    await visit(edited, "overview?" + time);
    const said = await text(edited);
    check(/want RFC 3339|is not before/.test(said), time, "is not said to be wrong:", said.slice(0, 300));
  }
  // What is heard alone is no reason to scroll the page where its table does.
  await visit(edited, "guards");
  check(await edited.evaluate(() => document.documentElement.scrollWidth <= innerWidth), "guards scroll the page, not the table");
  await edited.context().close();

  const page = await open({}, [503, 500]);
  let cancelled = 0;
  page.on("requestfailed", (r) => r.failure()?.errorText.includes("ABORTED") && cancelled++);
  let slow = true;
  await page.route("**/api/v1/runs?*", async (route) => {
    if (slow) await new Promise((r) => setTimeout(r, 1500));
    await route.continue().catch(() => {});
  });
  for (const tenant of ["acme", "globex", "many"]) {
    const asked = page.waitForRequest((r) => r.url().includes("/runs?") && r.url().includes(tenant));
    await page.goto(facts.url + "/#/runs?tenant=" + tenant);
    await asked;
    if (tenant === "acme") await page.waitForSelector(".skeleton");
  }
  await settled(page);
  for (let n = 0; cancelled < 2 && n < 50; n++) await page.waitForTimeout(100);
  check(cancelled === 2, "of three questions the first two are cancelled:", cancelled);
  check(!(await text(page)).includes("globex"), "an overtaken answer is shown");
  slow = false;
  let starts = 2;
  await page.route("**/api/v1/coverage?*", (route) =>
    starts-- > 0 ? route.fulfill({ status: 503, contentType: "application/problem+json", body: JSON.stringify({ status: 503, title: "Service Unavailable", detail: "ClickHouse is not up yet; see /readyz" }) }) : route.continue(),
  );
  await page.goto(facts.url + "/#/coverage");
  await page.getByText("Not yet: ClickHouse is not up yet").waitFor();
  await page.getByText("By model").waitFor();
  await page.route("**/api/v1/limiters", (route) => route.fulfill({ status: 500, contentType: "application/problem+json", body: JSON.stringify({ status: 500, detail: "it <b>broke</b>" }) }));
  await page.goto(facts.url + "/#/limiters");
  await page.getByText("This did not work: it <b>broke</b>").waitFor();
  await page.unroute("**/api/v1/limiters");
  await page.getByRole("button", { name: "Try again" }).click();
  await page.getByRole("table", { name: "Limiters", exact: true }).getByText("gateway-1").waitFor();
  await page.context().close();
}

// budgets: what a budget counts is one step away, with its times in the address.
async function budgets() {
  const page = await open();
  await visit(page, "guards");
  const row = page.getByRole("table", { name: "Budgets" }).getByRole("row").filter({ hasText: "feature sales of tenant acme" });
  const [spent, window] = [(await cells(page, "Budgets", "feature sales of tenant acme")).spent, await page.evaluate(async () => (await (await fetch("/api/v1/budgets?guard=feature-day")).json()).budgets.find((b) => b.of.values.feature === "sales").window)];
  const link = (name) => row.getByRole("link", { name: new RegExp(`^${name} of feature sales of tenant acme, guard feature-day$`) });
  await link("spend").focus();
  await page.keyboard.press("Enter");
  await page.waitForURL(/#\/overview\?/);
  await settled(page);
  const q = new URLSearchParams(new URL(page.url()).hash.split("?")[1]);
  check(q.get("tenant") === "acme" && q.get("feature") === "sales" && q.get("from") === window.start && q.get("to") === window.end, "the spend of a budget is at", page.url());
  check("$" + (await page.locator(".figure.big .value").innerText()) === spent, "the budget has", spent, "and the overview", await page.locator(".figure.big .value").innerText());
  check((await page.getByRole("table", { name: "By feature" }).locator("tbody tr").count()) === 1, "the tables do not follow the filter");
  await page.reload(); // as one who was sent the address
  await settled(page);
  check("$" + (await page.locator(".figure.big .value").innerText()) === spent, "the address alone leads elsewhere");
  await visit(page, "guards");
  await link("runs").click();
  await page.waitForURL(/#\/runs\?/);
  await settled(page);
  check((await page.locator("tbody tr").count()) === 1 && (await text(page)).includes("quote"), "the runs of a budget are", await text(page));
  await visit(page, "overview");
  await page.getByRole("table", { name: "Nearest budgets" }).getByRole("link", { name: `run of run ${facts.dear} of tenant globex, guard task-dollars` }).click();
  await page.locator("h1", { hasText: "Run " + facts.dear }).waitFor();
  await page.context().close();
}

async function release() {
  const page = await open();
  await visit(page, "guards");
  const live = page.getByRole("table", { name: "In force now" });
  const lead = await live.getByRole("link", { name: new RegExp(`run ${facts.dear}`) }).getAttribute("href");
  check(lead === `#/runs/${facts.dear}?tenant=globex`, "what a guard acts on leads to", lead);
  await live.getByRole("row", { name: new RegExp(`terminate.*${facts.dear}`) }).getByRole("button", { name: /Release/ }).click();
  await shot(page, "release");
  const dialog = page.getByRole("dialog");
  await basics(page, "dialog");
  await dialog.getByRole("button", { name: "Release" }).click();
  check(await dialog.isVisible(), "no reason, no release");
  await dialog.getByLabel(/Reason/).fill("looked at it");
  await dialog.getByRole("button", { name: "Release" }).click();
  await page.getByText("Released terminate of guard task-dollars.").waitFor();
  await live.getByText("released", { exact: true }).first().waitFor();
  await page.context().close();
}

async function killSwitch() {
  const page = await open();
  await visit(page, "kill");
  const flip = async (button, reason, state) => {
    await page.locator("main").getByRole("button", { name: button, exact: true }).first().click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel(/Reason/).fill(reason);
    await dialog.locator("button[type=submit]").click();
    await dialog.waitFor({ state: "detached" });
    await page.locator(".state", { hasText: state }).waitFor();
  };
  await flip("Stop everything", "smoke", "on: everything is stopped");
  await shot(page, "stopped");
  await basics(page, "stopped");
  await page.getByRole("link", { name: "kill switch on: everything" }).waitFor();
  for (const stage of [10, 25, 50, 100]) await flip(`Admit ${stage} %`, "recovering", `on: ${stage} % of the runs pass`);
  await flip("Turn off", "over", "off");
  await page.getByRole("button", { name: "Run a drill" }).click();
  await page.getByText("The slowest limiter, gateway-1, took").waitFor();
  await shot(page, "drilled");
  await page.context().close();
}

try {
  await scenarios[facts.scenario]();
  say(`axe looked for ${(looked / 1000).toFixed(1)} s`);
  say("done");
} catch (e) {
  fail(e.stack ?? e);
  for (const [i, page] of browser.contexts().flatMap((c) => c.pages()).entries()) await shot(page, "failed-" + i).catch(() => {});
} finally {
  await browser.close();
}
