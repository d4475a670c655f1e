// The memory of an instance as one bar, divided by limit into its processes, each filled
// to its use.

import { h } from "./dom.js";
import { bytes, visible } from "./format.js";

// colorOf returns the number of a process's colour: 0 for the main process, then the
// sidecars in the order of their names.
export function colorOf(sidecar, names) {
  return sidecar ? 1 + (Math.max(0, names.indexOf(sidecar)) % 6) : 0;
}

// sidecarNames returns the names of all sidecars of an app, sorted.
export function sidecarNames(instances) {
  const names = new Set();
  for (const i of instances) for (const p of i.processes || []) if (p.sidecar) names.add(p.sidecar);
  return [...names].sort();
}

// segments returns the parts of the bar: their share of the width, and how full they
// are. Processes without a limit of their own share the rest of the instance's limit.
export function segments(quota, processes) {
  const limited = processes.reduce((sum, p) => sum + (p.mem_quota || 0), 0);
  const open = processes.filter((p) => !p.mem_quota);
  const rest = Math.max(quota - limited, open.reduce((sum, p) => sum + p.mem, 0), 0);
  const used = open.reduce((sum, p) => sum + p.mem, 0);
  const total = Math.max(limited + (open.length ? rest : 0), quota, 1);
  return processes.map((p) => {
    const limit = p.mem_quota || (open.length === 1 ? rest : used > 0 ? rest * (p.mem / used) : rest / open.length);
    return { sidecar: p.sidecar || "", mem: p.mem, limit, own: Boolean(p.mem_quota), share: limit / total, fill: limit > 0 ? Math.min(1, p.mem / limit) : 0 };
  });
}

// memoryText describes the bar in words.
export function memoryText(instance) {
  const parts = (instance.processes || []).map((p) => `${visible(p.sidecar || "main")} ${bytes(p.mem)}${p.mem_quota ? ` of ${bytes(p.mem_quota)}` : ""}`);
  return parts.length ? parts.join(", ") : "not running";
}

// memoryBar draws the bar of one instance.
export function memoryBar(instance, names) {
  const list = segments(instance.mem_quota, instance.processes || []);
  return h("div", { class: "membar", role: "img", "aria-label": `Memory: ${memoryText(instance)}`, title: memoryText(instance) },
    list.map((s) => h("div", { class: `part c${colorOf(s.sidecar, names)}${s.fill >= 0.9 ? " high" : ""}`, css: { "flex-grow": String(Math.max(s.share, 0.02)) } },
      h("div", { class: "fill", css: { width: `${(s.fill * 100).toFixed(1)}%` } }))));
}

// memoryLegend names the processes of an instance with their use and limit.
export function memoryLegend(instance, names) {
  return h("div", { class: "legend" }, (instance.processes || []).map((p) => key(p.sidecar, names,
    h("span", { class: "num" }, bytes(p.mem), h("span", { class: "of" }, p.mem_quota ? ` / ${bytes(p.mem_quota)}` : "")))));
}

// limitLegend names the processes of several instances with their limits.
export function limitLegend(instances, names) {
  const limits = new Map();
  for (const p of instances.flatMap((i) => i.processes || [])) limits.set(p.sidecar || "", (limits.get(p.sidecar || "") || new Set()).add(p.mem_quota || 0));
  return h("div", { class: "legend" }, ["", ...names].filter((n) => limits.has(n)).map((n) => {
    const own = [...limits.get(n)].filter(Boolean).sort((a, b) => a - b).map(bytes);
    return key(n, names, h("span", { class: "num of" }, own.length ? `limit ${own.join(", ")}` : "no limit of its own"));
  }));
}

const key = (sidecar, names, ...rest) => h("span", { class: `key c${colorOf(sidecar, names)}` }, h("span", { class: "swatch", "aria-hidden": "true" }), visible(sidecar || "main"), " ", ...rest);
