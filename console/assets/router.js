// Client-side routes below /console.

const base = "/console";

// match finds the route of a path. Patterns are such as /apps/:guid/logs.
export function match(routes, path) {
  const parts = path.replace(/\/+$/, "").split("/");
  for (const route of routes) {
    const want = route.pattern.replace(/\/+$/, "").split("/");
    if (want.length !== parts.length) continue;
    const params = {};
    if (want.every((w, i) => (w.startsWith(":") ? decode(parts[i], (v) => { params[w.slice(1)] = v; }) : w === parts[i]))) return { route, params };
  }
  return null;
}

function decode(text, set) {
  try {
    set(decodeURIComponent(text));
    return text !== "";
  } catch {
    return false;
  }
}

// path returns the route in the address bar, without the prefix.
export const path = () => (location.pathname.startsWith(base) ? location.pathname.slice(base.length) || "/" : "/");

// href returns the address of a route.
export const href = (route) => base + route;

// appHref returns the address of a page of an app.
export const appHref = (guid, page = "") => href(`/apps/${encodeURIComponent(guid)}${page ? `/${page}` : ""}`);

let changed = () => {};

// go changes to a route.
export function go(route) {
  if (href(route) !== location.pathname + location.search) history.pushState(null, "", href(route));
  changed();
}

// setQuery changes the query of the address without a new entry in the history.
export function setQuery(values) {
  const q = new URLSearchParams(location.search);
  for (const [k, v] of Object.entries(values)) {
    if (v === "" || v === null || v === undefined) q.delete(k);
    else q.set(k, v);
  }
  const text = q.toString();
  history.replaceState(history.state, "", location.pathname + (text ? `?${text}` : ""));
}

// query returns a parameter of the address.
export const query = (name) => new URLSearchParams(location.search).get(name) || "";

// listen calls f when the route changes, and turns links into route changes.
export function listen(f) {
  changed = f;
  addEventListener("popstate", f);
  document.addEventListener("click", (e) => {
    const a = e.target.closest && e.target.closest("a[href]");
    if (!a || e.defaultPrevented || e.button !== 0 || e.ctrlKey || e.metaKey || e.shiftKey || e.altKey || a.target || a.hasAttribute("download")) return;
    const url = new URL(a.href);
    if (url.origin !== location.origin || !(url.pathname === base || url.pathname.startsWith(`${base}/`))) return;
    e.preventDefault();
    go(url.pathname.slice(base.length) + url.search);
  });
}
