// Line charts of one app, drawn by uPlot.

import { bytes, number } from "./format.js";

let library = null;

// loadCharts loads uPlot once, when a page needs it.
export function loadCharts() {
  library ||= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = new URL("./vendor/uplot.js", import.meta.url).href;
    script.onload = () => resolve(window.uPlot);
    script.onerror = () => { library = null; reject(new Error("cannot load the charts")); };
    document.head.append(script);
  });
  return library;
}

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const formats = {
  bytes,
  cores: (v) => `${number(v * 100)}%`,
  rate: (v) => number(v),
  ms: (v) => `${number(v)} ms`,
};

// Chart is one chart. series are {label, color, dash, fill}; unit is a key of formats.
export class Chart {
  constructor(uPlot, el, { unit, series, height = 150, label }) {
    Object.assign(this, { uPlot, el, unit, series, height, label });
    this.observer = new ResizeObserver(() => {
      if (this.plot && el.clientWidth) this.plot.setSize({ width: el.clientWidth, height });
    });
    this.observer.observe(el);
    el.setAttribute("role", "img");
  }

  // draw shows data: an array of times, then one array for each series.
  draw(data) {
    const last = (values) => (values || []).findLast((v) => v !== null && v !== undefined);
    this.el.setAttribute("aria-label", `${this.label}: ${this.series.map((s, i) => `${s.label} ${formats[this.unit](last(data[i + 1]) ?? 0)}`).join(", ")}`);
    if (this.plot) this.plot.setData(data);
    else this.plot = new this.uPlot(this.options(), data, this.el);
    requestAnimationFrame(() => this.showNewest()); // after uPlot has drawn
  }

  // showNewest shows the newest values, unless the user points at others.
  showNewest() {
    if (!this.plot || this.plot.cursor.left >= 0) return;
    const newest = this.plot.data[0].length - 1;
    if (newest >= 0) this.plot.setLegend({ idx: newest });
  }

  options() {
    const text = css("--text-2");
    const grid = { stroke: css("--line"), width: 1 };
    const axis = { stroke: text, grid, ticks: { ...grid, size: 4 }, font: "11px system-ui, sans-serif" };
    const format = formats[this.unit];
    const two = (n) => String(n).padStart(2, "0");
    return {
      width: this.el.clientWidth || 400,
      height: this.height,
      cursor: { points: { size: 6 }, drag: { x: false, y: false } },
      legend: { live: true },
      scales: { x: { time: true, range: (u, first, last) => [Math.min(first, last - 600), last] }, y: { range: (u, low, high) => [0, high > 0 ? high * 1.08 : 1] } },
      axes: [
        { ...axis, space: 60, size: 26, incrs: [60, 300, 600, 900, 1800, 3600], values: (u, splits) => splits.map((s) => { const t = new Date(s * 1000); return `${two(t.getHours())}:${two(t.getMinutes())}`; }) },
        { ...axis, size: 54, values: (u, splits) => splits.map(format), incrs: this.unit === "bytes" ? powers : undefined },
      ],
      series: [
        { label: "Time", value: (u, v) => (v ? new Date(v * 1000).toLocaleTimeString() : "–") },
        ...this.series.map((s) => ({
          label: s.label, class: s.dash ? "limit" : undefined, stroke: css(s.color), width: s.dash ? 1 : 1.5, dash: s.dash ? [4, 4] : undefined, spanGaps: false,
          fill: s.fill ? `color-mix(in srgb, ${css(s.color)} 14%, transparent)` : undefined, points: { show: true, size: 4, filter: isolated },
          value: (u, v) => (v === null || v === undefined ? "–" : format(v)),
        })),
      ],
    };
  }

  // redraw creates the chart again, after a change of the colours.
  redraw() {
    if (!this.plot) return;
    const data = this.plot.data;
    this.plot.destroy();
    this.plot = null;
    this.draw(data);
  }

  destroy() {
    this.observer.disconnect();
    if (this.plot) this.plot.destroy();
  }
}

// isolated returns the samples without a neighbour, which no line shows.
function isolated(u, series) {
  const values = u.data[series];
  const empty = (i) => values[i] === null || values[i] === undefined;
  const out = [];
  for (let i = 0; i < values.length; i++) if (!empty(i) && empty(i - 1) && empty(i + 1)) out.push(i);
  return out;
}

// powers are the distances between the labels of an axis of bytes.
const powers = Array.from({ length: 42 }, (_, i) => 2 ** i);
