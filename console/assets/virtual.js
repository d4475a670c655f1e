// The arithmetic of a list that has elements only for its visible rows, and the bounded
// window of log lines.

// visibleRange returns the rows to draw: first inclusive, last exclusive.
export function visibleRange({ scrollTop, height, row, count, overscan = 12 }) {
  const first = Math.max(0, Math.floor(scrollTop / row) - overscan);
  const last = Math.min(count, Math.ceil((scrollTop + height) / row) + overscan);
  return { first: Math.min(first, count), last: Math.max(Math.min(first, count), last) };
}

// columns returns how many columns a text takes in a monospaced font.
export function columns(text) {
  // eslint-disable-next-line no-control-regex
  if (/^[\x00-\x7e]*$/.test(text)) return text.length;
  let n = 0;
  for (const c of text) n += wide.test(c) ? 2 : /\p{M}/u.test(c) ? 0 : 1;
  return n;
}

const wide = /[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6]|\p{Extended_Pictographic}/u;

// breakText splits a text into rows of at most width columns, and at most most rows. The
// list must know the height of a row before it is drawn, so the page breaks the lines
// and not the browser.
export function breakText(text, width, most) {
  const rows = [];
  let from = 0;
  let used = 0;
  let at = 0;
  for (const c of text) {
    const size = c === "\t" ? 4 : c < "\u007f" ? 1 : columns(c);
    if (used + size > width && used > 0) {
      if (rows.length === most - 1) return [...rows, `${text.slice(from, at).slice(0, -1)}…`];
      rows.push(text.slice(from, at));
      from = at;
      used = 0;
    }
    used += size;
    at += c.length;
  }
  rows.push(text.slice(from));
  return rows;
}

// Heights has the first row of each line, if lines have different heights.
export class Heights {
  constructor() {
    this.starts = [0];
  }

  // set computes the rows of all lines. rowsOf returns the rows of one line.
  set(lines, rowsOf) {
    this.starts = new Array(lines.length + 1);
    let at = 0;
    for (let i = 0; i < lines.length; i++) {
      this.starts[i] = at;
      at += rowsOf(lines[i]);
    }
    this.starts[lines.length] = at;
  }

  get total() {
    return this.starts[this.starts.length - 1];
  }

  // lineAt returns the index of the line in a row.
  lineAt(row) {
    let low = 0;
    let high = this.starts.length - 1;
    while (low < high) {
      const mid = (low + high + 1) >> 1;
      if (this.starts[mid] <= row) low = mid;
      else high = mid - 1;
    }
    return Math.min(low, Math.max(0, this.starts.length - 2));
  }
}

// atEnd reports whether the last row is visible.
export const atEnd = ({ scrollTop, height, row, count }) => scrollTop + height >= count * row - row;

// LineWindow holds at most capacity lines, sorted by sequence number.
export class LineWindow {
  constructor(capacity = 50000) {
    this.capacity = capacity;
    this.lines = [];
    this.atEnd = true; // it has the newest line
    this.atStart = false; // it has the oldest stored line
  }

  // append adds newer lines, and returns how many of the oldest it removed.
  append(lines) {
    const last = this.lines.length ? this.lines[this.lines.length - 1].seq : -1;
    for (const l of lines) if (l.seq > last || l.gap) this.lines.push(l);
    const extra = Math.max(0, this.lines.length - this.capacity);
    if (extra > 0) {
      this.lines.splice(0, extra);
      this.atStart = false;
    }
    return extra;
  }

  // prepend adds older lines. It removes the newest ones if there are too many.
  prepend(lines) {
    const first = this.lines.length ? this.lines[0].seq : Infinity;
    const older = lines.filter((l) => l.seq < first);
    this.lines = older.concat(this.lines);
    if (this.lines.length > this.capacity) {
      this.lines.length = this.capacity;
      this.atEnd = false;
    }
    return older.length;
  }

  clear() {
    this.lines = [];
    this.atEnd = true;
    this.atStart = false;
  }

  // indexOf returns the index of the first line with at least this number.
  indexOf(seq) {
    let low = 0;
    let high = this.lines.length;
    while (low < high) {
      const mid = (low + high) >> 1;
      if (this.lines[mid].seq < seq) low = mid + 1;
      else high = mid;
    }
    return low;
  }
}
