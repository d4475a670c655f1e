// Crashes of one app, or of all apps, newest first.

import { h, render, empty } from "../dom.js";
import { get } from "../api.js";
import { live, liveApp, onLive } from "../stream.js";
import { ago, bytes, dateTime, duration, plural, sentence, sourceName, visible } from "../format.js";
import { segments, colorOf } from "../membar.js";
import { appHref } from "../router.js";
import { canDevelop } from "../session.js";
import { parse } from "../ansi.js";
import { appHead } from "./apphead.js";

const classNames = {
  exited: "exited", signaled: "fault of the process", memory_process: "memory limit of the process", memory_instance: "memory limit of the instance",
  memory_host: "memory of the machine", unhealthy: "health check failed", start_timeout: "start timeout", start_failed: "start failed",
  stop_timeout: "stop timeout", peer_exited: "another process exited", killed: "killed", killed_on_demand: "killed by a user",
  output_failed: "output failed", disk_full: "disk full", container_lost: "container lost", removed: "removed by the cluster", unknown: "unknown cause",
};

// exits returns all processes of a crash, the first one first. A process can have two
// records: the failed check that caused the crash, and its exit.
export function exits(c) {
  const out = new Map();
  for (const e of [c.first, ...(c.followers || [])].filter((x) => x.source)) {
    const before = out.get(e.source);
    out.set(e.source, before ? { ...e, cause: before.cause, memory_peak: Math.max(before.memory_peak, e.memory_peak) } : e);
  }
  return [...out.values()];
}

// mainFirst sorts processes as all other pictures do: the main process, then the
// sidecars by name.
const mainFirst = (list) => [...list].sort((a, b) => (a.sidecar || "").localeCompare(b.sidecar || ""));

const signals = { 1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 11: "SIGSEGV", 13: "SIGPIPE", 15: "SIGTERM" };

// memoryAtDeath draws the limits of the processes, each filled to its peak.
function memoryAtDeath(c) {
  const list = mainFirst(exits(c));
  const names = list.map((e) => e.sidecar || "").filter(Boolean).sort();
  const parts = segments(c.memory_limit || 0, list.map((e) => ({ sidecar: e.sidecar || "", mem: e.memory_peak, mem_quota: e.memory_limit })));
  if (!parts.length || !parts.some((p) => p.mem > 0)) return null;
  const text = list.map((e) => `${e.sidecar || "main"} ${bytes(e.memory_peak)}${e.memory_limit ? ` of ${bytes(e.memory_limit)}` : ""}`).join(", ");
  return h("div", {}, h("h3", {}, "Memory peaks"),
    h("div", { class: "barline" }, h("div", { class: "membar", role: "img", "aria-label": `Memory peaks: ${text}` },
      parts.map((p) => h("div", { class: `part c${colorOf(p.sidecar, names)}${p.fill >= 0.95 ? " high" : ""}`, css: { "flex-grow": String(Math.max(p.share, 0.02)) } }, h("div", { class: "fill", css: { width: `${p.fill * 100}%` } })))),
    c.memory_limit > 0 && h("span", { class: "num total" }, bytes(c.memory_limit))),
    h("div", { class: "legend" }, list.map((e) => h("span", { class: `key c${colorOf(e.sidecar || "", names)}` }, h("span", { class: "swatch", "aria-hidden": "true" }), visible(e.sidecar || "main"), " ", h("span", { class: "num" }, bytes(e.memory_peak), h("span", { class: "of" }, e.memory_limit ? ` / ${bytes(e.memory_limit)}` : "")), e.out_of_memory && h("strong", {}, " out of memory")))));
}

function exitText(e) {
  const code = e.code > 128 && e.code < 160 ? `status ${e.code} (${signals[e.code - 128] || `signal ${e.code - 128}`})` : e.code >= 0 ? `status ${e.code}` : "status unknown";
  const cause = e.cause === "peer_exited" ? "stopped because another process exited" : e.cause.replaceAll("_", " ");
  return `${e.sidecar || "main"}: ${cause}, ${code}`;
}

function outputOf(c, guid, open) {
  return (c.output || []).filter((o) => (o.stdout || []).length + (o.stderr || []).length).map((o) => {
    const lines = (c.lines || []).find((l) => l.source === o.source);
    const block = (name, list) => (list || []).length > 0 && [h("div", { class: "sub" }, name), h("pre", { class: "lines", tabindex: "0", "aria-label": `${name} of ${sourceName(o.source)}` }, list.map((t) => [parse(t).map((p) => (p.classes ? h("span", { class: p.classes }, p.text) : p.text)), "\n"]))];
    return h("details", { open: open && o.source === c.first.source, data: { key: `${c.instance}${o.source}` } }, h("summary", {}, `Last lines of ${visible(sourceName(o.source))}`),
      block("stderr", o.stderr), block("stdout", o.stdout),
      lines && h("p", {}, h("a", { href: `${appHref(guid, "logs")}?line=${lines.to}` }, "Show these lines in the log")));
  });
}

function card(c, guid, app, { number, single, open }) {
  const v = c.verdict;
  return h("li", { data: { key: `${c.instance}/${c.crashed_at}` } }, h("article", { class: "panel death" },
    h("div", { class: "meta" }, h("span", { title: c.crashed_at }, `${dateTime(c.crashed_at)}, ${ago(c.crashed_at)}`), app && !single && h("a", { href: appHref(guid) }, visible(app.name)),
      h("span", {}, `${c.type}/${c.index}`), h("span", { class: "class" }, classNames[v.class] || v.class)),
    h("h2", { class: "sentence" }, visible(sentence(v.sentence))),
    v.advice && h("p", { class: "advice" }, visible(v.advice)),
    h("div", { class: "columns" },
      h("div", {}, (v.evidence || []).length > 0 && [h("h3", {}, "Evidence"), h("ul", { class: "evidence" }, v.evidence.map((e) => h("li", {}, visible(e))))]),
      h("div", {}, memoryAtDeath(c), h("h3", {}, "Processes"), h("ul", { class: "evidence" }, exits(c).map((e) => h("li", {}, visible(exitText(e)), e.sent_by && `, signal sent by ${visible(e.sent_by)}`))))),
    h("div", { class: "meta" },
      c.started_at && h("span", {}, `Ran for ${duration((Date.parse(c.crashed_at) - Date.parse(c.started_at)) / 1000)}`),
      h("span", {}, c.count === 1 ? "1 crash in a row" : `${c.count} crashes in a row`),
      c.given_up && h("span", { class: "problem" }, "dew does not restart it"),
      (c.listening || []).length > 0 && h("span", {}, `Listening on ${c.listening.map((p) => p.port + (p.loopback ? " (only inside)" : "")).join(", ")}`)),
    outputOf(c, guid, open),
    h("p", { class: "line" },
      c.kept && app && canDevelop(app.space.guid) && h("a", { class: "button", href: `${appHref(guid, "terminal")}?process=${encodeURIComponent(c.type)}&index=${c.index}&crash=${number}` }, "Open a shell in the crashed files"),
      h("a", { class: "button", href: `${appHref(guid, "logs")}?since=${encodeURIComponent(new Date(Date.parse(c.crashed_at) - 5000).toISOString())}` }, "Show the log around the crash"))));
}

// density shows how many crashes there were over time.
function density(crashes) {
  if (crashes.length < 3) return null;
  const times = crashes.map((c) => Date.parse(c.crashed_at));
  const first = Math.min(...times);
  const span = Math.max(Date.now() - first, 60000);
  const counts = new Array(120).fill(0);
  for (const t of times) counts[Math.min(119, Math.floor(((t - first) / span) * 120))]++;
  const most = Math.max(...counts);
  return h("div", {}, h("div", { class: "density", role: "img", "aria-label": `${plural(crashes.length, "crash", "crashes")} since ${dateTime(first)}`, title: `since ${dateTime(first)}` },
    counts.map((n) => h("span", { css: { height: `${(n / most) * 100}%` } }))),
  h("div", { class: "ends" }, h("span", {}, dateTime(first)), h("span", {}, `${plural(crashes.length, "crash", "crashes")}`), h("span", {}, "now")));
}

export default function crashes(box, { guid }) {
  let list = null;
  let problem = "";
  let seen = "";
  const apps = () => (live() ? live().resources.filter((a) => (guid ? a.guid === guid : a.last_crash)) : []);
  const latest = () => apps().map((a) => a.guid + (a.last_crash ? a.last_crash.time : "")).join();

  async function load() {
    seen = latest();
    try {
      const all = await Promise.all((guid ? [guid] : apps().map((a) => a.guid)).map(async (g) => (await get(`/dew/v1/apps/${encodeURIComponent(g)}/crashes`, { per_page: guid ? 100 : 20 })).crashes.map((c, i) => ({ c, guid: g, number: numberOf(i) }))));
      list = all.flat().sort((a, b) => Date.parse(b.c.crashed_at) - Date.parse(a.c.crashed_at)).slice(0, 200);
      problem = "";
    } catch (err) {
      problem = err.message;
    }
    draw();
  }
  const numberOf = (i) => i + 1; // 1 is the newest crash of the app

  function draw() {
    const app = guid && liveApp(guid);
    if (app) document.title = `Crashes of ${visible(app.name)} – dew`;
    render(box, guid ? appHead(guid, app, "crashes") : h("div", { class: "head" }, h("h1", {}, "Crashes"), list && h("p", { class: "summary" }, `${plural(list.length, "recorded crash", "recorded crashes")}, newest first`)),
      problem && h("p", { class: "problem", role: "alert" }, problem),
      list && !list.length && empty(guid ? "No crash is recorded. To test what happens when a process is killed, type:" : "No crash is recorded.", ...(guid && app ? [`dew kill ${visible(app.name)} --sidecar NAME`] : [])),
      list && list.length > 0 && [density(list.map((x) => x.c)), h("ol", { class: "timeline" }, list.map((x, i) => card(x.c, x.guid, liveApp(x.guid), { number: x.number, single: Boolean(guid), open: i === 0 })))]);
  }
  draw();
  const stop = onLive(() => (latest() !== seen || !list ? load() : draw()));
  return stop;
}
