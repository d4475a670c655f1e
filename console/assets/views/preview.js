// Preview of a mail template. It sends nothing.

import { h, render } from "../dom.js";
import { send } from "../api.js";
import { href } from "../router.js";
import { mailPanel } from "./inbox.js";

const area = (id, rows, value) => h("textarea", { id, rows: String(rows), spellcheck: "false", value });
const field = (label, control) => h("label", { class: "stack", for: control.id }, h("span", {}, label), control);

// request returns the body of the preview: a stored template, or one from the page.
function request(template, html, data) {
  const body = html.trim() ? { inline: { html } } : { template: template.trim() || "default" };
  if (data.trim()) {
    try {
      body.data = JSON.parse(data);
    } catch (err) {
      throw new Error(`The values are not valid JSON: ${err.message}`);
    }
  }
  return body;
}

export default function page(box) {
  let left = false;
  const template = h("input", { id: "template", value: "default", autocomplete: "off" });
  const html = area("html", 6, "");
  const data = area("values", 4, '{"Subject": "Your invoice", "HTML": "<b>It is ready.</b>"}');
  const result = h("div", { "aria-live": "polite" });
  const problem = (err) => render(result, h("p", { class: "problem", role: "alert" }, err.message));
  const show = async () => {
    try {
      const m = await send("POST", "/dew/v1/mail-templates/preview", request(template.value, html.value, data.value));
      if (left) return;
      result.replaceChildren(); // the HTML of the last preview must not stay
      mailPanel(result, m);
    } catch (err) {
      if (!left) problem(err);
    }
  };
  render(box,
    h("div", { class: "head" }, h("h1", {}, "Preview a template"), h("a", { href: href("/inbox") }, "All mails")),
    h("section", { class: "panel", "aria-label": "Template" },
      field("ID of a stored template", template),
      field("Or the HTML of a new one", html),
      field("Values of its placeholders, as JSON", data),
      h("div", { class: "actions" }, h("button", { class: "primary", onclick: show }, "Preview"))),
    result);
  return () => { left = true; };
}
