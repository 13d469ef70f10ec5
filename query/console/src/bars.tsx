// A figure over time: bars, drawn by code that is fetched where it is wanted, and the
// same as a table.

import type { FunctionComponent } from "preact";
import { useEffect, useState } from "preact/hooks";
import { type Column, Table, Time } from "./ui";

// Bar is one interval: when it begins in seconds, how high it is, and its figure in words.
export interface Bar {
  at: number;
  value: number;
  text: string;
}
export interface BarsProps {
  label: string;
  unit: string;
  bars: Bar[];
  from: number;
  to: number;
  step: number;
}

interface Props<T> {
  label: string;
  unit: string;
  rows: T[];
  value: (row: T) => string | number; // a number, as it is to be read
  columns: Column<T>[];
  from?: string;
  to?: string;
  step: number;
}

export function OverTime<T extends { at?: string }>({ label, unit, rows, value, columns, from, to, step }: Props<T>) {
  const [Chart, set] = useState<{ draw: FunctionComponent<BarsProps> }>();
  const [open, setOpen] = useState(false); // the table is made when it is wanted
  useEffect(() => void import("./chart").then((m) => set({ draw: m.default })), []);
  const bars = rows.map((r) => ({ at: Date.parse(String(r.at)) / 1000, value: Number(value(r)), text: String(value(r)) }));
  return (
    <>
      {Chart ? (
        <Chart.draw label={label} unit={unit} bars={bars} from={Date.parse(String(from)) / 1000} to={Math.min(Date.parse(String(to)), Date.now() + step * 1000) / 1000} step={step} />
      ) : (
        <div class="chart" />
      )}
      <details onToggle={(e) => setOpen(e.currentTarget.open)}>
        <summary>As a table</summary>
        {open && <Table label={label} rows={rows} keyOf={(r) => String(r.at)} columns={[{ head: "from", cell: (r) => <Time at={r.at} /> }, ...columns]} />}
      </details>
    </>
  );
}
