// DOM helpers. All text from the API becomes text nodes, never HTML.

const handlers = ["onclick", "oninput", "onchange", "onkeydown", "onsubmit", "onscroll", "onpaste"];

// h creates an element. Props that start with "on" are event handlers, "css" sets style
// properties through the CSSOM, "data" sets data attributes, and all others are
// attributes. null, undefined and false leave an attribute out.
export function h(tag, props, ...children) {
  const el = document.createElement(tag);
  for (const [name, value] of Object.entries(props || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) el[name] = value;
    else if (name === "css") for (const [k, v] of Object.entries(value)) el.style.setProperty(k, v);
    else if (name === "data") for (const [k, v] of Object.entries(value)) el.dataset[k] = v;
    else if (name === "value") el.value = value;
    else if (name === "checked" || name === "disabled" || name === "selected") el[name] = true;
    else el.setAttribute(name, value === true ? "" : String(value));
  }
  append(el, children);
  return el;
}

function append(el, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    el.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

// fragment returns its children without an element around them.
export function fragment(...children) {
  const f = document.createDocumentFragment();
  append(f, children);
  return f;
}

// render makes the children of el equal to the given nodes. Nodes that stay the same
// keep their focus, their selection and their scroll position.
export function render(el, ...children) {
  const want = document.createElement("div");
  append(want, children);
  morphChildren(el, want);
}

function morphChildren(old, want) {
  const keyed = new Map();
  for (const node of old.childNodes) if (keyOf(node)) keyed.set(keyOf(node), node);
  let at = old.firstChild;
  for (const next of [...want.childNodes]) {
    const key = keyOf(next);
    let match = key ? keyed.get(key) : at;
    while (match && !key && keyOf(match)) match = match.nextSibling; // keyed nodes match only by key
    if (!match || !sameKind(match, next)) {
      old.insertBefore(next, at);
      continue;
    }
    if (match === at) at = at.nextSibling;
    else old.insertBefore(match, at);
    morph(match, next);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

const keyOf = (node) => (node.dataset ? node.dataset.key : undefined);
const sameKind = (a, b) => a.nodeType === b.nodeType && a.nodeName === b.nodeName && keyOf(a) === keyOf(b);

function morph(old, next) {
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== next.data) old.data = next.data;
    return;
  }
  if (old.dataset.keep !== undefined || next.dataset.same !== undefined) return; // its owner updates it, or it has not changed
  for (const name of handlers) if (old[name] !== next[name]) old[name] = next[name];
  for (const { name } of [...old.attributes]) if (name !== "style" && name !== "open" && !next.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of next.attributes) if (name !== "style" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  if (old.style.cssText !== next.style.cssText) old.style.cssText = next.style.cssText;
  if (old.disabled !== next.disabled && "disabled" in next) old.disabled = next.disabled;
  if ("checked" in next && old.checked !== next.checked) old.checked = next.checked;
  morphChildren(old, next);
  if ("value" in next && old.value !== next.value && old !== document.activeElement && old.nodeName !== "LI") old.value = next.value;
}

// announce tells screen readers about a change, and shows it for a few seconds.
export function announce(text, kind = "") {
  const box = document.getElementById("notices");
  const notice = h("div", { class: `notice ${kind}`, role: kind === "error" ? "alert" : null },
    h("span", {}, text),
    h("button", { class: "plain", "aria-label": "Close message", onclick: () => notice.remove() }, "×"));
  box.append(notice);
  while (box.children.length > 4) box.firstChild.remove();
  if (kind !== "error") setTimeout(() => notice.remove(), 5000);
}

// copy writes text to the clipboard.
export async function copy(text, name = "Text") {
  try {
    await navigator.clipboard.writeText(text);
    announce(`${name} copied`);
  } catch {
    announce("The browser does not allow the page to use the clipboard", "error");
  }
}

// dialog shows a modal form and resolves with its data, or with null if the user
// cancels.
export function dialog({ title, body, action, danger }) {
  return new Promise((resolve) => {
    const form = h("form", { method: "dialog" },
      h("h2", { id: "dialog-title" }, title),
      body,
      h("div", { class: "actions" },
        h("button", { type: "button", onclick: () => box.close("") }, "Cancel"),
        h("button", { value: "yes", class: danger ? "danger" : "primary", type: "submit" }, action)));
    const box = h("dialog", { "aria-labelledby": "dialog-title" }, form);
    box.addEventListener("close", () => {
      resolve(box.returnValue === "yes" ? Object.fromEntries(new FormData(form)) : null);
      box.remove();
    });
    document.body.append(box);
    box.showModal();
    // A dangerous action keeps the focus on Cancel.
    const first = form.querySelector("input, select") || (!danger && form.querySelector("button[type=submit]"));
    if (first) first.focus();
  });
}

// stateBadge shows a state with a shape as well as a colour.
export function stateBadge(text, kind) {
  return h("span", { class: `state ${kind}` }, h("span", { class: "dot", "aria-hidden": "true" }), text);
}

// empty is shown instead of an empty list. It names the next command to type.
export function empty(text, ...commands) {
  return h("div", { class: "empty" }, h("p", {}, text), commands.map((c) => h("p", {}, h("code", {}, c))));
}
