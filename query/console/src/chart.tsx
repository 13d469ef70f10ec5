// Bars over time, drawn. Drawing is the one place where money is a float; the figures
// that are read, below the pointer and in the table, are the API's own digits.

import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { useEffect, useRef } from "preact/hooks";
import type { BarsProps } from "./bars";

// label names an instant on the axis: a day where days lie between two, else a time.
function label(s: number, gap: number): string {
  const d = new Date(s * 1000);
  const midnight = d.getHours() === 0 && d.getMinutes() === 0;
  if (gap >= 86400 || midnight) return d.toLocaleDateString(undefined, { day: "numeric", month: "short" });
  return d.toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit" });
}

export default function Chart({ label: name, unit, bars, from, to, step }: BarsProps) {
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const el = box.current;
    if (!el) return;
    const exact = new Map(bars.map((b) => [b.at, b]));
    const times = new Set(exact.keys());
    // Intervals that have no row are drawn as such. They lie as those that have one do.
    const anchor = exact.size ? Math.min(...exact.keys()) : from;
    for (let t = anchor; t >= from; t -= step) times.add(t);
    for (let t = anchor; t <= to; t += step) times.add(t);
    const xs = [...times].sort((a, b) => a - b);
    const ys = xs.map((t) => exact.get(t)?.value ?? 0);
    let plot: uPlot | undefined;
    const draw = () => {
      plot?.destroy();
      const css = getComputedStyle(document.documentElement);
      const color = (name: string) => css.getPropertyValue(name).trim();
      const axis: uPlot.Axis = { stroke: color("--muted"), grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line"), width: 1 }, font: "12px system-ui" };
      plot = new uPlot(
        {
          width: el.clientWidth,
          height: 220,
          padding: [8, 8, 0, 0],
          cursor: { y: false, drag: { x: false, y: false } },
          scales: { x: { time: true, range: () => [from, to] }, y: { range: (_, __, max) => [0, max > 0 ? max * 1.1 : 1] } },
          series: [
            { label: "from", value: (_, v) => (v === null || v === undefined ? "–" : new Date(v * 1000).toLocaleString()) },
            {
              label: unit,
              stroke: color("--accent"),
              fill: color("--fill"),
              paths: uPlot.paths.bars!({ size: [0.8, 60], align: 1, radius: 0.1 }),
              points: { show: false },
              value: (_, __, ___, i) => (i === null || i === undefined ? "–" : (exact.get(xs[i])?.text ?? "0")),
            },
          ],
          axes: [{ ...axis, values: (_, splits, __, ___, gap) => splits.map((s) => label(s, gap)), space: 70 }, { ...axis, size: 64 }],
        },
        [xs, ys],
        el,
      );
    };
    draw();
    const resized = new ResizeObserver(() => plot?.setSize({ width: el.clientWidth, height: 220 }));
    resized.observe(el);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", draw);
    return () => {
      resized.disconnect();
      dark.removeEventListener("change", draw);
      plot?.destroy();
    };
  }, [JSON.stringify(bars), unit, from, to, step]);
  return <div ref={box} class="chart" role="img" aria-label={`${name} in ${bars.length} intervals, as a bar chart; the figures are in the table below it`} />;
}
