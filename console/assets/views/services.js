// Service instances and their bindings.

import { h, stateBadge } from "../dom.js";
import { list } from "../api.js";
import { ago, dateTime, plural, visible } from "../format.js";
import { appHref } from "../router.js";
import { tablePage } from "./table.js";

async function load() {
  const [instances, bindings] = await Promise.all([
    list("/v3/service_instances", { "fields[service_plan]": "name,guid", "fields[service_plan.service_offering]": "name,guid", "fields[space]": "name,guid", "fields[space.organization]": "name,guid" }),
    list("/v3/service_credential_bindings", { type: "app", include: "app" }),
  ]);
  const byGuid = (kind) => new Map((instances.included[kind] || []).map((x) => [x.guid, x]));
  const plans = byGuid("service_plans");
  const offerings = byGuid("service_offerings");
  const spaces = byGuid("spaces");
  const orgs = byGuid("organizations");
  const apps = new Map((bindings.included.apps || []).map((a) => [a.guid, a]));
  const rows = instances.resources.map((i) => {
    const plan = i.relationships.service_plan && i.relationships.service_plan.data && plans.get(i.relationships.service_plan.data.guid);
    const offering = plan && plan.relationships && offerings.get(plan.relationships.service_offering.data.guid);
    const space = spaces.get(i.relationships.space.data.guid);
    const org = space && space.relationships && orgs.get(space.relationships.organization.data.guid);
    return {
      i, plan, offering, place: space ? `${org ? `${org.name} / ` : ""}${space.name}` : "",
      apps: bindings.resources.filter((b) => b.relationships.service_instance.data.guid === i.guid).map((b) => apps.get(b.relationships.app.data.guid)).filter(Boolean),
    };
  });
  return { rows, note: plural(rows.length, "service instance") };
}

const kinds = { succeeded: "good", failed: "bad", "in progress": "wait", initial: "wait" };

export default function services(box) {
  return tablePage(box, {
    title: "Services", load, key: (r) => r.i.guid, textOf: (r) => [r.i.name, r.place, r.offering ? r.offering.name : r.i.type, ...r.apps.map((a) => a.name)].join(" "),
    none: ["There is no service instance. To list the available services, then create one, type:", "dew marketplace", "dew create-service OFFERING PLAN NAME"],
    columns: [
      { name: "Service instance", cell: (r) => [h("span", { class: "name" }, visible(r.i.name)), h("div", { class: "sub" }, visible(r.place))] },
      { name: "Offering", cell: (r) => (r.offering ? `${visible(r.offering.name)} ${visible(r.plan.name)}` : "user-provided") },
      { name: "Last operation", cell: (r) => [stateBadge(`${r.i.last_operation.type} ${r.i.last_operation.state}`, kinds[r.i.last_operation.state] || "off"), h("div", { class: "sub", title: dateTime(r.i.last_operation.updated_at) }, visible(r.i.last_operation.description || ""), " ", ago(r.i.last_operation.updated_at))] },
      { name: "Bound apps", cell: (r) => (r.apps.length ? r.apps.map((a, n) => [n ? ", " : "", h("a", { href: appHref(a.guid) }, visible(a.name))]) : h("span", { class: "none" }, "–")) },
    ],
  });
}
