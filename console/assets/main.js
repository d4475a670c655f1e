// The shell of the console: navigation, shortcuts, the connection, and the routes.

import { h, render, announce } from "./dom.js";
import { whenLoggedOut, send, setToken, ApiError } from "./api.js";
import * as stream from "./stream.js";
import * as router from "./router.js";
import * as session from "./session.js";
import { visible } from "./format.js";

const view = (name) => () => import(`./views/${name}.js`);

const routes = [
  { pattern: "/", name: "Apps", view: view("apps"), nav: "/" },
  { pattern: "/apps/:guid", name: "App", view: view("app"), nav: "/" },
  { pattern: "/apps/:guid/logs", name: "Logs", view: view("logs"), nav: "/" },
  { pattern: "/apps/:guid/crashes", name: "Crashes", view: view("crashes"), nav: "/" },
  { pattern: "/apps/:guid/terminal", name: "Terminal", view: view("terminal"), nav: "/" },
  { pattern: "/crashes", name: "Crashes", view: view("crashes"), nav: "/crashes" },
  { pattern: "/services", name: "Services", view: view("services"), nav: "/services" },
  { pattern: "/routes", name: "Routes", view: view("routes"), nav: "/routes" },
  { pattern: "/events", name: "Events", view: view("events"), nav: "/events" },
  { pattern: "/inbox", name: "Inbox", view: view("inbox"), nav: "/inbox" },
  { pattern: "/inbox/:id", name: "Mail", view: view("inbox"), nav: "/inbox" },
  { pattern: "/preview", name: "Preview", view: view("preview"), nav: "/inbox" },
  { pattern: "/sessions", name: "Sessions", view: view("sessions"), nav: "/sessions" },
  { pattern: "/daemon", name: "Daemon", view: view("daemon"), nav: "/daemon" },
];

const pages = [
  { path: "/", name: "Apps", key: "a" },
  { path: "/crashes", name: "Crashes", key: "c" },
  { path: "/services", name: "Services", key: "s" },
  { path: "/routes", name: "Routes", key: "r" },
  { path: "/events", name: "Events", key: "e" },
  { path: "/inbox", name: "Inbox", key: "i", admin: true },
  { path: "/daemon", name: "Daemon", key: "d", admin: true },
];

let nav = "/";
let leave = null; // ends the present view
let turn = 0; // counts the route changes

const shown = () => pages.filter((p) => !p.admin || session.isAdmin());

function drawShell() {
  const s = session.current();
  render(document.getElementById("shell"),
    h("div", { class: "banner", id: "away", role: "status", hidden: stream.connection() !== "away" },
      "dewd is away. This page reconnects by itself. If dewd does not come back: ", h("code", {}, "dew status")),
    h("header", { class: "top" },
      h("a", { class: "brand", href: router.href("/"), "aria-label": "dew console: apps" },
        h("span", { class: "drop", "aria-hidden": "true" }), "dew"),
      h("nav", { "aria-label": "Pages" }, shown().map((p) => h("a", { href: router.href(p.path), "aria-current": nav === p.path ? "page" : null }, p.name))),
      h("div", { class: "who" },
        h("span", { class: `link ${stream.connection()}`, title: { open: "Live: updates arrive every second", away: "dewd is away", connecting: "Connecting" }[stream.connection()] },
          h("span", { class: "dot", "aria-hidden": "true" }), { open: "live", away: "away", connecting: "connecting" }[stream.connection()]),
        s && s.user && h("a", { class: "user", href: router.href("/sessions"), "aria-current": nav === "/sessions" ? "page" : null, title: `Sessions of the console (${s.admin ? "administrator" : "user"})` }, visible(s.user.name || s.user.username || "")),
        s && s.session_id && h("button", { class: "plain", onclick: logOut }, "Log out"),
        h("button", { class: "plain", onclick: switchTheme, "aria-label": "Switch between light and dark", title: "Switch between light and dark" }, "◐"),
        h("button", { class: "plain", onclick: showHelp, "aria-label": "Keyboard shortcuts", title: "Keyboard shortcuts (?)" }, "?"))),
    h("main", { id: "main", tabindex: "-1", data: { keep: "" } }));
}

async function show() {
  const mine = ++turn;
  if (leave) leave();
  leave = null;
  const found = router.match(routes, router.path());
  nav = found ? found.route.nav : "";
  drawShell();
  const main = document.getElementById("main");
  if (!found) {
    document.title = "Not found – dew";
    main.replaceChildren(h("h1", {}, "Page not found"), h("p", {}, h("a", { href: router.href("/") }, "Show all apps")));
    return;
  }
  document.title = `${found.route.name} – dew`;
  try {
    const module = await found.route.view();
    if (mine !== turn) return;
    main.replaceChildren();
    const box = h("div", { class: "view" });
    main.append(box);
    leave = module.default(box, found.params) || null;
  } catch (err) {
    if (mine !== turn) return;
    main.replaceChildren(h("h1", {}, found.route.name), h("p", { class: "problem", role: "alert" },
      err instanceof ApiError ? err.message : `Cannot show this page: ${err.message}`));
  }
  scrollTo(0, 0);
}

function switchTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  try {
    localStorage.setItem("dew-theme", root.dataset.theme);
  } catch { /* the choice lasts until the page is closed */ }
  dispatchEvent(new Event("themechange"));
}

function showHelp() {
  if (document.querySelector("dialog[open]")) return;
  const keys = [
    ["/", "Search on this page"],
    ...shown().map((p) => [`g ${p.key}`, `Show ${p.name.toLowerCase()}`]),
    ["g o", "Show the overview of this app"], ["g l", "Show the logs of this app"], ["g x", "Show the crashes of this app"], ["g t", "Open a terminal of this app"],
    ["t", "Switch between light and dark"], ["?", "Show this help"], ["Esc", "Close a dialog, leave a field"],
  ];
  const box = h("dialog", { "aria-labelledby": "help-title" },
    h("h2", { id: "help-title" }, "Keyboard shortcuts"),
    h("dl", { class: "keys" }, keys.map(([k, what]) => [h("dt", {}, k.split(" ").map((x) => [h("kbd", {}, x), " "])), h("dd", {}, what)])),
    h("form", { method: "dialog", class: "actions" }, h("button", { class: "primary" }, "Close")));
  box.addEventListener("close", () => box.remove());
  document.body.append(box);
  box.showModal();
}

let prefix = 0; // when g was pressed

function shortcut(e) {
  if (e.ctrlKey || e.metaKey || e.altKey || document.querySelector("dialog[open]")) return;
  const field = e.target.closest && e.target.closest("input, textarea, select, .xterm");
  if (field) {
    if (e.key === "Escape" && !field.classList.contains("xterm")) field.blur();
    return;
  }
  const after = performance.now() - prefix < 1500;
  prefix = 0;
  if (after && goTo(e.key)) return e.preventDefault();
  if (e.key === "g") prefix = performance.now();
  else if (e.key === "t") switchTheme();
  else if (e.key === "?") showHelp();
  else if (e.key === "/") {
    const search = document.querySelector("main input[type=search]");
    if (search) {
      e.preventDefault();
      search.focus();
      search.select();
    }
  }
}

function goTo(key) {
  const page = shown().find((p) => p.key === key);
  if (page) return router.go(page.path), true;
  const own = { o: "", l: "logs", x: "crashes", t: "terminal" }[key];
  if (own === undefined) return false;
  const guid = (/^\/apps\/([^/]+)/.exec(router.path()) || [])[1];
  if (guid) router.go(`/apps/${guid}${own ? `/${own}` : ""}`);
  else announce("Open an app first, then press this shortcut");
  return true;
}

async function logOut() {
  try {
    await send("POST", router.href("/logout"));
    setToken("");
    loggedOut("You have logged out.");
  } catch (err) {
    announce(err.message, "error");
  }
}

function loggedOut(why) {
  stream.stop();
  if (leave) leave();
  leave = null;
  document.getElementById("shell").replaceChildren(h("main", { id: "main", class: "logged-out" },
    h("h1", {}, "You are not logged in"),
    h("p", { class: "problem" }, why),
    h("p", {}, "To log in, run this command and open the link that it prints:"),
    h("p", {}, h("code", {}, "dew console"))));
}

// logIn exchanges the code of a link for a session. The code is in the fragment, so that
// no server and no proxy logs it.
async function logIn() {
  const code = location.hash.slice(1);
  history.replaceState(null, "", router.href("/"));
  const response = await fetch(router.href("/login"), { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ code }) });
  const body = await response.json().catch(() => null);
  if (response.ok && body) {
    setToken(body.csrf_token);
    return true;
  }
  loggedOut(body && body.errors ? body.errors[0].detail : "This link does not work.");
  return false;
}

async function begin() {
  if (router.path() === "/login" && location.hash && !await logIn()) return;
  whenLoggedOut(() => loggedOut("The session of this page has ended."));
  stream.start(); // at the same time as the session, so that the first view is early
  for (;;) {
    try {
      await session.load();
      break;
    } catch (err) {
      if (err.status === 401) return;
      document.getElementById("shell").replaceChildren(h("div", { class: "banner", role: "status" }, `${err.message}. This page tries again by itself.`));
      await new Promise((done) => setTimeout(done, 1000));
    }
  }
  document.getElementById("shell").replaceChildren();
  let known = true; // the session was just read
  stream.onConnection((status) => {
    drawShell();
    if (status === "away") known = false;
    if (status === "open" && !known) session.load().then(drawShell, () => {});
  });
  stream.onFailure(() => session.load().catch(() => {})); // finds out whether the session has ended
  addEventListener("keydown", shortcut);
  document.addEventListener("click", (e) => {
    for (const menu of document.querySelectorAll("details.menu[open]")) if (!menu.contains(e.target) || e.target.closest(".items")) menu.open = false;
  });
  document.addEventListener("keydown", (e) => {
    if (e.key === "Escape") for (const menu of document.querySelectorAll("details.menu[open]")) menu.open = false;
  });
  router.listen(show);
  await show();
}

sessionStorage.removeItem("dew.reloads"); // see theme.js: all scripts are here
begin();
