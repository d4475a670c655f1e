// The state of dewd.

import { h, render } from "../dom.js";
import { get } from "../api.js";
import { every } from "../stream.js";
import { ago, bytes, dateTime, duration, plural, visible } from "../format.js";
import { current } from "../session.js";

function facts(rows) {
  return h("dl", { class: "facts" }, rows.map(([name, value]) => value !== null && value !== undefined && value !== "" && [h("dt", {}, name), h("dd", {}, value)]));
}

export default function daemon(box) {
  let status = null;
  let problem = "";
  function draw() {
    const s = status;
    render(box, h("div", { class: "head" }, h("h1", {}, "Daemon"), s && h("p", { class: "summary" }, `dewd ${visible(s.version)}, running for ${duration((Date.now() - Date.parse(s.started_at)) / 1000)}`)),
      problem && h("p", { class: "problem", role: "alert" }, problem),
      s && h("div", { class: "grid" },
        h("section", { class: "panel" }, h("h2", {}, "Settings"), facts([
          ["Version", visible(s.version)], ["Process", String(s.pid)], ["Started", h("span", { title: ago(s.started_at) }, dateTime(s.started_at))], ["API", visible(s.api)], ["Router", visible(s.router)], ["Domain of apps", visible(s.domain)],
          ["Data folder", h("code", {}, visible(s.root))], ["Run folder", h("code", {}, visible(s.run))], ["containerd", h("code", {}, visible(s.containerd))], ["Cell", visible(s.cell)],
          ["Log per app", s.log_retention ? `${bytes(s.log_retention)}${s.log_retention_asked && s.log_retention_asked !== s.log_retention ? ` (--log-retention asks for ${bytes(s.log_retention_asked)}; a quarter of the disk is the limit)` : ""}` : ""],
          ["Your user", current() && current().user ? visible(current().user.name || current().user.username || "") : ""]])),
        h("section", { class: "panel" }, h("h2", {}, "Apps"), facts([
          ["Apps", `${plural(s.apps, "app")}, ${s.started} started`], ["Instances", `${s.running} of ${s.instances} running`],
          ["Crashed", s.crashed ? h("strong", { class: "problem" }, plural(s.crashed, "instance")) : "none"]]))),
      s && h("section", { class: "panel" }, h("h2", {}, "Problems"),
        (s.set_aside || []).length + (s.refused_urls || []).length
          ? h("ul", { class: "evidence" }, (s.set_aside || []).map((p) => h("li", {}, h("strong", {}, visible(p.part)), `: ${visible(p.error)} (since ${dateTime(p.since)}; dewd retries)`)),
            (s.refused_urls || []).map((u) => h("li", {}, h("strong", {}, `${visible(u.kind)} ${visible(u.name)}`), `: ${visible(u.host)}: ${visible(u.why)}`)))
          : h("p", {}, "dewd reports no problem."),
        h("p", { class: "hint" }, "To check the requirements of this machine, type: ", h("code", {}, "dew doctor"))),
      !s && !problem && null);
  }
  draw();
  return every(3000, async () => {
    try {
      status = await get("/dew/v1/status");
      problem = "";
    } catch (err) {
      problem = err.status === 403 ? "Only administrators can see the state of dewd." : err.message;
    }
    draw();
  });
}

