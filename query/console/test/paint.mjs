// Measures how soon a page of the console is painted, its figures are shown, and all of
// its questions are answered, in headless Chromium over a running service:
//
//   node query/console/test/paint.mjs URL CHROMIUM [LOADS] [HASH]
//
// Each load has a browser profile of its own, so that nothing comes from a cache. Times
// are the page's own, in ms since its navigation began.

import { chromium } from "playwright-core";

const [url, executablePath, loads = "10", hash = "overview"] = process.argv.slice(2);
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"] });
const names = ["first contentful paint", "figures shown", "all answered"];
const times = names.map(() => []);
let sent;
for (let i = 0; i < Number(loads); i++) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 } });
  const page = await context.newPage();
  await page.addInitScript(() => {
    // What a change of the document made is painted with the next frame.
    const seen = (window.seen = {});
    const mark = (name) => (seen[name] ??= new Promise((done) => requestAnimationFrame(() => setTimeout(() => done(performance.now())))));
    new MutationObserver(() => {
      if (document.querySelector(".figure .value")) mark("figures");
      if (document.querySelector("main h1") && document.querySelector("main .card") && !document.querySelector(".skeleton, [role=alert]")) mark("all");
      else delete seen.all;
    }).observe(document, { childList: true, subtree: true });
  });
  await page.goto(`${url}/#/${hash}`);
  await page.waitForFunction(() => window.seen.figures && window.seen.all && !document.querySelector(".skeleton"), null, { timeout: 120000 });
  const [paint, figures, all, got] = await page.evaluate(async () => [
    performance.getEntriesByName("first-contentful-paint")[0].startTime,
    await window.seen.figures,
    await window.seen.all,
    performance.getEntriesByType("resource").filter((r) => !r.name.includes("/api/")).reduce((n, r) => n + r.transferSize, performance.getEntriesByType("navigation")[0].transferSize),
  ]);
  [paint, figures, all].forEach((t, n) => times[n].push(t));
  sent = got;
  await context.close();
}
await browser.close();
const at = (sorted, q) => Math.round(sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))]);
console.log(`console, #/${hash}: ${loads} loads with empty caches, ${(sent / 1024).toFixed(1)} KiB of files`);
for (const [n, name] of names.entries()) {
  const sorted = times[n].sort((a, b) => a - b);
  console.log(`  ${name.padEnd(24)} p50 ${at(sorted, 0.5)} ms, p90 ${at(sorted, 0.9)} ms, max ${at(sorted, 1)} ms`);
}
