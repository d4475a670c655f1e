// Audit events, newest first.

import { h } from "../dom.js";
import { list } from "../api.js";
import { ago, dateTime, visible } from "../format.js";
import { appHref } from "../router.js";
import { tablePage } from "./table.js";

async function load() {
  const found = await list("/v3/audit_events", { order_by: "-created_at", per_page: 200, page: 1 });
  return { rows: found.resources, note: found.total > found.resources.length ? `the newest ${found.resources.length} of ${found.total}` : "" };
}

export default function events(box) {
  return tablePage(box, {
    title: "Events", load, key: (e) => e.guid, textOf: (e) => `${e.type} ${e.actor.name} ${e.target.name} ${e.target.type}`,
    none: ["No event is recorded yet. Events appear when someone changes an app, a route or a service."],
    columns: [
      { name: "Time", class: "num", cell: (e) => h("span", { title: ago(e.created_at) }, dateTime(e.created_at)) },
      { name: "Event", cell: (e) => h("strong", {}, visible(e.type)) },
      { name: "Target", cell: (e) => [e.target.type === "app" ? h("a", { href: appHref(e.target.guid) }, visible(e.target.name || e.target.guid)) : visible(e.target.name || e.target.guid), h("div", { class: "sub" }, visible(e.target.type))] },
      { name: "Actor", cell: (e) => visible(e.actor.name || e.actor.type) },
      { name: "Data", cell: (e) => (Object.keys(e.data || {}).length ? h("details", { data: { key: "data" } }, h("summary", {}, "Show"), h("pre", { class: "lines", tabindex: "0" }, visible(JSON.stringify(e.data, null, 2)))) : h("span", { class: "none" }, "–")) },
    ],
  });
}
