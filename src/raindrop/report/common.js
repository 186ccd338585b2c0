"use strict";
// Everything from the data reaches the page through textContent or a Bokeh column, never as markup.
const data = JSON.parse(document.getElementById("data").textContent);
const charts = JSON.parse(document.getElementById("charts").textContent);
const CLASS = "#b4531a", OTHERS = "#1f5f8b", INK = "#1a2433", FADED = "#c3ccd4";
const byId = (id) => document.getElementById(id);
const exists = (id) => byId(id) !== null;

function element(tag, text, name) {
  const created = document.createElement(tag);
  if (text !== undefined) created.textContent = text;
  if (name) created.className = name;
  return created;
}
const fill = (parent, children) => parent.replaceChildren(...children);
const formatted = (x) => (x === null || x === undefined ? "" : Math.abs(x) >= 1e-3 && Math.abs(x) < 1e5 || x === 0
  ? String(Number(x.toPrecision(3))) : x.toExponential(1));
const withMinus = (x) => formatted(x).replace("-", "−");
const signed = (x) => (x > 0 ? "+" : "") + withMinus(x);

function model(name) {
  for (const each of Bokeh.documents) {
    const result = each.get_model_by_name(name);
    if (result !== null) return result;
  }
  return null;
}
for (const bar of document.querySelectorAll("[data-width]")) bar.style.width = `${bar.dataset.width}%`;
function listen(id, event, action) {
  if (exists(id)) byId(id).addEventListener(event, action);
}
