// Pure functions from values to text.

const units = ["B", "K", "M", "G", "T", "P"];

// bytes returns a size with the units of manifests: 64M, 1.5G.
export function bytes(n) {
  if (!Number.isFinite(n)) return "–";
  let u = 0;
  let v = Math.abs(n);
  while (v >= 1024 && u < units.length - 1) {
    v /= 1024;
    u++;
  }
  if (v >= 1023.5 && u > 0 && u < units.length - 1) {
    v /= 1024;
    u++;
  }
  const digits = u > 0 && v < 9.95 ? 1 : 0;
  return (n < 0 ? "-" : "") + v.toFixed(digits).replace(/\.0$/, "") + units[u];
}

// rate returns bytes per second.
export const rate = (n) => `${bytes(n)}/s`;

// number returns a number with at most three significant digits below 1000.
export function number(n) {
  if (!Number.isFinite(n)) return "–";
  if (n === 0) return "0";
  if (Math.abs(n) < 10) return String(Number(n.toFixed(n < 1 ? 2 : 1)));
  return Math.round(n).toLocaleString("en-US");
}

// percent returns a share of one core as a percentage.
export const percent = (n) => (n > 0 && n < 0.001 ? "<0.1%" : `${number(n * 100)}%`);

// duration returns a time span with its two largest units.
export function duration(seconds) {
  let s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  const days = Math.floor(s / 86400);
  const hours = Math.floor(s / 3600) % 24;
  const minutes = Math.floor(s / 60) % 60;
  s %= 60;
  if (days > 0) return hours ? `${days} d ${hours} h` : `${days} d`;
  if (hours > 0) return minutes ? `${hours} h ${minutes} min` : `${hours} h`;
  return s && minutes < 10 ? `${minutes} min ${s} s` : `${minutes} min`;
}

// ago returns how long before now a time was.
export function ago(time, now = Date.now()) {
  const s = (now - Date.parse(time)) / 1000;
  if (!Number.isFinite(s)) return "–";
  if (s < 5) return "just now";
  const [value, unit] = s < 60 ? [s, "s"] : s < 3600 ? [s / 60, "min"] : s < 86400 ? [s / 3600, "h"] : [s / 86400, "d"];
  return `${Math.floor(value)} ${unit} ago`;
}

const two = (n) => String(n).padStart(2, "0");

// clock returns the local time of day with milliseconds.
export function clock(ms) {
  const t = new Date(ms);
  return `${two(t.getHours())}:${two(t.getMinutes())}:${two(t.getSeconds())}.${String(t.getMilliseconds()).padStart(3, "0")}`;
}

// dateTime returns the local date and time to the second.
export function dateTime(time) {
  const t = new Date(time);
  if (Number.isNaN(t.getTime())) return "–";
  return `${t.getFullYear()}-${two(t.getMonth() + 1)}-${two(t.getDate())} ${two(t.getHours())}:${two(t.getMinutes())}:${two(t.getSeconds())}`;
}

// plural returns a count with its noun.
export const plural = (n, one, many = `${one}s`) => `${number(n)} ${n === 1 ? one : many}`;

// visible replaces control characters and characters that change the direction of text
// with an escape sequence, so that a text cannot look like another one.
export function visible(text) {
  // eslint-disable-next-line no-control-regex
  return String(text).replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g,
    (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

// sourceName returns a short name for the source of a log line.
export function sourceName(source) {
  const m = /^APP\/PROC\/([^/]+)(?:\/SIDECAR\/(.+))?$/.exec(source);
  if (m) return m[2] ? m[2].toLowerCase() : m[1].toLowerCase();
  if (source.startsWith("APP/TASK/")) return `task ${source.slice(9)}`;
  return { RTR: "router", STG: "staging", API: "platform", CELL: "platform", SSH: "ssh" }[source] || source.toLowerCase();
}

// events splits the text of an event stream into complete events and the rest.
export function events(text) {
  const blocks = text.split("\n\n");
  const rest = blocks.pop();
  const out = [];
  for (const block of blocks) {
    const event = { type: "message", data: [] };
    for (const line of block.split("\n")) {
      const at = line.indexOf(":");
      const [field, value] = at < 0 ? [line, ""] : [line.slice(0, at), line.slice(at + 1).replace(/^ /, "")];
      if (field === "event") event.type = value;
      if (field === "data") event.data.push(value);
    }
    if (event.data.length) out.push({ type: event.type, data: event.data.join("\n") });
  }
  return { events: out, rest };
}

// sentence returns a text with a capital letter at its beginning.
export const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1);
