// ANSI escape sequences in log lines.

import { visible } from "./format.js";

// eslint-disable-next-line no-control-regex
const sequence = /\u001b(?:\[([0-9;:]*)([@-~])|\][^\u0007\u001b]*(?:\u0007|\u001b\\)|[@-Z\\-_])/g;

// parse splits a line into pieces {text, classes, color, background}. It applies
// colours and removes all other escape sequences.
export function parse(line) {
  if (!line.includes("\u001b")) return [{ text: visible(line), classes: "" }];
  const pieces = [];
  let style = {};
  let from = 0;
  const push = (text) => {
    if (text) pieces.push({ text: visible(text), classes: classesOf(style), color: style.color, background: style.background });
  };
  for (const m of line.matchAll(sequence)) {
    push(line.slice(from, m.index));
    from = m.index + m[0].length;
    if (m[2] === "m") style = apply(style, m[1]);
  }
  push(line.slice(from));
  return pieces;
}

// plain returns a line without escape sequences.
export const plain = (line) => (line.includes("\u001b") ? line.replace(sequence, "") : line);

function classesOf(s) {
  const out = [];
  if (s.fg !== undefined) out.push(`fg${s.fg}`);
  if (s.bg !== undefined) out.push(`bg${s.bg}`);
  for (const name of ["bold", "dim", "italic", "underline"]) if (s[name]) out.push(name);
  return out.join(" ");
}

function apply(style, parameters) {
  const codes = parameters.split(/[;:]/).map((c) => (c === "" ? 0 : Number(c)));
  let s = { ...style };
  for (let i = 0; i < codes.length; i++) {
    const c = codes[i];
    if (c === 0) s = {};
    else if (c === 1) s.bold = true;
    else if (c === 2) s.dim = true;
    else if (c === 3) s.italic = true;
    else if (c === 4) s.underline = true;
    else if (c === 22) s.bold = s.dim = false;
    else if (c === 23) s.italic = false;
    else if (c === 24) s.underline = false;
    else if (c >= 30 && c <= 37) s = { ...s, fg: c - 30, color: undefined };
    else if (c >= 90 && c <= 97) s = { ...s, fg: c - 82, color: undefined };
    else if (c === 39) s = { ...s, fg: undefined, color: undefined };
    else if (c >= 40 && c <= 47) s = { ...s, bg: c - 40, background: undefined };
    else if (c >= 100 && c <= 107) s = { ...s, bg: c - 92, background: undefined };
    else if (c === 49) s = { ...s, bg: undefined, background: undefined };
    else if (c === 38 || c === 48) {
      const [value, used] = extended(codes, i + 1);
      i += used;
      if (value === null) continue;
      if (typeof value === "number") s = c === 38 ? { ...s, fg: value, color: undefined } : { ...s, bg: value, background: undefined };
      else s = c === 38 ? { ...s, fg: undefined, color: value } : { ...s, bg: undefined, background: value };
    }
  }
  return s;
}

// extended reads a colour of the 256 colours, or of 24 bits. It returns one of the 16
// basic colours as a number, others as rgb(), and how many codes it used.
function extended(codes, i) {
  const byte = (n) => Math.min(255, Math.max(0, Number.isFinite(n) ? n : 0));
  if (codes[i] === 2) return [`rgb(${byte(codes[i + 1])}, ${byte(codes[i + 2])}, ${byte(codes[i + 3])})`, 4];
  if (codes[i] !== 5) return [null, 0];
  const n = byte(codes[i + 1]);
  if (n < 16) return [n, 2];
  if (n >= 232) {
    const g = 8 + 10 * (n - 232);
    return [`rgb(${g}, ${g}, ${g})`, 2];
  }
  const level = (v) => (v ? 55 + 40 * v : 0);
  const c = n - 16;
  return [`rgb(${level(Math.floor(c / 36))}, ${level(Math.floor(c / 6) % 6)}, ${level(c % 6)})`, 2];
}

const levels = [
  ["error", /\b(?:FATAL|PANIC|CRITICAL|ERROR|SEVERE|fatal|panic|error)\b|"level":"(?:fatal|panic|error)"|Exception\b/],
  ["warn", /\b(?:WARN|WARNING|warn|warning)\b|"level":"warn(?:ing)?"/],
  ["debug", /\b(?:DEBUG|TRACE|debug|trace)\b|"level":"(?:debug|trace)"/],
];

// level returns the level of a line, guessed from its first characters, or for the
// router from the status of the response.
export function level(line, source) {
  if (source === "RTR") {
    const m = /" (\d{3}) /.exec(line);
    return m && m[1] >= "500" ? "error" : m && m[1] >= "400" ? "warn" : "";
  }
  const start = line.slice(0, 160);
  for (const [name, re] of levels) if (re.test(start)) return name;
  return "";
}
