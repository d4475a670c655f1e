// Log lines in the binary form of dewd (application/vnd.dew.lines).

import { open, withQuery } from "./api.js";

const type = "application/vnd.dew.lines";
const text = new TextDecoder(); // replaces bytes that are not UTF-8

// Reader turns chunks of bytes into lines. feed returns the complete ones.
export class Reader {
  constructor() {
    this.rest = new Uint8Array(0);
    this.sources = new Map(); // most lines have the same source
    this.ended = false;
    this.place = 0;
  }

  feed(chunk) {
    let b = chunk;
    if (this.rest.length) {
      b = new Uint8Array(this.rest.length + chunk.length);
      b.set(this.rest);
      b.set(chunk, this.rest.length);
    }
    const lines = [];
    let at = 0;
    for (;;) {
      const p = { b, at };
      const length = uvarint(p);
      if (length < 0 || p.at + length > b.length) break;
      const line = this.record(b, p.at, p.at + length);
      if (line) lines.push(line);
      at = p.at + length;
    }
    this.rest = b.slice(at);
    return lines;
  }

  record(b, at, end) {
    const p = { b, at: at + 1 };
    if (b[at] === 0) this.ended = true;
    if (b[at] === 2) this.place = uvarint(p);
    if (b[at] !== 1) return null;
    const line = { seq: uvarint(p) };
    time(p, line);
    line.err = b[p.at++] === 1;
    const flags = b[p.at++];
    line.late = (flags & 1) !== 0;
    line.cut = (flags & 2) !== 0;
    line.gap = (flags & 8) !== 0;
    line.index = zigzag(uvarint(p));
    line.source = this.string(p);
    line.instance = this.string(p);
    if (line.gap) {
      line.lost = uvarint(p);
      uvarint(p);
      line.cause = this.string(p);
    }
    line.text = text.decode(b.subarray(p.at, end));
    return line;
  }

  string(p) {
    const length = uvarint(p);
    const s = text.decode(p.b.subarray(p.at, p.at + length));
    p.at += length;
    const known = this.sources.get(s);
    if (known !== undefined) return known;
    if (this.sources.size < 1000) this.sources.set(s, s);
    return s;
  }
}

// uvarint reads a number of up to 53 bits, or returns -1 at the end of the bytes.
function uvarint(p) {
  let value = 0;
  let factor = 1;
  for (let i = p.at; i < p.b.length; i++) {
    value += (p.b[i] & 0x7f) * factor;
    if (p.b[i] < 0x80) {
      p.at = i + 1;
      return value;
    }
    factor *= 128;
  }
  return -1;
}

const zigzag = (n) => (n % 2 ? -(n + 1) / 2 : n / 2);

// time reads nanoseconds since 1970, which need 61 bits: as milliseconds, and as the
// rest of the second.
function time(p, line) {
  let value = 0n;
  let shift = 0n;
  for (;;) {
    const c = p.b[p.at++];
    value |= BigInt(c & 0x7f) << shift;
    if (!(c & 0x80)) break;
    shift += 7n;
  }
  value >>= 1n; // times are after 1970
  line.ms = Number(value / 1000000n);
  line.nanos = Number(value % 1000000000n);
}

// timeOf returns the exact time of a line as the API wants it.
export function timeOf(line) {
  return `${new Date(line.ms).toISOString().slice(0, 19)}.${String(line.nanos).padStart(9, "0")}Z`;
}

// read streams the lines of an app to onLines, until the last one or until the signal
// aborts. It resolves with true if all requested lines were sent.
export async function read(guid, query, { onLines, signal, onOpen }) {
  const response = await open(withQuery(`/stream/v1/apps/${encodeURIComponent(guid)}`, query), { Accept: type }, signal);
  if (onOpen) onOpen();
  const body = response.body.getReader();
  const reader = new Reader();
  for (;;) {
    const { value, done } = await body.read();
    if (done) return reader.ended;
    const lines = reader.feed(value);
    if (lines.length && onLines(lines) === false) {
      await body.cancel();
      return false;
    }
  }
}
