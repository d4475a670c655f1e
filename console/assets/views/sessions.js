// Sessions of the console: those of the user, or of all users for administrators.

import { h, render, empty } from "../dom.js";
import { get, send } from "../api.js";
import { watch } from "../stream.js";
import { ago, dateTime, plural, visible } from "../format.js";
import { isAdmin } from "../session.js";
import { ask, run } from "../actions.js";

const systems = [["iPhone", /iPhone/], ["iPad", /iPad/], ["Android", /Android/], ["Windows", /Windows/], ["macOS", /Mac OS X/], ["Linux", /Linux|X11/]];
const browsers = [["Edge", /Edg\/(\d+)/], ["Opera", /OPR\/(\d+)/], ["Firefox", /Firefox\/(\d+)/], ["Chrome", /Chrome\/(\d+)/], ["Safari", /Version\/(\d+).*Safari/]];

// browserName returns a short name for a user agent: "Chrome 120 on Linux".
export function browserName(agent) {
  const find = (list) => list.map(([name, re]) => [name, re.exec(agent)]).find(([, m]) => m);
  const browser = find(browsers);
  const system = find(systems);
  if (!browser) return agent || "unknown browser";
  return `${browser[0]} ${browser[1][1]}${system ? ` on ${system[0]}` : ""}`;
}

async function revoke(s) {
  const text = s.current ? "This is the session of this page: you are logged out." : "The browser is logged out. Its log streams and terminals end within about a minute.";
  if (!await ask(`End the session of ${visible(s.user.name)}?`, text, "End session", true)) return false;
  return run("Ended the session", () => send("DELETE", `/dew/v1/console/sessions/${encodeURIComponent(s.id)}`));
}

// sessionTable draws a list of sessions.
export function sessionTable(sessions, refresh) {
  return h("div", { class: "scroll" }, h("table", { class: "cards list" }, h("caption", { class: "hidden" }, "Sessions"),
    h("thead", {}, h("tr", {}, ["User", "Browser", "Last used", "Started", "Ends"].map((c) => h("th", { scope: "col" }, c)), h("th", { scope: "col" }, h("span", { class: "hidden" }, "Actions")))),
    h("tbody", {}, sessions.map((s) => h("tr", { data: { key: s.id } },
      h("th", { scope: "row" }, h("strong", {}, visible(s.user.name)), s.current && h("span", { class: "sub" }, " this page")),
      h("td", { class: "full", title: visible(s.user_agent || ""), data: { label: "Browser" } }, visible(browserName(s.user_agent || ""))),
      ...[["Last used", ago(s.last_used_at), s.last_used_at], ["Started", ago(s.created_at), s.created_at], ["Ends", dateTime(s.expires_at), s.expires_at]].map(([label, text, time]) => h("td", { class: "full", data: { label } }, h("span", { title: dateTime(time) }, text))),
      h("td", { class: "act" }, h("button", { "aria-label": `End session of ${visible(s.user.name)} in ${visible(browserName(s.user_agent || ""))}`, onclick: () => revoke(s).then((done) => done && refresh()) }, "End session")))))));
}

export const loadSessions = async () => (await get("/dew/v1/console/sessions")).resources;

export default function sessions(box) {
  let list = null;
  let problem = "";
  function draw() {
    render(box, h("div", { class: "head" }, h("h1", {}, "Sessions"), list && h("p", { class: "summary" }, `${plural(list.length, "session")} of ${isAdmin() ? "all users" : "your user"}`)),
      problem && h("p", { class: "problem", role: "alert" }, problem),
      list && !list.length && empty("There is no session. To open the console in another browser, type:", "dew console --print"),
      list && list.length > 0 && sessionTable(list, refresh));
  }
  async function refresh() {
    try {
      list = await loadSessions();
      problem = "";
    } catch (err) {
      problem = err.message;
    }
    draw();
  }
  return watch(refresh);
}
