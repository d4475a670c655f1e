// Service instances and their bindings.

import { h, stateBadge } from "../dom.js";
import { list } from "../api.js";
import { ago, dateTime, plural, visible } from "../format.js";
import { appHref } from "../router.js";
import { canDevelop, canDevelopSome, canOperate } from "../session.js";
import { bindService, createService, deleteService, unbindService } from "../wiring.js";
import { tablePage } from "./table.js";

const fields = {
  "fields[service_plan]": "name,guid,relationships.service_offering", "fields[service_plan.service_offering]": "name,guid",
  "fields[space]": "name,guid,relationships.organization", "fields[space.organization]": "name,guid",
};

async function load() {
  const [instances, bindings] = await Promise.all([
    list("/v3/service_instances", fields), list("/v3/service_credential_bindings", { type: "app", include: "app" }),
  ]);
  const byGuid = (kind) => new Map((instances.included[kind] || []).map((x) => [x.guid, x]));
  const [plans, offerings, spaces, orgs] = ["service_plans", "service_offerings", "spaces", "organizations"].map(byGuid);
  const apps = new Map((bindings.included.apps || []).map((a) => [a.guid, a]));
  const related = (from, name, map) => from && from.relationships && from.relationships[name] && from.relationships[name].data && map.get(from.relationships[name].data.guid);
  const rows = instances.resources.map((i) => {
    const plan = related(i, "service_plan", plans);
    const space = related(i, "space", spaces);
    const org = related(space, "organization", orgs);
    return {
      i, plan, offering: related(plan, "service_offering", offerings), place: space ? `${org ? `${org.name} / ` : ""}${space.name}` : "",
      bound: bindings.resources.filter((b) => b.relationships.service_instance.data.guid === i.guid).map((b) => ({ guid: b.guid, app: related(b, "app", apps) })).filter((b) => b.app),
    };
  });
  return { rows, note: plural(rows.length, "service instance") };
}

const kinds = { succeeded: "good", failed: "bad", "in progress": "wait", initial: "wait" };

const space = (r) => r.i.relationships.space.data.guid;

function boundApps(r, refresh) {
  if (!r.bound.length) return h("span", { class: "none" }, "none");
  return r.bound.map((b) => h("div", { class: "line", data: { key: b.guid } }, h("a", { href: appHref(b.app.guid) }, visible(b.app.name)),
    canOperate(space(r)) && h("button", { class: "link", "aria-label": `Unbind ${visible(r.i.name)} from ${visible(b.app.name)}`, onclick: () => unbindService(r.i, b.app, b.guid).then(refresh) }, "Unbind")));
}

const offering = (r) => (r.i.type === "user-provided" ? "user-provided" : r.offering ? `${visible(r.offering.name)} ${visible(r.plan.name)}` : "managed");

export default function services(box) {
  return tablePage(box, {
    title: "Services", load, key: (r) => r.i.guid, textOf: (r) => [r.i.name, r.place, offering(r), ...r.bound.map((b) => b.app.name)].join(" "),
    none: ["There is no service instance. To list the available services, then create one, type:", "dew marketplace", "dew create-service OFFERING PLAN NAME"],
    tools: (refresh) => h("button", { class: "primary", disabled: !canDevelopSome(), title: canDevelopSome() ? null : "You need the role SpaceDeveloper in a space", onclick: () => createService().then(refresh) }, "Create a service instance"),
    columns: [
      { name: "Service instance", cell: (r) => [h("span", { class: "name" }, visible(r.i.name)), h("div", { class: "sub" }, visible(r.place))] },
      { name: "Offering", cell: offering },
      { name: "Last operation", cell: (r) => [stateBadge(`${r.i.last_operation.type} ${r.i.last_operation.state}`, kinds[r.i.last_operation.state] || "off"), h("div", { class: "sub", title: dateTime(r.i.last_operation.updated_at) }, ago(r.i.last_operation.updated_at), r.i.last_operation.state === "failed" && r.i.last_operation.description ? `: ${visible(r.i.last_operation.description)}` : "")] },
      { name: "Bound apps", cell: boundApps },
      {
        name: "Actions", class: "act", cell: (r, refresh) => h("div", { class: "line" },
          h("button", { disabled: !canOperate(space(r)), "aria-label": `Bind ${visible(r.i.name)}`, onclick: () => bindService(r.i, r.bound.map((b) => b.app)).then(refresh) }, "Bind"),
          h("button", { disabled: !canDevelop(space(r)), "aria-label": `Delete ${visible(r.i.name)}`, onclick: () => deleteService(r.i).then(refresh) }, "Delete")),
      },
    ],
  });
}
