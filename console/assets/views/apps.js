// All apps, live.

import { h, render, empty, stateBadge } from "../dom.js";
import { live, onLive } from "../stream.js";
import { ago, bytes, dateTime, number, percent, plural, rate, sentence, visible } from "../format.js";
import { limitLegend, memoryBar, memoryLegend, sidecarNames } from "../membar.js";
import { appHref, query, setQuery } from "../router.js";
import { canDevelop, canOperate, routeURL } from "../session.js";
import * as actions from "../actions.js";

// appState returns the state of an app as one word, and its kind for the colour.
export function appState(app) {
  if (app.state !== "STARTED") return ["stopped", "off"];
  const all = app.instances;
  if (!all.length) return ["started", "wait"];
  if (all.every((i) => i.state === "RUNNING" && i.ready)) return ["running", "good"];
  if (all.some((i) => i.given_up || i.state === "CRASHED" || i.state === "DOWN")) return [all.some((i) => i.state === "RUNNING") ? "degraded" : "crashed", "bad"];
  if (all.every((i) => i.state === "RUNNING")) return ["not ready", "wait"];
  return ["starting", "wait"];
}

const sum = (list, f) => list.reduce((total, x) => total + (f(x) || 0), 0);

// matches reports whether an app passes the filter of the page.
export function matches(app, filter) {
  const text = filter.text.trim().toLowerCase();
  return (!filter.org || app.space.org_name === filter.org) && (!filter.space || app.space.name === filter.space) &&
    (!text || app.name.toLowerCase().includes(text) || (app.routes || []).some((r) => r.toLowerCase().includes(text)));
}

// crashSentence returns the newest crash of an app in one sentence.
export function crashSentence(app) {
  const c = app.last_crash;
  if (!c) return null;
  return h("a", { class: "crash", href: appHref(app.guid, "crashes"), title: dateTime(c.time) },
    h("span", {}, visible(sentence(c.sentence))), h("span", { class: "when" }, `${c.type}/${c.index}, ${ago(c.time)}`));
}

// buttons are the writes of an app.
export function buttons(app, after = () => {}) {
  const operate = canOperate(app.space.guid);
  const develop = canDevelop(app.space.guid);
  const why = operate ? null : "You need the role SpaceDeveloper or SpaceSupporter in this space";
  const button = (text, f, allowed = operate) => h("button", {
    disabled: !allowed, title: allowed ? null : why || "You need the role SpaceDeveloper in this space",
    "aria-label": `${text} ${visible(app.name)}`, onclick: () => f(app).then((done) => done && after(text)),
  }, text);
  return h("div", { class: "buttons" },
    app.state === "STARTED" ? button("Stop", actions.stop) : button("Start", actions.start),
    button("Restart", actions.restart),
    h("details", { class: "menu" }, h("summary", { "aria-label": `More actions for ${visible(app.name)}`, title: "More actions" }, "⋯"),
      h("div", { class: "items" }, button("Scale", actions.scale), button("Delete", actions.remove, develop))));
}

function row(app) {
  const names = sidecarNames(app.instances);
  const running = app.instances.filter((i) => i.state === "RUNNING");
  const [state, kind] = appState(app);
  const bars = app.instances.filter((i) => i.processes && i.processes.length);
  return h("tr", { data: { key: app.guid } },
    h("th", { scope: "row" }, h("a", { class: "name", href: appHref(app.guid) }, visible(app.name)),
      h("div", { class: "sub" }, `${visible(app.space.org_name)} / ${visible(app.space.name)}`),
      (app.routes || []).slice(0, 1).map((url) => h("div", { class: "sub url" }, h("a", { href: routeURL(url), target: "_blank", rel: "noopener noreferrer" }, visible(url.replace(/^https?:\/\//, "")))))),
    h("td", { data: { label: "State" } }, stateBadge(state, kind), h("div", { class: "sub" }, app.state === "STARTED" ? `${running.length} of ${plural(app.instances.length, "instance")}` : "")),
    h("td", { class: "wide", data: { label: "Memory" } }, bars.length
      ? [bars.slice(0, 8).map((i) => h("div", { class: "barline" }, h("span", { class: "idx" }, `${i.type}/${i.index}`), memoryBar(i, names), h("span", { class: "num total" }, bytes(i.mem)))),
        bars.length > 8 && h("div", { class: "sub" }, `and ${bars.length - 8} more`), bars.length > 1 ? limitLegend(bars, names) : memoryLegend(bars[0], names)]
      : h("span", { class: "none" }, "–")),
    h("td", { class: "num", data: { label: "CPU" } }, running.length ? percent(sum(running, (i) => i.cpu)) : "–"),
    h("td", { class: "num", data: { label: "Log" } }, running.length ? rate(sum(running, (i) => i.log_rate)) : "–"),
    h("td", { class: "num", data: { label: "Req/s" } }, running.length ? number(sum(running, (i) => i.requests_per_second)) : "–"),
    h("td", { class: "wide last", data: { label: "Last crash" } }, crashSentence(app) || h("span", { class: "none" }, "–")),
    h("td", { class: "act" }, h("div", { class: "line" }, h("a", { class: "button", href: appHref(app.guid, "logs"), "aria-label": `Logs of ${visible(app.name)}` }, "Logs"), buttons(app))));
}


const options = (values, chosen, all) => [h("option", { value: "" }, all), values.map((v) => h("option", { value: v, selected: v === chosen }, visible(v)))];

// firstRows is the number of rows of the first view. The others follow in the next
// frames, so that a long list does not delay the first view.
const firstRows = 20;

export default function apps(box) {
  let limit = firstRows;
  let drawn = new Map(); // guid to the values of the row in the page
  // rows draws the rows that have changed.
  const rows = (list) => {
    const next = new Map();
    const out = list.slice(0, limit).map((a) => {
      const values = JSON.stringify(a) + (a.last_crash ? ago(a.last_crash.time) : "") + canOperate(a.space.guid) + canDevelop(a.space.guid);
      next.set(a.guid, values);
      return drawn.get(a.guid) === values ? h("tr", { data: { key: a.guid, same: "" } }) : row(a);
    });
    drawn = next;
    if (list.length > limit) {
      limit += 40;
      requestAnimationFrame(() => setTimeout(() => { if (box.isConnected) draw(); }));
    }
    return out;
  };
  const filter = { text: query("q"), org: query("org"), space: query("space") };
  const change = () => {
    setQuery({ q: filter.text, org: filter.org, space: filter.space });
    draw();
  };
  function draw() {
    const state = live();
    if (!state) return render(box, h("h1", {}, "Apps"));
    const all = state.resources;
    const list = all.filter((a) => matches(a, filter));
    const unique = (f) => [...new Set(all.map(f))].sort();
    const instances = all.flatMap((a) => a.instances);
    const running = instances.filter((i) => i.state === "RUNNING");
    if (!list.length) drawn.clear();
    render(box,
      h("div", { class: "head" }, h("h1", {}, "Apps"),
        h("p", { class: "summary" }, `${plural(all.length, "app")}, ${running.length} of ${plural(instances.length, "instance")} running, `,
          h("span", { class: "num" }, bytes(sum(running, (i) => i.mem))), " of ", h("span", { class: "num" }, bytes(sum(running, (i) => i.mem_quota))), " memory in use")),
      h("div", { class: "tools" },
        h("input", { type: "search", placeholder: "Filter by name or route", "aria-label": "Filter apps by name or route", value: filter.text, oninput: (e) => { filter.text = e.target.value; change(); } }),
        h("select", { "aria-label": "Org", value: filter.org, onchange: (e) => { filter.org = e.target.value; filter.space = ""; change(); } }, options(unique((a) => a.space.org_name), filter.org, "All orgs")),
        h("select", { "aria-label": "Space", value: filter.space, onchange: (e) => { filter.space = e.target.value; change(); } },
          options([...new Set(all.filter((a) => !filter.org || a.space.org_name === filter.org).map((a) => a.space.name))].sort(), filter.space, "All spaces"))),
      !all.length && empty("There is no app yet. To push the app in the current folder, type:", "dew push"),
      all.length > 0 && !list.length && empty("No app matches the filter."),
      list.length > 0 && h("div", { class: "scroll" }, h("table", { class: "apps cards" },
        h("caption", { class: "hidden" }, "Apps with their state, memory and last crash"),
        h("thead", {}, h("tr", {}, ["App", "State", "Memory by process", "CPU", "Log", "Req/s", "Last crash"].map((t, i) => h("th", { scope: "col", class: i > 2 && i < 6 ? "num" : null }, t)), h("th", { scope: "col" }, h("span", { class: "hidden" }, "Actions")))),
        h("tbody", {}, rows(list)))));
  }
  draw();
  return onLive(draw);
}
