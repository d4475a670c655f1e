// A page with one filtered table.

import { h, render, empty } from "../dom.js";
import { watch } from "../stream.js";
import { query, setQuery } from "../router.js";

// tablePage loads rows, again after each change, and shows those that match the search. columns are
// {name, cell, class}; textOf returns the searched text of a row.
export function tablePage(box, { title, load, columns, key, textOf, none, tools = () => null }) {
  const state = { rows: null, problem: "", text: query("q"), note: "" };
  function draw() {
    const words = state.text.trim().toLowerCase();
    const rows = (state.rows || []).filter((r) => !words || textOf(r).toLowerCase().includes(words));
    render(box,
      h("div", { class: "head" }, h("h1", {}, title), state.note && h("p", { class: "summary" }, state.note)),
      h("div", { class: "tools" },
        h("input", { type: "search", placeholder: "Filter", "aria-label": `Filter ${title.toLowerCase()}`, value: state.text, oninput: (e) => { state.text = e.target.value; setQuery({ q: state.text }); draw(); } }),
        tools(refresh)),
      state.problem && h("p", { class: "problem", role: "alert" }, state.problem),
      state.rows && !state.rows.length && !state.problem && empty(...none),
      state.rows && state.rows.length > 0 && !rows.length && empty("Nothing matches the filter."),
      rows.length > 0 && h("div", { class: "scroll" }, h("table", { class: "cards list" }, h("caption", { class: "hidden" }, title),
        h("thead", {}, h("tr", {}, columns.map((c) => h("th", { scope: "col", class: c.class }, c.name === "Actions" ? h("span", { class: "hidden" }, c.name) : c.name)))),
        h("tbody", {}, rows.map((r) => h("tr", { data: { key: key(r) } }, columns.map((c, i) => (i === 0 ? h("th", { scope: "row", class: c.class }, c.cell(r, refresh)) : h("td", { class: `full ${c.class || ""}`, data: { label: c.name } }, c.cell(r, refresh))))))))));
  }
  async function refresh() {
    try {
      const { rows, note } = await load();
      state.rows = rows;
      state.note = note || "";
      state.problem = "";
    } catch (err) {
      state.problem = err.status === 403 ? "You do not have permission to see this page." : err.message;
    }
    draw();
  }
  draw();
  return watch(refresh);
}
