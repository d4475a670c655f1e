// The arithmetic of a list that has elements only for its visible rows, and the bounded
// window of log lines.

// visibleRange returns the rows to draw: first inclusive, last exclusive.
export function visibleRange({ scrollTop, height, row, count, overscan = 12 }) {
  const first = Math.max(0, Math.floor(scrollTop / row) - overscan);
  const last = Math.min(count, Math.ceil((scrollTop + height) / row) + overscan);
  return { first: Math.min(first, count), last: Math.max(Math.min(first, count), last) };
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
