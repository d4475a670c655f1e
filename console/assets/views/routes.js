// Routes and their destinations.

import { h } from "../dom.js";
import { list } from "../api.js";
import { plural, visible } from "../format.js";
import { live } from "../stream.js";
import { appHref } from "../router.js";
import { routeURL } from "../session.js";
import { tablePage } from "./table.js";

async function load() {
  const found = await list("/v3/routes", { include: "space,space.organization" });
  const spaces = new Map((found.included.spaces || []).map((s) => [s.guid, s]));
  const orgs = new Map((found.included.organizations || []).map((o) => [o.guid, o]));
  const apps = new Map(live() ? live().resources.map((a) => [a.guid, a]) : []);
  const rows = found.resources.map((r) => {
    const space = spaces.get(r.relationships.space.data.guid);
    const org = space && space.relationships && orgs.get(space.relationships.organization.data.guid);
    return { r, place: space ? `${org ? `${org.name} / ` : ""}${space.name}` : "", apps };
  });
  return { rows, note: plural(rows.length, "route") };
}

function destinations({ r, apps }) {
  if (!r.destinations.length) return h("span", { class: "none" }, "none: requests get status 404");
  return r.destinations.map((d) => {
    const app = apps.get(d.app.guid);
    return h("div", {}, app ? h("a", { href: appHref(d.app.guid) }, visible(app.name)) : d.app.guid, ` ${d.app.process.type}, port ${d.port}, ${d.protocol || r.protocol}`,
      d.weight ? `, weight ${d.weight}` : "", d.pending && h("span", { class: "sub" }, " after the next restart"));
  });
}

export default function routes(box) {
  return tablePage(box, {
    title: "Routes", load, key: (x) => x.r.guid, textOf: (x) => [x.r.url, x.place, ...x.r.destinations.map((d) => (x.apps.get(d.app.guid) || { name: "" }).name)].join(" "),
    none: ["There is no route. To add one to an app, type:", "dew map-route APP DOMAIN --hostname HOST"],
    columns: [
      { name: "Route", cell: ({ r, place }) => [r.protocol === "http" ? h("a", { class: "name", href: routeURL(r.url), target: "_blank", rel: "noopener noreferrer" }, visible(r.url)) : h("span", { class: "name" }, visible(r.url)), h("div", { class: "sub" }, visible(place)), r.problem && h("div", { class: "problem" }, visible(r.problem))] },
      { name: "Protocol", cell: ({ r }) => r.protocol },
      { name: "Destinations", cell: destinations },
    ],
  });
}
