// The head of all pages of an app: name, state, actions and tabs.

import { h, stateBadge } from "../dom.js";
import { visible } from "../format.js";
import { appHref, go, href } from "../router.js";
import { routeURL } from "../session.js";
import { appState, buttons } from "./apps.js";

const tabs = [["", "Overview"], ["logs", "Logs"], ["crashes", "Crashes"], ["terminal", "Terminal"]];

// appHead draws the head. app is the live state, or undefined if it is not known.
export function appHead(guid, app, tab) {
  return [
    h("div", { class: "apphead" },
      h("div", {},
        h("div", { class: "title" }, h("h1", {}, app ? visible(app.name) : "App"), app && stateBadge(...appState(app))),
        app && h("div", { class: "sub" }, h("a", { href: href(`/?org=${encodeURIComponent(app.space.org_name)}`) }, visible(app.space.org_name)), " / ",
          h("a", { href: href(`/?org=${encodeURIComponent(app.space.org_name)}&space=${encodeURIComponent(app.space.name)}`) }, visible(app.space.name)),
          (app.routes || []).map((url) => ["  ·  ", h("a", { href: routeURL(url), target: "_blank", rel: "noopener noreferrer" }, visible(url.replace(/^https?:\/\//, "")))]))),
      app && buttons(app, (what) => { if (what === "Delete") go("/"); })),
    h("nav", { class: "tabs", "aria-label": "Pages of the app" }, tabs.map(([path, name]) => h("a", { href: appHref(guid, path), "aria-current": path === tab ? "page" : null }, name))),
  ];
}
