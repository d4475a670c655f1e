// A list of log lines that has elements only for the visible rows.

import { h } from "./dom.js";
import { parse, level, plain } from "./ansi.js";
import { clock, sourceName, visible } from "./format.js";
import { atEnd, breakText, Heights, visibleRange } from "./virtual.js";

export const rowHeight = 20;
// maxRows limits a wrapped line. Browsers limit the height of an element to about 33
// million pixels, and a page has up to 50,000 lines.
const maxRows = 30;

// shownText returns the part of a text that a row shows. The chosen line has all of it.
const shownText = (text) => (text.length > 4000 ? `${text.slice(0, 4000)}…` : text);

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
    this.wrap = false; // breaks long lines
    this.width = 0; // columns of a wrapped line
    this.heights = new Heights();
    this.anchor = null; // the first visible line of wrapped ones
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

  // setWrap breaks long lines, or not.
  setWrap(wrap) {
    this.wrap = wrap;
    this.width = 0;
    this.reset();
  }

  // measure computes the rows of the lines if they wrap. It must run after each change
  // of the lines or of the size.
  measure() {
    this.el.classList.toggle("wrap", this.wrap);
    if (!this.wrap) return;
    const probe = this.el.querySelector(".probe") || this.el.appendChild(h("span", { class: "probe", "aria-hidden": "true" }, "0".repeat(100)));
    this.stacked = this.el.clientWidth < 600; // the text is below its time and source
    this.el.classList.toggle("stacked", this.stacked);
    const one = probe.getBoundingClientRect().width / 100 || 7.5;
    const before = this.stacked ? 24 : 26 * one + 40;
    const width = Math.max(20, Math.floor((this.el.clientWidth - before - 24) / one));
    if (width !== this.width) {
      this.width = width;
      for (const el of this.rows.values()) el.remove();
      this.rows.clear();
    }
    this.heights.set(this.window.lines, (line) => this.rowsOf(line));
  }

  // rowsOf returns the height of a line in rows.
  rowsOf(line) {
    if (line.width !== this.width) {
      line.width = this.width;
      line.height = breakText(visible(plain(shownText(line.text))), this.width, maxRows).length;
    }
    return line.height + (this.stacked ? 1 : 0);
  }

  // topOf returns the position of a line, and total the height of all lines in pixels.
  topOf(index) {
    return (this.wrap ? this.heights.starts[index] : index) * rowHeight;
  }

  get total() {
    return (this.wrap ? this.heights.total : this.window.lines.length) * rowHeight;
  }

  metrics() {
    return { scrollTop: this.el.scrollTop, height: this.el.clientHeight, row: rowHeight, count: this.wrap ? this.heights.total : this.window.lines.length };
  }

  // range returns the lines to draw.
  range() {
    const rows = visibleRange(this.metrics());
    if (!this.wrap) return rows;
    if (!this.window.lines.length) return { first: 0, last: 0 };
    return { first: this.heights.lineAt(rows.first), last: this.heights.lineAt(Math.max(rows.first, rows.last - 1)) + 1 };
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
  // them. count is negative for removed lines.
  shifted(count) {
    this.measure();
    this.space.style.height = `${this.total}px`;
    if (!this.pinned && count !== 0) {
      const index = this.wrap && this.anchor ? this.window.indexOf(this.anchor.seq) : -1;
      if (index >= 0 && index < this.window.lines.length) this.el.scrollTop = this.topOf(index) + this.anchor.delta;
      else this.el.scrollTop += count * rowHeight;
      this.top = this.el.scrollTop;
    }
    this.changed();
  }

  draw() {
    const lines = this.window.lines;
    this.measure();
    this.space.style.height = `${this.total}px`;
    if (this.pinned) {
      this.el.scrollTop = this.total;
      this.top = this.el.scrollTop;
    }
    const { first, last } = this.range();
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
      el.style.transform = `translateY(${this.topOf(i)}px)`;
      el.style.height = this.wrap ? `${this.rowsOf(line) * rowHeight}px` : "";
      el.classList.toggle("chosen", line.seq === this.chosen);
    }
    for (const [line, el] of this.rows) {
      if (keep.has(line)) continue;
      el.remove();
      this.rows.delete(line);
    }
    const top = this.wrap && lines.length ? this.heights.lineAt(Math.floor(this.el.scrollTop / rowHeight)) : -1;
    this.anchor = top >= 0 ? { seq: lines[top].seq, delta: this.el.scrollTop - this.topOf(top) } : null;
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
    return this.broken(parse(shownText(line.text))).map((p) => {
      const body = this.highlight ? highlighted(p.text, this.highlight) : p.text;
      if (!p.classes && !p.color && !p.background) return body;
      const css = {};
      if (p.color) css.color = p.color;
      if (p.background) css.background = p.background;
      return h("span", { class: p.classes || null, css }, body);
    });
  }

  // broken inserts the line breaks of a wrapped line into its pieces.
  broken(pieces) {
    if (!this.wrap) return pieces;
    const rows = breakText(pieces.map((p) => p.text).join(""), this.width, maxRows);
    const out = [];
    let row = 0;
    let left = rows[0].length; // characters of the row
    for (const p of pieces) {
      let text = p.text;
      while (text && row < rows.length) {
        if (left === 0) {
          if (++row >= rows.length) break;
          left = rows[row].length;
          out.push({ text: "\n", classes: "" });
          continue;
        }
        out.push({ ...p, text: text.slice(0, left) });
        const used = Math.min(left, text.length);
        text = text.slice(used);
        left -= used;
      }
      if (text) return [...out, { text: "…", classes: "" }];
    }
    return out;
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
    this.measure();
    this.space.style.height = `${this.total}px`;
    this.el.scrollTop = Math.max(0, this.topOf(this.window.indexOf(seq)) - this.el.clientHeight / 3);
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
