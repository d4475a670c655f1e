// One app: instances, charts, and its settings.

import { h, render, empty, stateBadge, copy } from "../dom.js";
import { get, list } from "../api.js";
import { connection, every, liveApp, live, onLive, watch } from "../stream.js";
import { ago, bytes, dateTime, duration, number, percent, plural, rate, visible } from "../format.js";
import { colorOf, memoryBar, memoryLegend, sidecarNames } from "../membar.js";
import { Chart, loadCharts } from "../charts.js";
import { appHref } from "../router.js";
import { canOperate, routeURL } from "../session.js";
import * as actions from "../actions.js";
import { appHead } from "./apphead.js";
import { crashSentence } from "./apps.js";

const instanceKinds = { RUNNING: "good", STARTING: "wait", CRASHED: "bad", DOWN: "bad", STOPPING: "wait" };

function instanceRow(app, i, names, now) {
  const kind = i.state === "RUNNING" && !i.ready ? "wait" : instanceKinds[i.state] || "off";
  const text = i.given_up ? "given up" : i.state === "RUNNING" && !i.ready ? "not ready" : i.state.toLowerCase();
  const next = i.next_start ? (Date.parse(i.next_start) - now) / 1000 : 0;
  const running = i.processes && i.processes.length;
  return h("tr", { data: { key: `${i.type}/${i.index}` } },
    h("th", { scope: "row" }, h("strong", {}, `${i.type}/${i.index}`), h("div", { class: "sub" }, `${i.state.toLowerCase()} for ${duration((now - Date.parse(i.since)) / 1000)}`)),
    h("td", { data: { label: "State" } }, stateBadge(text, kind), next > 0 && h("div", { class: "sub" }, `next start in ${duration(next)}`), i.details && h("div", { class: "sub" }, visible(i.details))),
    h("td", { class: "wide" }, running ? [memoryBar(i, names), memoryLegend(i, names)] : h("span", { class: "none" }, "–")),
    h("td", { class: "num", data: { label: "CPU" } }, running ? percent(i.cpu) : "–"),
    h("td", { class: "num", data: { label: "Disk" } }, running ? [bytes(i.disk), h("span", { class: "none" }, ` / ${bytes(i.disk_quota)}`)] : "–"),
    h("td", { class: "num", data: { label: "Log" } }, running ? rate(i.log_rate) : "–"),
    h("td", { class: "num", data: { label: "Req/s" } }, running ? number(i.requests_per_second) : "–"),
    h("td", { class: "num", data: { label: "Latency" } }, running && i.latency_ms ? `${number(i.latency_ms)} ms` : "–"),
    h("td", { class: "num", data: { label: "Crashes" } }, number(i.restarts)),
    h("td", { class: "act" }, h("div", { class: "line" },
      h("a", { class: "button", href: `${appHref(app.guid, "terminal")}?process=${encodeURIComponent(i.type)}&index=${i.index}`, "aria-label": `Terminal in ${i.type}/${i.index}` }, "Terminal"),
      h("button", { disabled: !canOperate(app.space.guid), "aria-label": `Restart instance ${i.type}/${i.index}`, onclick: () => actions.restartInstance(app, i) }, "Restart"))));
}

function instancesPanel(app, now) {
  if (!app.instances.length) {
    return empty(app.state === "STARTED" ? "The app has no instances. To scale it, type:" : "The app is stopped. To start it, type:",
      app.state === "STARTED" ? `dew scale ${app.name} -i 1` : `dew start ${app.name}`);
  }
  const names = sidecarNames(app.instances);
  return h("div", { class: "scroll" }, h("table", { class: "apps cards" }, h("caption", { class: "hidden" }, "Instances"),
    h("thead", {}, h("tr", {}, ["Instance", "State", "Memory by process", "CPU", "Disk", "Log", "Req/s", "Latency", "Crashes"].map((t, i) => h("th", { scope: "col", class: i > 2 ? "num" : null }, t)), h("th", { scope: "col" }, h("span", { class: "hidden" }, "Actions")))),
    h("tbody", {}, app.instances.map((i) => instanceRow(app, i, names, now)))));
}

const panel = (key, title, ...body) => h("section", { class: "panel", data: { key }, "aria-labelledby": `${key}-title` }, h("h2", { id: `${key}-title` }, title), ...body);

const table = (columns, rows) => h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, columns.map((c) => h("th", { scope: "col" }, c || h("span", { class: "hidden" }, "Actions"))))), h("tbody", {}, rows)));

function processesPanel(data) {
  const check = (c) => (c.type === "http" ? `http ${c.data.endpoint || "/"}` : c.type);
  return panel("processes", "Processes and sidecars", (data.processes || []).map((p) => h("div", { data: { key: p.guid } },
    h("h3", {}, p.type),
    h("dl", { class: "facts" },
      h("dt", {}, "Command"), h("dd", {}, p.command ? h("code", {}, visible(p.command)) : "from the droplet"),
      h("dt", {}, "Size"), h("dd", {}, `${plural(p.instances, "instance")} with ${p.memory_in_mb}M memory and ${p.disk_in_mb}M disk`),
      h("dt", {}, "Health check"), h("dd", {}, visible(check(p.health_check)), p.readiness_health_check && p.readiness_health_check.type !== "process" ? `; readiness: ${visible(check(p.readiness_health_check))}` : ""),
      (data.sidecars[p.type] || []).map((s) => [h("dt", {}, "Sidecar"), h("dd", {}, h("strong", {}, visible(s.name)), s.memory_in_mb ? `, ${s.memory_in_mb}M memory` : ", no memory limit of its own", h("br"), h("code", {}, visible(s.command)))])))),
  !(data.processes || []).length && h("p", { class: "hint" }, "No process yet. Push the app: ", h("code", {}, "dew push")));
}

function routesPanel(app, data) {
  const rows = data.routes.flatMap((r) => r.destinations.filter((d) => d.app.guid === app.guid).map((d) => h("tr", { data: { key: d.guid } },
    h("td", {}, h("a", { href: r.protocol === "http" ? routeURL(r.url) : null, target: "_blank", rel: "noopener noreferrer" }, visible(r.url)), r.problem && h("div", { class: "problem" }, visible(r.problem))),
    h("td", {}, d.app.process.type), h("td", { class: "num" }, d.port), h("td", {}, d.protocol || r.protocol, d.pending && h("div", {}, h("span", { class: "state wait" }, "pending until restart"))))));
  return panel("routes", "Routes", rows.length ? table(["Route", "Process", "Port", "Protocol"], rows)
    : h("p", { class: "hint" }, "No route. To add one, type: ", h("code", {}, `dew map-route ${visible(app.name)} DOMAIN --hostname HOST`)));
}

// secrets remembers the values that the user has shown, until the page is left.
function secret(state, key, value, name) {
  const text = typeof value === "string" ? value : JSON.stringify(value, null, 2);
  return state.shown.has(key)
    ? h("div", {}, h("span", { class: "secret" }, visible(text)), " ", h("button", { class: "link", onclick: () => copy(text, name) }, "Copy"), " ", h("button", { class: "link", onclick: () => { state.shown.delete(key); state.draw(); } }, "Hide"))
    : h("button", { class: "secret", "aria-label": `Show the value of ${visible(name)}`, onclick: () => { state.shown.add(key); state.draw(); } }, "••••••••");
}

function envPanel(app, data, state) {
  if (!canOperate(app.space.guid)) return panel("env", "Environment", h("p", { class: "hint" }, "Only users with the role SpaceDeveloper or SpaceSupporter can read the variables."));
  const read = (text) => h("button", { onclick: () => state.readEnv() }, text);
  if (!state.env) return panel("env", "Environment", h("p", {}, read("Show the names of the variables")), h("p", { class: "hint" }, "dew records an audit event when someone reads the variables."));
  const groups = [["Variables of the app", state.env.environment_variables], ["Running variables of the platform", state.env.running_env_json], ["Services and application", { ...state.env.system_env_json, ...state.env.application_env_json }]];
  return panel("env", "Environment", groups.map(([title, vars]) => Object.keys(vars || {}).length > 0 && [h("h3", {}, title),
    h("dl", { class: "facts" }, Object.keys(vars).sort().map((k) => [h("dt", {}, h("code", {}, visible(k))), h("dd", {}, secret(state, `${title}/${k}`, vars[k], k))]))]),
  !Object.keys(state.env.environment_variables || {}).length && h("p", { class: "hint" }, "The app has no variables of its own. To set one, type: ", h("code", {}, `dew set-env ${visible(app.name)} NAME VALUE`)),
  h("p", {}, read("Read again")));
}

function servicesPanel(app, data) {
  return panel("services", "Services", data.bindings.length
    ? table(["Service instance", "Binding", ""], data.bindings.map((b) => h("tr", { data: { key: b.guid } }, h("td", {}, visible(b.name)), h("td", {}, visible(b.state)), h("td", {}, b.since_staging && h("span", { class: "sub" }, "used after a restage")))))
    : h("p", { class: "hint" }, "No service. To bind one, type: ", h("code", {}, `dew bind-service ${visible(app.name)} SERVICE`)));
}

function revisionsPanel(app, data) {
  const deployed = new Set(data.deployed.map((r) => r.guid));
  return panel("revisions", "Revisions", data.revisions.length
    ? table(["Revision", "Change", ""], data.revisions.slice(0, 12).map((r) => h("tr", { data: { key: r.guid } },
      h("td", {}, h("strong", {}, r.version), deployed.has(r.guid) && h("div", { class: "sub nowrap" }, "deployed")),
      h("td", {}, visible(r.description), h("div", { class: "sub", title: dateTime(r.created_at) }, ago(r.created_at))),
      h("td", { class: "act" }, !deployed.has(r.guid) && h("button", { disabled: !r.deployable || !canOperate(app.space.guid), title: r.deployable ? null : "Its droplet no longer exists", "aria-label": `Roll back to revision ${r.version}`, onclick: () => actions.rollBack(app, r).then((done) => done && refreshNow()) }, "Roll back")))))
    : h("p", { class: "hint" }, "No revisions. dew stores one at each push."));
}

let refreshNow = () => {};

function deploymentsPanel(app, data) {
  const now = data.deployments[0];
  if (!now) return null;
  const active = now.status.value === "ACTIVE";
  const steps = now.status.canary && now.status.canary.steps;
  const after = (done) => done && refreshNow();
  return panel("deployments", "Deployment",
    h("p", {}, stateBadge(now.status.reason.toLowerCase(), active ? "wait" : now.status.reason === "DEPLOYED" ? "good" : "off"), ` ${now.strategy}, started ${ago(now.created_at)}`,
      now.revision && now.revision.version ? `, revision ${now.revision.version}` : ""),
    steps && h("div", { class: "steps", role: "img", "aria-label": `Step ${steps.current} of ${steps.total}` }, Array.from({ length: steps.total }, (_, i) => h("span", { class: i < steps.current ? "on" : null }))),
    now.status.details && now.status.details.error && h("p", { class: "problem" }, visible(now.status.details.error)),
    active && h("div", { class: "line" },
      now.status.reason === "PAUSED" && h("button", { class: "primary", disabled: !canOperate(app.space.guid), onclick: () => actions.continueDeployment(app, now).then(after) }, "Continue"),
      h("button", { disabled: !canOperate(app.space.guid), onclick: () => actions.cancelDeployment(app, now).then(after) }, "Cancel the deployment")));
}

function tasksPanel(app, data) {
  const kinds = { SUCCEEDED: "good", FAILED: "bad", RUNNING: "wait", PENDING: "wait", CANCELING: "wait" };
  return panel("tasks", "Tasks", data.tasks.length
    ? table(["Task", "State", ""], data.tasks.slice(0, 12).map((t) => h("tr", { data: { key: t.guid } },
      h("td", {}, h("strong", {}, `${t.sequence_id} ${visible(t.name)}`), t.command && h("div", { class: "sub" }, h("code", {}, visible(t.command)))),
      h("td", {}, stateBadge(t.state.toLowerCase(), kinds[t.state] || "off"), h("div", { class: "sub", title: dateTime(t.created_at) }, t.result.failure_reason ? visible(t.result.failure_reason) : ago(t.created_at))),
      h("td", { class: "act" }, (t.state === "RUNNING" || t.state === "PENDING") && h("button", { disabled: !canOperate(app.space.guid), onclick: () => actions.cancelTask(app, t).then((done) => done && refreshNow()) }, "Cancel")))))
    : h("p", { class: "hint" }, "No tasks. To run one, type: ", h("code", {}, `dew run-task ${visible(app.name)} --command COMMAND`)));
}

// settings reads all that the live stream does not have. A part that the user cannot
// read is null.
async function settings(guid) {
  const base = `/v3/apps/${encodeURIComponent(guid)}`;
  const optional = async (work, otherwise) => {
    try {
      return await work;
    } catch (err) {
      if (err.status === 403 || err.status === 404) return otherwise;
      throw err;
    }
  };
  const rows = (path, query) => optional(list(path, query).then((l) => l.resources), []);
  const [processes, routes, bindings, revisions, deployed, deployments, tasks] = await Promise.all([
    rows(`${base}/processes`), rows(`${base}/routes`),
    optional(get(`/dew/v1/apps/${encodeURIComponent(guid)}/bindings`).then((b) => b.bindings), []),
    rows(`${base}/revisions`, { order_by: "-created_at", per_page: 12, page: 1 }), rows(`${base}/revisions/deployed`),
    rows("/v3/deployments", { app_guids: guid, order_by: "-created_at", per_page: 1, page: 1 }),
    rows(`${base}/tasks`, { order_by: "-created_at", per_page: 12, page: 1 }),
  ]);
  const sidecars = {};
  await Promise.all(processes.map(async (p) => { sidecars[p.type] = await rows(`${base}/processes/${encodeURIComponent(p.type)}/sidecars`); }));
  revisions.sort((a, b) => b.version - a.version);
  return { processes, routes, bindings, revisions, deployed, deployments, tasks, sidecars };
}

// UsageCharts are the charts of one instance: the last hour, continued by live samples.
class UsageCharts {
  constructor(guid, root) {
    this.guid = guid;
    this.root = root;
    this.key = ""; // type/index
    this.charts = [];
    this.titles = ["Memory", "CPU", "Requests per second", "Latency"];
    this.theme = () => this.charts.forEach((c) => c.redraw());
    addEventListener("themechange", this.theme);
  }

  // element shows the boxes and the choice of the instance.
  element(app) {
    const keys = app.instances.map((i) => `${i.type}/${i.index}`);
    return h("section", { class: "panel", data: { key: "charts" }, "aria-labelledby": "charts-title" },
      h("div", { class: "panelhead" }, h("h2", { id: "charts-title" }, "Last hour"),
        keys.length > 1 && h("label", {}, "Instance ", h("select", { value: this.key, onchange: (e) => this.choose(e.target.value) }, keys.map((k) => h("option", { value: k, selected: k === this.key }, k))))),
      h("div", { class: "grid charts" }, this.titles.map((title) => h("div", { data: { key: title } }, h("h3", {}, title), h("div", { class: "chart", data: { keep: "", chart: title } })))));
  }

  async choose(key) {
    this.key = key;
    this.data = null;
    for (const c of this.charts) c.destroy();
    this.charts = [];
    const [uPlot, history] = await Promise.all([loadCharts(), get(`/dew/v1/apps/${encodeURIComponent(this.guid)}/usage`).catch(() => ({ resources: [] }))]);
    if (this.key !== key || this.left || !this.root.querySelector("[data-chart]")) return;
    const rows = history.resources.filter((r) => `${r.type}/${r.index}` === key && r.times.length).sort((a, b) => a.times[0] - b.times[0]);
    this.names = [...new Set(rows.flatMap((r) => r.processes.map((p) => p.sidecar || "")).concat(this.liveNames()))].sort();
    this.data = mergeSeries(rows, this.names);
    this.create(uPlot);
    this.draw();
  }

  liveInstance() {
    const app = liveApp(this.guid);
    return app && app.instances.find((i) => `${i.type}/${i.index}` === this.key);
  }

  liveNames() {
    const i = this.liveInstance();
    return i ? (i.processes || []).map((p) => p.sidecar || "") : [""];
  }

  create(uPlot) {
    const sidecars = this.names.filter(Boolean);
    const parts = this.names.map((n) => ({ label: n || "main", color: `--c${colorOf(n, sidecars)}`, fill: true }));
    const limits = this.names.map((n, i) => ({ label: `limit of ${n || "main"}`, color: parts[i].color, dash: true }));
    const make = (i, options) => new Chart(uPlot, this.root.querySelector(`[data-chart="${this.titles[i]}"]`), { label: this.titles[i], ...options });
    this.charts = [
      make(0, { unit: "bytes", series: [...parts, ...limits] }), make(1, { unit: "cores", series: parts }),
      make(2, { unit: "rate", series: [{ label: "requests", color: "--c0", fill: true }] }), make(3, { unit: "ms", series: [{ label: "latency", color: "--c3", fill: true }] }),
    ];
  }

  // add appends the newest live sample.
  add(time) {
    const i = this.liveInstance();
    if (!this.data || !i) return;
    const d = this.data;
    const at = Date.parse(time) / 1000;
    if (d.times.length && at <= d.times[d.times.length - 1]) return;
    const on = i.processes && i.processes.length;
    d.times.push(at);
    d.requests.push(on ? i.requests_per_second : null);
    d.latency.push(on && i.latency_ms ? i.latency_ms : null);
    this.names.forEach((n, k) => {
      const p = (i.processes || []).find((q) => (q.sidecar || "") === n);
      d.mem[k].push(p ? p.mem : null);
      d.cpu[k].push(p ? p.cpu : null);
      d.limit[k].push(p && p.mem_quota ? p.mem_quota : null);
    });
    while (d.times[0] < at - 3600) for (const a of [d.times, d.requests, d.latency, ...d.mem, ...d.cpu, ...d.limit]) a.shift();
    this.draw();
  }

  draw() {
    if (!this.charts.length) return;
    if (!this.charts[0].el.isConnected) return this.choose(this.key); // the app was stopped and started
    const d = this.data;
    this.charts[0].draw([d.times, ...d.mem, ...d.limit]);
    this.charts[1].draw([d.times, ...d.cpu]);
    this.charts[2].draw([d.times, d.requests]);
    this.charts[3].draw([d.times, d.latency]);
  }

  leave() {
    this.left = true;
    removeEventListener("themechange", this.theme);
    for (const c of this.charts) c.destroy();
  }
}

// mergeSeries joins the samples of the successive instances of one index. A gap between
// two instances becomes a gap in the line.
export function mergeSeries(rows, names) {
  const d = { times: [], requests: [], latency: [], mem: names.map(() => []), cpu: names.map(() => []), limit: names.map(() => []) };
  for (const r of rows) {
    const blank = d.times.length > 0;
    if (blank) {
      d.times.push(Math.max(r.times[0] - 1, d.times[d.times.length - 1] + 0.001));
      for (const a of [d.requests, d.latency, ...d.mem, ...d.cpu, ...d.limit]) a.push(null);
    }
    r.times.forEach((t, i) => {
      if (d.times.length && t <= d.times[d.times.length - 1]) return;
      d.times.push(t);
      d.requests.push(r.requests_per_second[i]);
      d.latency.push(r.latency_ms[i] || null);
      names.forEach((n, k) => {
        const p = r.processes.find((q) => (q.sidecar || "") === n);
        d.mem[k].push(p ? p.mem[i] : null);
        d.cpu[k].push(p ? p.cpu[i] : null);
        d.limit[k].push(p && p.mem_quota ? p.mem_quota : null);
      });
    });
  }
  return d;
}

export default function app(box, { guid }) {
  const state = { shown: new Set(), data: null, env: null, problem: "", draw, readEnv };
  const charts = new UsageCharts(guid, box);
  function draw() {
    const a = liveApp(guid);
    if (!a) {
      if (live()) render(box, h("h1", {}, "App not found"), h("p", {}, "It was deleted, or you do not have permission to see it."));
      return;
    }
    document.title = `${visible(a.name)} – dew`;
    const d = state.data;
    render(box, appHead(guid, a, ""),
      crashSentence(a) && h("p", { data: { key: "crash" } }, crashSentence(a)),
      h("div", { data: { key: "instances" } }, instancesPanel(a, Date.now())),
      a.instances.length > 0 && charts.element(a),
      state.problem && h("p", { class: "problem", role: "alert" }, state.problem),
      d && h("div", { class: "grid", data: { key: "settings" } },
        h("div", {}, deploymentsPanel(a, d), processesPanel(d), routesPanel(a, d), servicesPanel(a, d)),
        h("div", {}, envPanel(a, d, state), revisionsPanel(a, d), tasksPanel(a, d))));
    const keys = a.instances.map((i) => `${i.type}/${i.index}`);
    if (keys.length && !keys.includes(charts.key)) charts.choose(keys[0]);
  }
  async function refresh() {
    try {
      state.data = await settings(guid);
      state.problem = "";
    } catch (err) {
      state.problem = err.status ? err.message : "";
    }
    draw();
  }
  // The stream sends nothing while nothing changes; the lines continue nevertheless.
  async function tick() {
    if (connection() === "open") charts.add(new Date().toISOString());
    draw();
  }
  async function readEnv() {
    await actions.run("Read the variables", async () => { state.env = await get(`/v3/apps/${encodeURIComponent(guid)}/env`); });
    draw();
  }
  refreshNow = refresh;
  const stops = [onLive((l) => { draw(); charts.add(l.time); }), watch(refresh), every(5000, tick), () => charts.leave()];
  return () => stops.forEach((f) => f());
}
