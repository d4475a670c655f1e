// A shell in an instance, or in the files of a crashed one.

import { protocols } from "../api.js";
import { h, render, announce } from "../dom.js";
import { liveApp, onLive } from "../stream.js";
import { visible } from "../format.js";
import { query, setQuery } from "../router.js";
import { canDevelop } from "../session.js";
import { appHead } from "./apphead.js";

let libraries = null;

function load() {
  libraries ||= Promise.all([import("../vendor/xterm.mjs"), import("../vendor/addon-fit.mjs"), stylesheet("../vendor/xterm.css")]).catch((err) => {
    libraries = null;
    throw err;
  });
  return libraries;
}

function stylesheet(name) {
  return new Promise((resolve, reject) => {
    const link = h("link", { rel: "stylesheet", href: new URL(name, import.meta.url).href });
    link.onload = resolve;
    link.onerror = () => reject(new Error("cannot load the styles of the terminal"));
    document.head.append(link);
  });
}

// withStyleSheets runs f while elements <style> that scripts create become constructed
// style sheets. The content security policy of the page forbids the former, and xterm.js
// uses them for its colours and sizes.
function withStyleSheets(f) {
  const create = Document.prototype.createElement;
  document.createElement = function createElement(name, ...rest) {
    if (String(name).toLowerCase() !== "style") return create.call(document, name, ...rest);
    const el = create.call(document, "template"); // takes no part in the layout
    const sheet = new CSSStyleSheet();
    document.adoptedStyleSheets.push(sheet);
    let text = "";
    Object.defineProperty(el, "textContent", { get: () => text, set: (value) => { text = value; sheet.replaceSync(value); } });
    Object.defineProperty(el, "sheet", { get: () => sheet });
    el.remove = () => {
      document.adoptedStyleSheets = document.adoptedStyleSheets.filter((s) => s !== sheet);
      Element.prototype.remove.call(el);
    };
    return el;
  };
  try {
    return f();
  } finally {
    delete document.createElement;
  }
}

const colors = {
  background: "#12161c", foreground: "#e4e9ef", cursor: "#7db8ff", selectionBackground: "#36506e",
  black: "#2d3641", red: "#ff9a90", green: "#6fd69a", yellow: "#f0bd62", blue: "#7db8ff", magenta: "#d7a3ee", cyan: "#66cfdc", white: "#d0d7df",
  brightBlack: "#8592a2", brightRed: "#ffb0a8", brightGreen: "#8fe5b3", brightYellow: "#ffd58a", brightBlue: "#a3ccff", brightMagenta: "#e8bdf8", brightCyan: "#8fe2ec", brightWhite: "#ffffff",
};

class Session {
  constructor(guid, target, screen, onChange) {
    Object.assign(this, { guid, target, screen, onChange, state: "connecting", text: "" });
  }

  async open() {
    const [{ Terminal }, { FitAddon }] = await load();
    if (this.closed) return;
    const before = new Set(document.adoptedStyleSheets);
    this.term = new Terminal({ fontFamily: 'ui-monospace, SFMono-Regular, Menlo, Consolas, "Liberation Mono", monospace', fontSize: 13, theme: colors, scrollback: 5000, screenReaderMode: false, cursorBlink: false });
    this.fit = new FitAddon();
    this.term.loadAddon(this.fit);
    withStyleSheets(() => this.term.open(this.screen));
    this.sheets = document.adoptedStyleSheets.filter((s) => !before.has(s));
    this.fit.fit();
    this.observer = new ResizeObserver(() => { if (this.screen.clientWidth) this.fit.fit(); });
    this.observer.observe(this.screen);
    this.term.onResize(({ cols, rows }) => this.send(JSON.stringify({ resize: { cols, rows } })));
    const encoder = new TextEncoder();
    this.term.onData((data) => this.send(encoder.encode(data)));
    this.term.onBinary((data) => this.send(Uint8Array.from(data, (c) => c.charCodeAt(0))));
    this.term.attachCustomKeyEventHandler((e) => this.key(e));
    this.connect();
    this.term.focus();
  }

  // key makes Ctrl+Shift+C and Ctrl+Shift+V copy and paste. Ctrl+C goes to the shell.
  key(e) {
    if (e.type !== "keydown" || !e.ctrlKey || !e.shiftKey) return true;
    if (e.code === "KeyC" && this.term.hasSelection()) {
      e.preventDefault();
      navigator.clipboard.writeText(this.term.getSelection()).catch(() => announce("The browser does not allow the page to use the clipboard", "error"));
      return false;
    }
    return e.code !== "KeyV"; // the browser sends a paste event
  }

  connect() {
    const q = new URLSearchParams({ process: this.target.process, index: this.target.index, cols: String(this.term.cols), rows: String(this.term.rows) });
    if (this.target.crash) q.set("crash", this.target.crash);
    const url = new URL(`/dew/v1/apps/${encodeURIComponent(this.guid)}/terminal?${q}`, location.href);
    url.protocol = url.protocol.replace("http", "ws");
    this.socket = new WebSocket(url, protocols());
    this.socket.binaryType = "arraybuffer";
    this.socket.onopen = () => this.set("open", "");
    this.socket.onmessage = (e) => (typeof e.data === "string" ? this.control(JSON.parse(e.data)) : this.term.write(new Uint8Array(e.data)));
    this.socket.onclose = () => { if (this.state !== "ended") this.set("ended", this.state === "open" ? "The connection to dewd was lost." : "Cannot open the terminal. The instance must be running, and you need the role SpaceDeveloper in this space."); };
  }

  control(message) {
    if (message.exit) this.set("ended", message.exit.status ? `The shell exited with status ${message.exit.status}.` : "The shell exited.");
    if (message.error) this.set("ended", typeof message.error === "string" ? message.error : message.error.detail || "The session failed.");
  }

  send(data) {
    if (this.socket && this.socket.readyState === WebSocket.OPEN) this.socket.send(data);
  }

  set(state, text) {
    this.state = state;
    this.text = text;
    this.onChange();
  }

  close() {
    this.closed = true;
    if (this.socket) {
      this.socket.onclose = null;
      this.socket.close();
    }
    if (this.observer) this.observer.disconnect();
    if (this.term) this.term.dispose();
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((s) => !(this.sheets || []).includes(s));
  }
}

export default function terminal(box, { guid }) {
  const target = { process: query("process") || "web", index: query("index") || "0", crash: query("crash") };
  let session = null;
  box.className = "view terminal";

  function draw() {
    const app = liveApp(guid);
    if (app) document.title = `Terminal of ${visible(app.name)} – dew`;
    const allowed = !app || canDevelop(app.space.guid);
    const key = `${target.process}/${target.index}`;
    const keys = [...new Set([...(app ? app.instances.map((i) => `${i.type}/${i.index}`) : []), key])];
    render(box, appHead(guid, app, "terminal"),
      h("div", { class: "tools" },
        h("label", {}, "Instance ", h("select", { onchange: (e) => choose(e.target.value) }, keys.map((k) => h("option", { value: k, selected: k === key }, k)))),
        target.crash && h("span", {}, `Files of crash ${visible(target.crash)} (1 is the newest). The processes of the app do not run here.`),
        h("span", { role: "status" }, session && session.state === "ended" ? visible(session.text) : session && session.state === "connecting" ? "Connecting" : ""),
        h("button", { onclick: open, disabled: !allowed }, session && session.state === "ended" ? "Open again" : "New session"),
        h("span", { class: "hint" }, "Copy: Ctrl+Shift+C, paste: Ctrl+Shift+V")),
      !allowed && h("p", { class: "problem" }, "You need the role SpaceDeveloper in this space to open a terminal."),
      h("div", { class: "screen", data: { keep: "", key: "screen" }, "aria-label": `Terminal in ${key}` }));
    if (!session && allowed && app) open();
  }

  function choose(key) {
    const at = key.lastIndexOf("/");
    Object.assign(target, { process: key.slice(0, at), index: key.slice(at + 1), crash: "" });
    setQuery(target);
    open();
  }

  function open() {
    if (session) session.close();
    const screen = box.querySelector(".screen");
    screen.replaceChildren();
    session = new Session(guid, { ...target }, screen, draw);
    session.open().catch((err) => announce(err.message, "error"));
    draw();
  }

  draw();
  const stop = onLive(draw);
  return () => {
    stop();
    if (session) session.close();
  };
}
