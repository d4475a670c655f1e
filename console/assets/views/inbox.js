// Mails that dewd stored instead of sending.

import { h, render } from "../dom.js";
import { get } from "../api.js";
import { ago, bytes, dateTime, plural, visible } from "../format.js";
import { href } from "../router.js";
import { tablePage } from "./table.js";

async function load() {
  const inbox = await get("/dew/v1/inbox");
  return { rows: inbox.mails || [], note: plural(inbox.total, "mail") };
}

function inbox(box) {
  return tablePage(box, {
    title: "Inbox", load, key: (m) => m.id, textOf: (m) => `${m.subject} ${m.to} ${m.from} ${m.kind || ""}`,
    none: ["There is no mail. dewd stores the mails of notifications here if it has no mail server. To get a mail when an app crashes, type:", "dew notify-on-crash APP"],
    tools: () => h("a", { class: "button", href: href("/preview") }, "Preview a template"),
    columns: [
      { name: "Subject", cell: (m) => h("a", { class: "name", href: href(`/inbox/${encodeURIComponent(m.id)}`) }, visible(m.subject) || "(no subject)") },
      { name: "To", cell: (m) => visible(m.to) },
      { name: "From", cell: (m) => visible(m.from) },
      { name: "Sent", cell: (m) => h("span", { title: dateTime(m.sent) }, ago(m.sent)) },
      { name: "Size", class: "num", cell: (m) => bytes(m.size) },
    ],
  });
}

function mail(box, id) {
  let left = false;
  get(`/dew/v1/inbox/${encodeURIComponent(id)}`).then((m) => {
    if (left) return;
    const panel = h("div", { data: { keep: "" } });
    render(box, h("div", { class: "head" }, h("h1", {}, visible(m.subject) || "(no subject)"), h("a", { href: href("/inbox") }, "All mails")), panel);
    mailPanel(panel, m);
  }, (err) => render(box, h("h1", {}, "Mail"), h("p", { class: "problem", role: "alert" }, err.message)));
  return () => { left = true; };
}

// mailPanel shows the headers and the text or the HTML of a mail.
export function mailPanel(box, m) {
  let html = !m.text && Boolean(m.html);
  const fact = (name, value) => value && [h("dt", {}, name), h("dd", {}, value)];
  const draw = () => render(box, h("section", { class: "panel", "aria-label": "Mail" },
    h("dl", { class: "facts" }, fact("From", visible(m.from)), fact("To", visible(m.to)), fact("Reply to", m.reply_to && visible(m.reply_to)),
      m.sent ? fact("Sent", dateTime(m.sent)) : fact("Subject", visible(m.subject))),
    m.text && m.html && h("p", { class: "line" }, h("button", { "aria-pressed": String(!html), onclick: () => { html = false; draw(); } }, "Text"), h("button", { "aria-pressed": String(html), onclick: () => { html = true; draw(); } }, "HTML")),
    html ? frame(m.html) : h("pre", { class: "lines", tabindex: "0", data: { key: "text" } }, visible(m.text || ""))));
  draw();
}

// frame shows the HTML of a mail in a sandbox: no scripts, no forms, no links that open,
// and no requests, because it inherits the content security policy of the page.
function frame(html) {
  const el = h("iframe", { class: "mailbody", sandbox: "", title: "HTML of the mail", data: { key: "html", keep: "" } });
  el.srcdoc = html;
  return el;
}

export default function page(box, { id }) {
  return id ? mail(box, id) : inbox(box);
}
