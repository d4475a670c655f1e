// The state of dewd, the checks of its machine, and the sessions of the console.

import { h, render, stateBadge } from "../dom.js";
import { get } from "../api.js";
import { every, watch } from "../stream.js";
import { ago, bytes, dateTime, duration, plural, visible } from "../format.js";
import { loadSessions, sessionTable } from "./sessions.js";

function facts(rows) {
  return h("dl", { class: "facts" }, rows.map(([name, value]) => value !== null && value !== undefined && value !== "" && [h("dt", {}, name), h("dd", {}, value)]));
}

const levels = { ok: ["ok", "good"], warn: ["warning", "wait"], FAIL: ["failed", "bad"] };

function doctorSummary(found) {
  const count = (level) => found.filter((f) => f.level === level).length;
  const parts = [count("FAIL") && `${count("FAIL")} failed`, count("warn") && plural(count("warn"), "warning")].filter(Boolean);
  return `${plural(found.length, "check")}, ${parts.length ? parts.join(", ") : "all ok"}`;
}

// doctorPanel shows the checks, those with a problem first.
function doctorPanel(doctor, problem, check) {
  const order = { FAIL: 0, warn: 1, ok: 2 };
  const found = doctor ? [...doctor.findings].sort((a, b) => order[a.level] - order[b.level]) : [];
  return h("section", { class: "panel", data: { key: "doctor" }, "aria-labelledby": "doctor-title" },
    h("div", { class: "panelhead" }, h("h2", { id: "doctor-title" }, "Requirements of this machine"),
      h("span", { class: "line" }, doctor && h("span", { class: "hint", title: dateTime(doctor.checked_at) }, `${doctorSummary(found)}, ${ago(doctor.checked_at)}`), h("button", { onclick: check }, "Check again"))),
    problem && h("p", { class: "problem", role: "alert" }, problem),
    found.length > 0 && h("div", { class: "scroll" }, h("table", { class: "checks" }, h("caption", { class: "hidden" }, "Checks of dewd doctor"),
      h("thead", {}, h("tr", {}, ["Check", "Result", "Finding"].map((c) => h("th", { scope: "col" }, c)))),
      h("tbody", {}, found.map((f) => h("tr", { data: { key: f.name } }, h("th", { scope: "row" }, visible(f.name)), h("td", {}, stateBadge(...(levels[f.level] || [f.level, "off"]))),
        h("td", {}, visible(f.what), f.do && h("div", { class: "advice" }, visible(f.do))))))) ));
}

function settingsPanel(s) {
  const asked = s.log_retention_asked && s.log_retention_asked !== s.log_retention ? ` (--log-retention asks for ${bytes(s.log_retention_asked)}; a quarter of the disk is the limit)` : "";
  return h("section", { class: "panel" }, h("h2", {}, "Settings"), facts([
    ["Version", visible(s.version)], ["Process", String(s.pid)], ["Started", h("span", { title: ago(s.started_at) }, dateTime(s.started_at))], ["API", visible(s.api)], ["Router", visible(s.router)], ["Domain of apps", visible(s.domain)],
    ["Data folder", h("code", {}, visible(s.root))], ["Run folder", h("code", {}, visible(s.run))], ["containerd", h("code", {}, visible(s.containerd))], ["Cell", visible(s.cell)],
    ["Log per app", s.log_retention ? bytes(s.log_retention) + asked : ""]]));
}

function problemsPanel(s) {
  const aside = (s.set_aside || []).map((p) => h("li", {}, h("strong", {}, visible(p.part)), `: ${visible(p.error)} (since ${dateTime(p.since)}; dewd retries)`));
  const urls = (s.refused_urls || []).map((u) => h("li", {}, h("strong", {}, `${visible(u.kind)} ${visible(u.name)}`), `: ${visible(u.host)}: ${visible(u.why)}`));
  return h("section", { class: "panel" }, h("h2", {}, "Apps and problems"), facts([
    ["Apps", `${plural(s.apps, "app")}, ${s.started} started`], ["Instances", `${s.running} of ${s.instances} running`],
    ["Crashed", s.crashed ? h("strong", { class: "problem" }, plural(s.crashed, "instance")) : "none"],
    ["Problems", aside.length + urls.length ? h("ul", { class: "evidence" }, aside, urls) : "none"]]));
}

export default function daemon(box) {
  const state = { status: null, sessions: null, doctor: null, problem: "", doctorProblem: "" };
  function draw() {
    const s = state.status;
    render(box, h("div", { class: "head" }, h("h1", {}, "Daemon"), s && h("p", { class: "summary" }, `dewd ${visible(s.version)}, running for ${duration((Date.now() - Date.parse(s.started_at)) / 1000)}`)),
      state.problem && h("p", { class: "problem", role: "alert" }, state.problem),
      s && h("div", { class: "grid" }, settingsPanel(s), problemsPanel(s)),
      s && doctorPanel(state.doctor, state.doctorProblem, check),
      state.sessions && h("section", { class: "panel", data: { key: "sessions" } }, h("h2", {}, "Sessions of the console"), sessionTable(state.sessions, refreshSessions)));
  }
  const refused = (err) => (err.status === 403 ? "Only administrators can see the state of dewd." : err.message);
  async function check() {
    try {
      state.doctor = await get("/dew/v1/doctor");
      state.doctorProblem = "";
    } catch (err) {
      state.doctorProblem = refused(err);
    }
    draw();
  }
  async function refreshSessions() {
    state.sessions = await loadSessions().catch(() => state.sessions);
    draw();
  }
  async function refresh() {
    try {
      state.status = await get("/dew/v1/status");
      state.problem = "";
    } catch (err) {
      state.problem = refused(err);
    }
    draw();
  }
  const stops = [every(1000, refresh), every(60000, check), watch(refreshSessions)];
  return () => stops.forEach((stop) => stop());
}
