// Routes and their destinations.

import { h } from "../dom.js";
import { list } from "../api.js";
import { plural, visible } from "../format.js";
import { live } from "../stream.js";
import { appHref } from "../router.js";
import { canOperate, canOperateSome, routeURL } from "../session.js";
import { createRoute, deleteRoute, mapRoute, unmapRoute } from "../wiring.js";
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

const may = (x) => canOperate(x.r.relationships.space.data.guid);

function destinations(x, refresh) {
  const { r, apps } = x;
  if (!r.destinations.length) return h("span", { class: "none" }, "none: requests get status 404");
  return r.destinations.map((d) => {
    const app = apps.get(d.app.guid);
    const name = app ? app.name : d.app.guid;
    return h("div", { class: "line wrap", data: { key: d.guid } }, h("span", {}, app ? h("a", { href: appHref(d.app.guid) }, visible(name)) : visible(name), ` ${d.app.process.type}, port ${d.port}, ${d.protocol || r.protocol}`,
      d.weight ? `, weight ${d.weight}` : ""), d.pending && h("span", { class: "state wait" }, "pending until restart"),
    may(x) && h("button", { class: "link", "aria-label": `Remove ${visible(name)} from ${visible(r.url)}`, onclick: () => unmapRoute(r, d, name).then(refresh) }, "Remove"));
  });
}

export default function routes(box) {
  return tablePage(box, {
    title: "Routes", load, key: (x) => x.r.guid, textOf: (x) => [x.r.url, x.place, ...x.r.destinations.map((d) => (x.apps.get(d.app.guid) || { name: "" }).name)].join(" "),
    none: ["There is no route. To add one to an app, type:", "dew map-route APP DOMAIN --hostname HOST"],
    tools: (refresh) => h("button", { class: "primary", disabled: !canOperateSome(), title: canOperateSome() ? null : "You need the role SpaceDeveloper or SpaceSupporter in a space", onclick: () => createRoute().then(refresh) }, "Create a route"),
    columns: [
      { name: "Route", cell: ({ r, place }) => [r.protocol === "http" ? h("a", { class: "name", href: routeURL(r.url), target: "_blank", rel: "noopener noreferrer" }, visible(r.url)) : h("span", { class: "name" }, visible(r.url)), h("div", { class: "sub" }, visible(place)), r.problem && h("div", { class: "problem" }, visible(r.problem))] },
      { name: "Protocol", cell: ({ r }) => r.protocol },
      { name: "Destinations", cell: destinations },
      {
        name: "Actions", class: "act", cell: (x, refresh) => h("div", { class: "line" },
          h("button", { disabled: !may(x), "aria-label": `Map ${visible(x.r.url)}`, onclick: () => mapRoute(x.r).then(refresh) }, "Map"),
          h("button", { disabled: !may(x), "aria-label": `Delete ${visible(x.r.url)}`, onclick: () => deleteRoute(x.r).then(refresh) }, "Delete")),
      },
    ],
  });
}
