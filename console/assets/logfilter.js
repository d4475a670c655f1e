// The filter of the log page: as much as possible in dewd, the rest in the page.

import { group } from "./logview.js";
import { plain } from "./ansi.js";

// escape returns a regular expression that matches a text literally.
export const escape = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");

// expression returns the regular expression of a filter: /.../ with flags, or a text
// that is matched regardless of case. It throws for an invalid one.
export function expression(text) {
  if (!text) return null;
  const m = /^\/(.+)\/([imsu]*)$/.exec(text);
  return m ? new RegExp(m[1], m[2]) : new RegExp(escape(text), "i");
}

// narrow returns the query parameters that make dewd leave out lines that cannot match.
export function narrow(groups) {
  if (groups.size !== 1) return {};
  const [g] = groups;
  if (g === "router") return { source: "RTR" };
  if (g === "staging") return { source: "STG" };
  if (g === "platform" || g === "task") return {};
  const [process, sidecar] = g.split("/SIDECAR/");
  return sidecar ? { process, sidecar } : { process, no_sidecars: "true" };
}

// predicate returns a function that reports whether a line passes. Lines about missing
// lines always pass.
export function predicate(groups, re, instance) {
  return (line) => line.gap || ((!groups.size || groups.has(group(line.source))) &&
    (instance === "" || String(line.index) === instance) && (!re || re.test(plain(line.text))));
}
