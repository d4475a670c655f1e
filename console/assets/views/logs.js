// The log of one app: live and history.

import { h, render, announce, copy } from "../dom.js";
import { list } from "../api.js";
import { liveApp, onLive, onConnection } from "../stream.js";
import { bytes, dateTime, number, plural, sourceName, visible } from "../format.js";
import { plain } from "../ansi.js";
import { appHref, query, setQuery } from "../router.js";
import { read, timeOf } from "../loglines.js";
import { LineWindow } from "../virtual.js";
import { LogView, group } from "../logview.js";
import { expression, narrow, predicate } from "../logfilter.js";
import { appHead } from "./apphead.js";

const pageSize = 2000; // lines of one request for history
const maxDownload = 256 * 1024 * 1024;
const wrapKey = "dew-wrap";

// wrapChosen returns whether lines wrap: as chosen, otherwise on narrow screens.
function wrapChosen() {
  const chosen = localStorage.getItem(wrapKey);
  return chosen ? chosen === "true" : matchMedia("(max-width: 760px)").matches;
}

class LogPage {
  constructor(box, guid) {
    Object.assign(this, { box, guid });
    this.window = new LineWindow();
    this.groups = new Set(query("source") ? query("source").split(",") : []);
    this.known = new Set(["router", "staging", "platform"]);
    this.text = query("q");
    this.instance = query("instance");
    this.re = null;
    this.problem = "";
    this.paused = false;
    this.chosen = null;
    this.following = null; // the AbortController of the open stream
    this.loading = false;
    this.retry = 0;
    this.received = 0;
    this.view = new LogView(this.window, {
      onTop: () => this.older(), onBottom: () => this.newer(), onChoose: (line) => this.choose(line), colorOf: (g) => this.color(g),
    });
    this.view.onPin = () => this.draw();
    this.view.setWrap(wrapChosen());
    this.visibility = () => (document.hidden ? this.stop() : this.resume());
    document.addEventListener("visibilitychange", this.visibility);
    this.setText(this.text);
  }

  // color returns the class with the colour of a source group.
  color(g) {
    if (g === "router" || g === "staging" || g === "platform" || g === "task") return `src-${g}`;
    const i = g.indexOf("/SIDECAR/");
    if (i < 0) return "c0";
    const sidecars = [...this.known].filter((k) => k.includes("/SIDECAR/")).map((k) => k.split("/SIDECAR/")[1]).sort();
    return `c${1 + (Math.max(0, sidecars.indexOf(g.slice(i + 9))) % 4)}`;
  }

  async start() {
    this.draw();
    try {
      const processes = (await list(`/v3/apps/${encodeURIComponent(this.guid)}/processes`)).resources;
      await Promise.all(processes.map(async (p) => {
        this.known.add(p.type.toUpperCase());
        for (const s of (await list(`/v3/apps/${encodeURIComponent(this.guid)}/processes/${encodeURIComponent(p.type)}/sidecars`)).resources) this.known.add(`${p.type.toUpperCase()}/SIDECAR/${s.name.toUpperCase()}`);
      }));
    } catch { /* the sources appear with their first line */ }
    const line = Number(query("line"));
    const since = query("since");
    if (line > 0) await this.jumpToLine(line);
    else if (since) await this.jumpToTime(since);
    else this.reload();
    this.draw();
  }

  setText(text) {
    this.text = text;
    try {
      this.re = expression(text);
      this.problem = "";
    } catch (err) {
      this.problem = err.message;
      return false;
    }
    this.view.highlight = this.re;
    return true;
  }

  query() {
    return { ...narrow(this.groups), ...(this.instance === "" ? {} : { instance: this.instance }) };
  }

  passes() {
    return predicate(this.groups, this.re, this.instance);
  }

  // reload shows the newest lines, and follows.
  reload() {
    this.stop();
    this.window.clear();
    this.view.pinned = true;
    this.view.reset();
    // A filter in the page can drop most lines, so that it needs more of them.
    this.follow({ newest: this.re || this.groups.size > 1 ? 20000 : pageSize });
  }

  // follow reads from a position, and then all new lines.
  async follow(position) {
    const abort = new AbortController();
    this.following = abort;
    const passes = this.passes();
    let limit = this.view.pinned ? Infinity : pageSize * 2;
    try {
      await read(this.guid, { ...this.query(), ...position, follow: "true" }, {
        signal: abort.signal,
        onOpen: () => { this.retry = 0; this.draw(); },
        onLines: (lines) => {
          if (abort.signal.aborted) return false;
          this.received += lines.length;
          this.last = lines[lines.length - 1].seq;
          const passed = lines.filter(passes);
          this.learn(passed);
          if (this.view.pinned) limit = Infinity;
          else limit -= passed.length;
          const removed = this.window.append(passed);
          this.view.shifted(-removed);
          if (limit > 0) return true;
          this.window.atEnd = false; // the user reads older lines: do not read on
          this.following = null;
          this.draw();
          return false;
        },
      });
      if (this.following === abort) this.again();
    } catch (err) {
      if (err.name === "AbortError" || this.following !== abort) return;
      if (err.status >= 400 && err.status < 500) {
        this.following = null;
        this.problem = err.message;
        this.draw();
        return;
      }
      this.again();
    }
  }

  // again reconnects after the last line.
  again() {
    this.following = null;
    this.retry = Math.min(this.retry ? this.retry * 1.5 : 500, 3000);
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.resume(), this.retry);
    this.draw();
  }

  resume() {
    clearTimeout(this.timer);
    if (this.left || this.following || this.paused || document.hidden || !this.window.atEnd) return;
    if (this.last) this.follow({ from: this.last + 1 });
    else this.follow({ newest: pageSize });
    this.draw();
  }

  stop() {
    clearTimeout(this.timer);
    if (this.following) this.following.abort();
    this.following = null;
  }

  // older reads the lines before the oldest one.
  async older() {
    if (this.loading || !this.window.lines.length || this.window.atStart) return;
    this.loading = true;
    const passes = this.passes();
    let until = timeOf(this.window.lines[0]);
    try {
      for (let tries = 0, found = 0; tries < 10 && found < 200; tries++) {
        const lines = [];
        await read(this.guid, { ...this.query(), newest: pageSize, until, follow: "false" }, { onLines: (l) => { lines.push(...l); } });
        if (this.left) return;
        const passed = lines.filter((l) => passes(l));
        found += passed.length;
        const added = this.window.prepend(passed);
        if (!this.window.atEnd) this.stop();
        this.learn(passed);
        this.view.shifted(added);
        if (lines.length < pageSize) {
          this.window.atStart = true;
          break;
        }
        until = timeOf(lines[0]);
      }
    } catch (err) {
      if (err.status) announce(err.message, "error");
    } finally {
      this.loading = false;
      this.draw();
    }
  }

  // newer reads the lines after the newest one that the page has.
  newer() {
    if (this.following || this.loading || this.paused) return;
    this.window.atEnd = true;
    const lines = this.window.lines;
    this.follow({ from: lines.length ? lines[lines.length - 1].seq + 1 : 1 });
    this.draw();
  }

  async jumpToLine(seq) {
    this.stop();
    this.window.clear();
    this.view.pinned = false;
    this.view.reset();
    this.view.chosen = seq;
    this.follow({ from: Math.max(1, seq - 300) });
    await this.until(() => this.window.lines.some((l) => l.seq >= seq));
    this.view.showLine(seq);
    const line = this.window.lines[this.window.indexOf(seq)];
    if (line) this.choose(line);
  }

  async jumpToTime(time) {
    const at = new Date(time);
    if (Number.isNaN(at.getTime())) return;
    this.stop();
    this.window.clear();
    this.view.pinned = false;
    this.view.reset();
    const before = [];
    await read(this.guid, { ...this.query(), newest: 200, until: at.toISOString(), follow: "false" }, { onLines: (l) => { before.push(...l); } }).catch(() => {});
    this.window.append(before.filter(this.passes()));
    this.follow({ since: at.toISOString() });
    await this.until(() => this.window.lines.some((l) => l.ms >= at.getTime()));
    const line = this.window.lines.find((l) => l.ms >= at.getTime());
    if (line) this.view.showLine(line.seq);
    else {
      this.view.pinned = true;
      this.view.changed();
      announce("There is no line after this time yet");
    }
    this.draw();
  }

  // until waits for a condition for at most two seconds.
  async until(condition) {
    for (const end = performance.now() + 2000; performance.now() < end && !condition();) await new Promise((done) => requestAnimationFrame(done));
  }

  learn(lines) {
    let found = false;
    for (const l of lines) {
      const g = group(l.source);
      if (!this.known.has(g)) {
        this.known.add(g);
        found = true;
      }
    }
    const now = performance.now();
    if (found || now - (this.drawn || 0) > 500) this.draw();
  }

  choose(line) {
    this.chosen = line;
    this.view.chosen = line ? line.seq : 0;
    setQuery({ line: line ? String(line.seq) : "" });
    this.view.changed();
    this.draw();
  }

  toggle(g) {
    if (this.groups.has(g)) this.groups.delete(g);
    else this.groups.add(g);
    setQuery({ source: [...this.groups].join(",") });
    this.last = 0;
    this.reload();
    this.draw();
  }

  filter(text) {
    clearTimeout(this.typing);
    this.typing = setTimeout(() => {
      if (this.setText(text)) {
        setQuery({ q: text });
        this.last = 0;
        this.reload();
      }
      this.draw();
    }, 250);
  }

  pause() {
    this.paused = !this.paused;
    if (this.paused) this.stop();
    else this.resume();
    this.draw();
  }

  toEnd() {
    this.paused = false;
    this.choose(null);
    setQuery({ since: "" });
    if (this.window.atEnd && this.following) {
      this.view.pinned = true;
      this.view.changed();
    } else {
      this.last = 0;
      this.reload();
    }
    this.draw();
  }

  async download() {
    const parts = [];
    let size = 0;
    let count = 0;
    const passes = this.passes();
    try {
      await read(this.guid, { ...this.query(), follow: "false" }, {
        onLines: (lines) => {
          const text = lines.filter(passes).map((l) => `${timeOf(l)} [${l.source}/${l.index}] ${l.err ? "ERR" : "OUT"} ${l.text}\n`).join("");
          const part = new Blob([text]);
          parts.push(part);
          size += part.size;
          count += lines.length;
          return size < maxDownload;
        },
      });
    } catch (err) {
      announce(err.message, "error");
      return;
    }
    const app = liveApp(this.guid);
    const name = `${(app ? app.name : "app").replace(/[^\w.-]+/g, "_")}.log`;
    const url = URL.createObjectURL(new Blob(parts, { type: "text/plain" }));
    const a = h("a", { href: url, download: name });
    document.body.append(a);
    a.click();
    a.remove();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
    announce(size < maxDownload ? `${plural(count, "line")} read, ${bytes(size)} saved as ${name}` : `Only the first ${bytes(maxDownload)} were saved. For all lines, type: dew logs ${app ? visible(app.name) : "APP"} --recent -n 100000000`);
  }

  toggleWrap() {
    localStorage.setItem(wrapKey, String(!this.view.wrap));
    this.view.setWrap(!this.view.wrap);
    this.draw();
  }

  async askTime() {
    const value = this.box.querySelector("input[type=datetime-local]").value;
    if (!value) return;
    setQuery({ since: new Date(value).toISOString(), line: "" });
    await this.jumpToTime(value);
  }

  chips() {
    const order = (g) => (g === "router" ? 3 : g === "staging" ? 4 : g === "platform" ? 5 : g === "task" ? 2 : g.includes("/SIDECAR/") ? 1 : 0);
    return [...this.known].sort((a, b) => order(a) - order(b) || a.localeCompare(b)).map((g) => h("button", { data: { key: g }, "aria-pressed": String(this.groups.has(g)), onclick: () => this.toggle(g) },
      h("span", { class: `swatch ${this.color(g)}`, "aria-hidden": "true" }), g === "task" ? "tasks" : ["router", "staging", "platform"].includes(g) ? g : visible(sourceName(`APP/PROC/${g}`))));
  }

  draw() {
    if (this.left) return;
    this.drawn = performance.now();
    const app = liveApp(this.guid);
    if (app) document.title = `Logs of ${visible(app.name)} – dew`;
    this.box.className = "view logs";
    const n = this.window.lines.length;
    const state = this.paused ? "Paused" : this.following ? (this.view.pinned ? "Following new lines" : "Following; scroll to the end to see new lines") : this.window.atEnd ? "Reconnecting" : "Showing older lines";
    render(this.box, appHead(this.guid, app, "logs"),
      h("div", { class: "tools", data: { key: "tools" } },
        h("input", { type: "search", placeholder: "Text, or /regular expression/", "aria-label": "Filter lines by text, or by a regular expression between slashes", value: this.text, "aria-invalid": this.problem ? "true" : null, oninput: (e) => this.filter(e.target.value) }),
        h("div", { class: "chips", role: "group", "aria-label": "Sources" }, this.chips()),
        app && app.instances.length > 1 && h("select", { "aria-label": "Instance", onchange: (e) => { this.instance = e.target.value; setQuery({ instance: this.instance }); this.last = 0; this.reload(); } },
          h("option", { value: "" }, "All instances"), [...new Set(app.instances.map((i) => i.index))].map((i) => h("option", { value: String(i), selected: String(i) === this.instance }, `Instance ${i}`))),
        h("label", {}, h("span", { class: "hidden" }, "Jump to a time"), h("input", { type: "datetime-local", step: "1", title: "Jump to a time", onchange: () => this.askTime() })),
        h("button", { "aria-pressed": String(this.paused), onclick: () => this.pause() }, this.paused ? "Resume" : "Pause"),
        h("button", { "aria-pressed": String(this.view.wrap), onclick: () => this.toggleWrap() }, "Wrap lines"),
        h("button", { onclick: () => this.download() }, "Download")),
      this.problem && h("p", { class: "problem", role: "alert", data: { key: "problem" } }, this.problem),
      h("div", { class: "logbox", data: { key: "lines", keep: "" } }),
      this.chosen && this.detail(app),
      h("div", { class: "logfoot", data: { key: "foot" } }, h("span", {}, state), h("span", { class: "num" }, `${number(n)} ${n === 1 ? "line" : "lines"} in this page`),
        n > 0 && h("span", {}, `from ${dateTime(this.window.lines[0].ms)}`),
        !n && this.following && h("span", {}, "No line matches yet."),
        (!this.view.pinned || !this.window.atEnd) && h("button", { onclick: () => this.toEnd() }, "Jump to the end")));
    const slot = this.box.querySelector('[data-key="lines"]');
    if (slot !== this.view.el) {
      this.view.el.dataset.key = "lines";
      slot.replaceWith(this.view.el);
      this.view.changed();
    }
  }

  detail(app) {
    const l = this.chosen;
    return h("section", { class: "detail", data: { key: "detail" }, "aria-label": "Chosen line" },
      h("div", { class: "panelhead" },
        h("span", {}, h("strong", {}, `Line ${l.seq}`), `  ${dateTime(l.ms)}.${String(l.nanos).padStart(9, "0").slice(0, 6)}  ${visible(l.source)}/${l.index}  ${l.err ? "stderr" : "stdout"}`, l.late && "  (time estimated)"),
        h("span", { class: "line" },
          h("button", { onclick: () => copy(`${location.origin}${appHref(this.guid, "logs")}?line=${l.seq}`, "Link") }, "Copy link"),
          h("button", { onclick: () => copy(plain(l.text), "Line") }, "Copy line"),
          h("button", { "aria-label": "Close the chosen line", onclick: () => this.choose(null) }, "Close"))),
      h("pre", {}, visible(plain(l.text))));
  }

  leave() {
    this.left = true;
    this.stop();
    clearTimeout(this.typing);
    this.view.destroy();
    document.removeEventListener("visibilitychange", this.visibility);
  }
}

export default function logs(box, { guid }) {
  const page = new LogPage(box, guid);
  const stops = [onLive(() => page.draw()), onConnection((s) => { if (s === "open") page.resume(); }), () => page.leave()];
  page.start();
  return () => stops.forEach((f) => f());
}
