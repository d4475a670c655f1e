// The user of the page and their permissions.

import { get, list } from "./api.js";

let session = null;
let writable = new Set(); // guids of spaces
let developable = new Set();

// load reads the session.
export async function load() {
  session = await get("/dew/v1/console/session");
  if (session.admin || !session.user) return session;
  const roles = await list("/v3/roles", { user_guids: session.user.guid, types: "space_developer,space_supporter" });
  const spaces = (type) => roles.resources.filter((r) => !type || r.type === type).map((r) => r.relationships.space.data.guid);
  writable = new Set(spaces());
  developable = new Set(spaces("space_developer"));
  return session;
}

export const current = () => session;

// routeURL returns the address of a route for the browser, or null if it has none. Routes
// have no port of their own: the router's port applies.
export function routeURL(route) {
  let url = route;
  if (!/^https?:\/\//.test(route)) {
    const router = session && URL.canParse(session.router) ? new URL(session.router) : new URL("http://localhost");
    const [, host, rest] = /^([^/]*)(.*)$/s.exec(route);
    url = `${router.protocol}//${host}${host.includes(":") || !router.port ? "" : `:${router.port}`}${rest}`;
  }
  return URL.canParse(url) && /^https?:$/.test(new URL(url).protocol) ? url : null;
}
export const isAdmin = () => Boolean(session && session.admin);
// canOperate reports whether the user can start, stop and scale apps of a space.
export const canOperate = (space) => isAdmin() || writable.has(space);
// canOperateSome and canDevelopSome report whether there is such a space.
export const canOperateSome = () => isAdmin() || writable.size > 0;
export const canDevelopSome = () => isAdmin() || developable.size > 0;
// canDevelop reports whether the user can delete apps of a space and open a shell.
export const canDevelop = (space) => isAdmin() || developable.has(space);
