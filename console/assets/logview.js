// A list of log lines that has elements only for the visible rows.

import { h } from "./dom.js";
import { parse, level, plain } from "./ansi.js";
import { clock, sourceName, visible } from "./format.js";
import { atEnd, visibleRange } from "./virtual.js";

export const rowHeight = 20;

// group returns the source group of a line: a process, one of its sidecars, or a part of
// the platform.
export function group(source) {
  if (source.startsWith("APP/PROC/")) return source.slice(9);
  if (source.startsWith("APP/TASK/")) return "task";
  return { RTR: "router", STG: "staging" }[source] || "platform";
}

// mark returns the kind of event that a line of the platform reports.
export function mark(line) {
  if (line.gap) return "gap";
  if (line.source === "API") return line.text.startsWith("App instance exited") ? "died" : "";
  if (line.source !== "CELL") return "";
  if (line.text === "Creating container") return "begin";
  return line.err ? "died" : ""; // the cell reports crashes on stderr
}

// LogView shows the lines of a LineWindow in an element that scrolls.
export class LogView {
  constructor(window, { onTop, onBottom, onChoose, colorOf }) {
    Object.assign(this, { window, onTop, onBottom, onChoose, colorOf });
    this.space = h("div", { class: "space", role: "presentation" });
    this.el = h("div", { class: "logbox", tabindex: "0", role: "log", "aria-label": "Log lines", "aria-live": "off", data: { keep: "" } }, this.space);
    this.rows = new Map(); // elements by line
    this.pinned = true; // follows the newest line
    this.chosen = 0;
    this.top = 0; // the last scroll position
    this.highlight = null;
    this.frame = 0;
    this.el.addEventListener("scroll", () => this.scrolled(), { passive: true });
    this.el.addEventListener("wheel", (e) => { if (e.deltaY < 0) this.pinned = false; }, { passive: true });
    this.observer = new ResizeObserver(() => this.changed());
    this.observer.observe(this.el);
  }

  metrics() {
    return { scrollTop: this.el.scrollTop, height: this.el.clientHeight, row: rowHeight, count: this.window.lines.length };
  }

  scrolled() {
    const m = this.metrics();
    const was = this.pinned;
    // Only a user scrolls up: new lines and the page itself scroll down.
    if (m.scrollTop < this.top - 1) this.pinned = false;
    else if (atEnd(m)) this.pinned = this.window.atEnd;
    this.top = m.scrollTop;
    if (m.scrollTop < 40 * rowHeight && !this.window.atStart) this.onTop();
    if (atEnd({ ...m, height: m.height + 40 * rowHeight }) && !this.window.atEnd) this.onBottom();
    if (was !== this.pinned && this.onPin) this.onPin(this.pinned);
    this.changed();
  }

  // changed draws in the next frame.
  changed() {
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.draw();
    });
  }

  // shifted keeps the visible lines in place after lines were added or removed above
  // them.
  shifted(count) {
    this.space.style.height = `${this.window.lines.length * rowHeight}px`;
    if (!this.pinned && count !== 0) {
      this.el.scrollTop += count * rowHeight;
      this.top = this.el.scrollTop;
    }
    this.changed();
  }

  draw() {
    const lines = this.window.lines;
    this.space.style.height = `${lines.length * rowHeight}px`;
    if (this.pinned) {
      this.el.scrollTop = lines.length * rowHeight;
      this.top = this.el.scrollTop;
    }
    const { first, last } = visibleRange(this.metrics());
    const keep = new Set();
    for (let i = first; i < last; i++) {
      const line = lines[i];
      keep.add(line);
      let el = this.rows.get(line);
      if (!el) {
        el = this.row(line);
        this.rows.set(line, el);
        this.space.append(el);
      }
      el.style.transform = `translateY(${i * rowHeight}px)`;
      el.classList.toggle("chosen", line.seq === this.chosen);
    }
    for (const [line, el] of this.rows) {
      if (keep.has(line)) continue;
      el.remove();
      this.rows.delete(line);
    }
  }

  row(line) {
    const g = group(line.source);
    const kind = mark(line);
    const error = level(plain(line.text), line.source);
    return h("div", { class: `row ${error} ${line.err ? "err" : ""} ${kind} ${g === "platform" ? "platform" : ""}` },
      h("button", { class: "at", tabindex: "-1", title: `${new Date(line.ms).toISOString()}, line ${line.seq}`, onclick: () => this.onChoose(line) }, clock(line.ms)),
      h("span", { class: `from ${this.colorOf(g)}`, title: visible(line.source) }, visible(sourceName(line.source)), g === "router" || g === "staging" || line.source === "API" ? "" : `/${line.index}`),
      h("span", { class: "text" }, this.pieces(line)));
  }

  pieces(line) {
    return parse(line.text.length > 4000 ? `${line.text.slice(0, 4000)}…` : line.text).map((p) => {
      const body = this.highlight ? highlighted(p.text, this.highlight) : p.text;
      if (!p.classes && !p.color && !p.background) return body;
      const css = {};
      if (p.color) css.color = p.color;
      if (p.background) css.background = p.background;
      return h("span", { class: p.classes || null, css }, body);
    });
  }

  // reset drops all elements, after the window was cleared or the highlight changed.
  reset() {
    this.rows.clear();
    this.space.replaceChildren();
    this.top = 0;
    this.changed();
  }

  // showLine scrolls to a line and highlights it.
  showLine(seq) {
    this.chosen = seq;
    this.pinned = false;
    this.space.style.height = `${this.window.lines.length * rowHeight}px`;
    this.el.scrollTop = Math.max(0, this.window.indexOf(seq) * rowHeight - this.el.clientHeight / 3);
    this.top = this.el.scrollTop;
    this.changed();
  }

  destroy() {
    this.observer.disconnect();
    cancelAnimationFrame(this.frame);
  }
}

// highlighted marks the matches of a regular expression.
function highlighted(text, re) {
  const out = [];
  let from = 0;
  const all = new RegExp(re.source, re.flags.includes("g") ? re.flags : `${re.flags}g`);
  for (const m of text.matchAll(all)) {
    if (m[0] === "") continue;
    out.push(text.slice(from, m.index), h("mark", {}, m[0]));
    from = m.index + m[0].length;
    if (out.length > 200) break;
  }
  out.push(text.slice(from));
  return out;
}
