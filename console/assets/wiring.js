// Writes about services and routes, each with its confirmation.

import { send, list } from "./api.js";
import { h, dialog, announce } from "./dom.js";
import { visible } from "./format.js";
import { live } from "./stream.js";
import { canDevelop, canOperate } from "./session.js";
import { ask, run } from "./actions.js";

const to = (guid) => ({ data: { guid } });
const field = (label, control) => h("label", {}, h("span", {}, label), control);
const choices = (values, text) => values.map((v) => h("option", { value: v.guid }, visible(text(v))));

// read loads the lists of a dialog, or reports why it cannot.
async function read(...requests) {
  try {
    return await Promise.all(requests.map(([path, query]) => list(path, query)));
  } catch (err) {
    announce(err.message, "error");
    return null;
  }
}

// spacesOf returns the spaces of a response that pass, with the names of their orgs.
function spacesOf(found, allowed) {
  const orgs = new Map((found.included.organizations || []).map((o) => [o.guid, o.name]));
  return found.resources.filter((s) => allowed(s.guid)).map((s) => ({ guid: s.guid, name: `${orgs.get(s.relationships.organization.data.guid) || ""} / ${s.name}` }))
    .sort((a, b) => a.name.localeCompare(b.name));
}

const allSpaces = ["/v3/spaces", { include: "organization" }];

// appsIn returns the apps of a space by name.
export const appsIn = (space) => (live() ? live().resources.filter((a) => a.space.guid === space).sort((a, b) => a.name.localeCompare(b.name)) : []);

export async function createService() {
  const found = await read(allSpaces, ["/v3/service_plans", { include: "service_offering", available: "true" }]);
  if (!found) return false;
  const [spaces, plans] = [spacesOf(found[0], canDevelop), found[1]];
  if (!spaces.length || !plans.resources.length) {
    announce(spaces.length ? "No service plan is available. To register a service broker, type: dew create-service-broker" : "You need the role SpaceDeveloper in a space", "error");
    return false;
  }
  const offerings = new Map((plans.included.service_offerings || []).map((o) => [o.guid, o.name]));
  const named = plans.resources.map((p) => ({ guid: p.guid, name: `${offerings.get(p.relationships.service_offering.data.guid) || ""} ${p.name}${p.free ? "" : " (paid)"}` })).sort((a, b) => a.name.localeCompare(b.name));
  const answer = await dialog({ title: "Create a service instance", action: "Create", body: h("div", { class: "fields" },
    field("Name", h("input", { name: "name", required: true, maxlength: "250", autocomplete: "off" })),
    field("Offering and plan", h("select", { name: "plan" }, choices(named, (p) => p.name))),
    field("Space", h("select", { name: "space" }, choices(spaces, (s) => s.name)))) });
  if (!answer) return false;
  return run(`Created ${visible(answer.name)}`, () => send("POST", "/v3/service_instances",
    { type: "managed", name: answer.name, relationships: { space: to(answer.space), service_plan: to(answer.plan) } }));
}

export async function deleteService(instance) {
  if (!await ask(`Delete ${visible(instance.name)}?`, "dew deletes the service instance with all its data. You cannot undo this.", "Delete", true)) return false;
  return run(`Deleted ${visible(instance.name)}`, () => send("DELETE", `/v3/service_instances/${instance.guid}`));
}

export async function bindService(instance, bound) {
  const apps = appsIn(instance.relationships.space.data.guid).filter((a) => !bound.some((b) => b.guid === a.guid));
  if (!apps.length) {
    announce("All apps of the space are bound to this service instance", "error");
    return false;
  }
  const answer = await dialog({ title: `Bind ${visible(instance.name)} to an app`, action: "Bind", body: h("div", { class: "fields" },
    field("App", h("select", { name: "app" }, choices(apps, (a) => a.name))),
    h("p", { class: "hint" }, "The app gets the credentials when it is restaged.")) });
  if (!answer) return false;
  return run(`Bound ${visible(instance.name)}. To pass the credentials to the app: dew restage`, () => send("POST", "/v3/service_credential_bindings",
    { type: "app", relationships: { service_instance: to(instance.guid), app: to(answer.app) } }));
}

export async function unbindService(instance, app, binding) {
  if (!await ask(`Unbind ${visible(instance.name)} from ${visible(app.name)}?`, "dew deletes the credentials of the app. The data of the service instance stays.", "Unbind", true)) return false;
  return run(`Unbound ${visible(instance.name)} from ${visible(app.name)}`, () => send("DELETE", `/v3/service_credential_bindings/${binding}`));
}

export async function createRoute() {
  const found = await read(allSpaces, ["/v3/domains", {}]);
  if (!found) return false;
  const spaces = spacesOf(found[0], canOperate);
  const domains = found[1].resources.filter((d) => (d.supported_protocols || []).includes("http")).sort((a, b) => Number(a.internal) - Number(b.internal));
  if (!spaces.length || !domains.length) {
    announce(spaces.length ? "There is no domain" : "You need the role SpaceDeveloper or SpaceSupporter in a space", "error");
    return false;
  }
  const app = h("select", { name: "app" });
  const space = h("select", { name: "space", onchange: () => fill() }, choices(spaces, (s) => s.name));
  const fill = () => app.replaceChildren(h("option", { value: "" }, "none"), ...choices(appsIn(space.value), (a) => a.name));
  fill();
  const answer = await dialog({ title: "Create a route", action: "Create", body: h("div", { class: "fields" },
    field("Host name", h("input", { name: "host", required: true, maxlength: "63", autocomplete: "off" })),
    field("Domain", h("select", { name: "domain" }, choices(domains, (d) => d.name))),
    field("Path", h("input", { name: "path", placeholder: "/path, or empty", pattern: "/.+", title: "starts with /", autocomplete: "off" })),
    field("Space", space), field("App", app)) });
  if (!answer) return false;
  return run(`Created the route ${visible(answer.host)}`, async () => {
    const route = await send("POST", "/v3/routes", { host: answer.host, ...(answer.path ? { path: answer.path } : {}), relationships: { domain: to(answer.domain), space: to(answer.space) } });
    if (answer.app) await send("POST", `/v3/routes/${route.guid}/destinations`, { destinations: [{ app: { guid: answer.app } }] });
  });
}

export async function mapRoute(route) {
  const apps = appsIn(route.relationships.space.data.guid);
  if (!apps.length) {
    announce("The space of the route has no apps", "error");
    return false;
  }
  const types = h("select", { name: "type" });
  const app = h("select", { name: "app", onchange: () => fill() }, choices(apps, (a) => a.name));
  const fill = () => {
    const chosen = apps.find((a) => a.guid === app.value);
    const known = [...new Set(["web", ...chosen.instances.map((i) => i.type)])];
    types.replaceChildren(...known.map((t) => h("option", { value: t }, t)));
  };
  fill();
  const answer = await dialog({ title: `Map ${visible(route.url)} to an app`, action: "Map", body: h("div", { class: "fields" },
    field("App", app), field("Process", types),
    field("Port", h("input", { type: "number", name: "port", min: "1", max: "65535", placeholder: route.protocol === "tcp" ? "8080" : "the app's port" })),
    h("p", { class: "hint" }, "A port of a sidecar works as well. dew opens a new port after the next restart of the app.")) });
  if (!answer) return false;
  return run(`Mapped ${visible(route.url)}`, () => send("POST", `/v3/routes/${route.guid}/destinations`,
    { destinations: [{ app: { guid: answer.app, process: { type: answer.type } }, ...(answer.port ? { port: Number(answer.port) } : {}) }] }));
}

export async function unmapRoute(route, destination, name) {
  if (!await ask(`Remove ${visible(name)} from ${visible(route.url)}?`, "Requests to the route no longer reach this app. The route and the app stay.", "Remove")) return false;
  return run(`Removed ${visible(name)} from ${visible(route.url)}`, () => send("DELETE", `/v3/routes/${route.guid}/destinations/${destination.guid}`));
}

export async function deleteRoute(route) {
  if (!await ask(`Delete the route ${visible(route.url)}?`, "Requests to it get status 404. The apps stay.", "Delete", true)) return false;
  return run(`Deleted ${visible(route.url)}`, () => send("DELETE", `/v3/routes/${route.guid}`));
}
