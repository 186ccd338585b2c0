"use strict";
// Everything that comes from data reaches the page through textContent or a Bokeh column, never as markup.
const data = JSON.parse(document.getElementById("data").textContent);
const charts = JSON.parse(document.getElementById("charts").textContent);
const CLASS = "#b4531a", OTHERS = "#1f5f8b", INK = "#1a2433", FADED = "#c3ccd4";
const byId = (id) => document.getElementById(id);
const has = (id) => byId(id) !== null;
const width = data.sensors.length;
const showing = { reading: 0, code: data.classes.length - 1, hidden: Math.max(0, Math.round(200 * (1 - 2 / Math.max(width - 1, 1))) / 2), found: null, sample: 0, sensor: 0 };

function element(tag, text, name) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (name) made.className = name;
  return made;
}
const fill = (place, parts) => place.replaceChildren(...parts);
const shown = (x) => (x === null || x === undefined ? "" : Math.abs(x) >= 1e-3 && Math.abs(x) < 1e5 || x === 0
  ? String(Number(x.toPrecision(3))) : x.toExponential(1));
const plain = (x) => shown(x).replace("-", "−");
const signed = (x) => (x > 0 ? "+" : "") + plain(x);

function model(name) {
  for (const held of Bokeh.documents) {
    const found = held.get_model_by_name(name);
    if (found !== null) return found;
  }
  return null;
}

// ------------------------------------------------------------------ graphs

// Edges as {u, v, w}; those of one picture are drawn strongest last.
function edgesOf(matrix) {
  const edges = [];
  for (let u = 0; u < width; u++)
    for (let v = 0; v < width; v++)
      if (u !== v && matrix[u * width + v]) edges.push({ u, v, w: matrix[u * width + v] });
  return edges.sort((a, b) => Math.abs(b.w) - Math.abs(a.w));
}
function edgesOfSample(flat) {
  const edges = [];
  for (let at = 0; at < flat.length; at += 3) edges.push({ u: flat[at], v: flat[at + 1], w: flat[at + 2] });
  return edges;
}
// The share counts all edges there could be, so that it means the same in every picture.
const kept = (edges) => edges.slice(0, Math.round(width * (width - 1) * (1 - showing.hidden / 100)));
const touches = (edge) => showing.found === null || edge.u === showing.found || edge.v === showing.found;

// A curve from u to v that leaves and arrives at the rim of the dots; the two directions bend apart.
function curve(u, v) {
  const [x0, y0] = data.place[u], [x1, y1] = data.place[v];
  const dx = x1 - x0, dy = y1 - y0, length = Math.hypot(dx, dy) || 1;
  const cx = (x0 + x1) / 2 * 0.55 - dy * 0.12, cy = (y0 + y1) / 2 * 0.55 + dx * 0.12;
  const xs = [], ys = [], rim = Math.min((width > 24 ? 0.05 : 0.09) / length, 0.3);
  for (let k = 0; k <= 20; k++) {
    const t = rim + (1 - 2 * rim) * k / 20, s = 1 - t;
    xs.push(s * s * x0 + 2 * s * t * cx + t * t * x1);
    ys.push(s * s * y0 + 2 * s * t * cy + t * t * y1);
  }
  return { xs, ys };
}

// The circle is as large as the longest name leaves room for.
function fit(name, font) {
  const place = byId(name).clientWidth || 300, longest = Math.max(...data.short.map((text) => text.length));
  const room = Math.max(place / 2 - longest * font * 0.56 - 2, place / 6);
  for (const axis of ["x", "y"]) model(`${name}-${axis}`).setv({ start: -0.56 * place / room, end: 0.56 * place / room });
}

function drawGraph(name, edges, largest, colour, difference = false) {
  const source = model(`${name}-edges`);
  if (source === null) return;
  const drawn = kept(edges).slice(0, 400).reverse();
  const columns = { xs: [], ys: [], width: [], color: [], alpha: [], dash: [], sender: [], receiver: [], weight: [] };
  const heads = { x: [], y: [], angle: [], size: [], color: [], alpha: [] };
  for (const edge of drawn) {
    const share = largest ? Math.abs(edge.w) / largest : 0;
    const { xs, ys } = curve(edge.u, edge.v), last = xs.length - 1;
    const paint = touches(edge) ? colour(edge.w) : FADED, alpha = touches(edge) ? 0.35 + 0.6 * share : 0.35;
    columns.xs.push(xs); columns.ys.push(ys); columns.width.push(0.6 + 4.4 * share * share);
    columns.color.push(paint); columns.alpha.push(alpha); columns.dash.push(edge.w < 0 && !difference ? "dashed" : "solid");
    columns.sender.push(data.sensors[edge.u]); columns.receiver.push(data.sensors[edge.v]); columns.weight.push(shown(edge.w));
    heads.x.push(xs[last]); heads.y.push(ys[last]);
    heads.angle.push(Math.atan2(ys[last] - ys[last - 1], xs[last] - xs[last - 1]) - Math.PI / 2);
    heads.size.push(6 + 6 * share); heads.color.push(paint); heads.alpha.push(Math.min(1, alpha + 0.2));
  }
  source.data = columns;
  model(`${name}-heads`).data = heads;
  const font = width > 40 ? 9 : width > 24 ? 10 : byId(name).clientWidth < 340 ? 11 : 13;
  fit(name, font);
  const active = new Set(drawn.filter(touches).flatMap((edge) => [edge.u, edge.v]));
  const nodes = { x: [], y: [], color: [], size: [], sensor: [] };
  const labels = { x: [], y: [], angle: [], align: [], text: [], color: [], font: [] };
  data.place.forEach(([x, y], at) => {
    const here = at === showing.found, lit = showing.found === null || active.has(at) || here;
    nodes.x.push(x); nodes.y.push(y); nodes.sensor.push(data.sensors[at]);
    nodes.color.push(here ? "#d69e00" : lit ? INK : FADED); nodes.size.push((here ? 16 : 11) * (width > 24 ? 0.65 : 1));
    const angle = Math.atan2(y, x), left = Math.cos(angle) < -1e-6;
    labels.x.push(x * 1.12); labels.y.push(y * 1.12); labels.text.push(data.short[at]);
    labels.angle.push(left ? angle + Math.PI : angle); labels.align.push(left ? "right" : "left");
    labels.color.push(lit ? INK : "#7b8794"); labels.font.push(`${font}px`);
  });
  model(`${name}-nodes`).data = nodes;
  model(`${name}-labels`).data = labels;
}

// The mean of the chosen class, and of all samples of the other classes together.
function classMeans() {
  const held = data.readings[showing.reading], none = new Array(width * width).fill(0);
  const others = none.slice();
  let count = 0;
  for (const [code, mean] of Object.entries(held.means)) {
    if (Number(code) === showing.code) continue;
    const n = data.counts[code];
    count += n;
    mean.forEach((w, at) => { others[at] += n * w; });
  }
  return { own: held.means[showing.code] || none, others: others.map((w) => (count ? w / count : 0)) };
}

function showGraphs() {
  if (!data.readings.length) return;
  const held = data.readings[showing.reading];
  const name = `class ${data.classes[showing.code]}`;
  const others = data.classes.length === 2 ? `class ${data.classes[1 - showing.code]}` : "all other classes";
  document.querySelectorAll(".class-name").forEach((place) => { place.textContent = name; });
  document.querySelectorAll(".others-name").forEach((place) => { place.textContent = others; });
  byId("reading-about").textContent = held.about;
  byId("reading-warning").textContent = held.warning;
  byId("reading-warning").hidden = !held.warning;
  const means = classMeans(), own = edgesOf(means.own), rest = edgesOf(means.others);
  const difference = edgesOf(means.own.map((w, at) => w - means.others[at]));
  const largest = Math.max(...[own[0], rest[0]].map((edge) => (edge ? Math.abs(edge.w) : 0)));
  drawGraph("graph-class", own, largest, () => CLASS);
  drawGraph("graph-others", rest, largest, () => OTHERS);
  drawGraph("graph-difference", difference, difference[0] ? Math.abs(difference[0].w) : 0, (w) => (w > 0 ? CLASS : OTHERS), true);
  const left = kept(own), weakest = left[left.length - 1];
  byId("threshold-text").textContent = left.length
    ? `${left.length} of ${own.length} edges shown, weight ${shown(Math.abs(weakest.w))} or more` : "no edge shown";
  byId("evidence-card").hidden = !held.evidence.length;
  fill(byId("evidence"), held.evidence.flatMap(([question, answer]) => [element("dt", question), element("dd", answer)]));
  const q = held.q[showing.code] || null;
  byId("q-head").hidden = !q;
  const rows = kept(difference).filter(touches);
  fill(byId("edge-table").tBodies[0], rows.slice(0, 50).map((edge) => {
    const at = edge.u * width + edge.v, row = element("tr");
    row.append(element("th", data.sensors[edge.u], "name"), element("td", data.sensors[edge.v], "name"));
    row.firstChild.scope = "row";
    row.append(element("td", plain(means.own[at]), "number"), element("td", plain(means.others[at]), "number"), element("td", signed(edge.w), "number"));
    if (q) row.append(element("td", q[at].toFixed(3), "number"));
    return row;
  }));
  byId("edge-note").textContent = `The ${Math.min(50, rows.length)} largest of ${difference.length} differences`
    + (showing.found === null ? "." : ` that touch ${data.sensors[showing.found]}.`) 
    + (q ? " Of the edges with q below 0.05, one in twenty is expected to differ by chance alone (permutation test, Benjamini-Hochberg)." : "");
}

function showSearch() {
  const text = byId("search").value.trim().toLowerCase();
  const exact = data.sensors.findIndex((name) => name.toLowerCase() === text);
  const near = exact >= 0 ? exact : data.sensors.findIndex((name) => name.toLowerCase().includes(text));
  showing.found = text === "" || near < 0 ? null : near;
  byId("search-text").textContent = text === "" ? "" : near < 0 ? "no such sensor" : `found ${data.sensors[near]}`;
  if (showing.found !== null) showing.sensor = near;
}

// ------------------------------------------------------------------ one sample

function listSamples() {
  const text = byId("sample-filter").value.trim().toLowerCase();
  const order = data.samples.map((_, at) => at).sort((a, b) => score(b) - score(a));
  const wanted = order.filter((at) => text === "" || `${data.samples[at].id} ${data.classes[data.samples[at].label]}`.toLowerCase().includes(text));
  fill(byId("sample"), wanted.map((at) => {
    const held = data.samples[at];
    const option = element("option", `${held.id} (truth ${data.classes[held.label]}; ${percent(score(at))})`);
    option.value = String(at);
    return option;
  }));
  byId("sample-count").textContent = wanted.length ? `${wanted.length} samples` : "no such sample";
  if (wanted.length && !wanted.includes(showing.sample)) showing.sample = wanted[0];
  byId("sample").value = String(showing.sample);
}
const score = (at) => data.samples[at].p[data.classes.length - 1];
const percent = (x) => `${(100 * x).toFixed(1)} %`;
function fact(name, value) {
  const pair = element("div");
  pair.append(element("dt", name), element("dd", value === null ? "unknown" : value));
  return pair;
}

function showSample() {
  if (!data.samples.length) return;
  const held = data.samples[showing.sample];
  const predicted = held.p.indexOf(Math.max(...held.p));
  byId("sample-title").textContent = held.id;
  fill(byId("sample-facts"), [
    fact("Truth", data.classes[held.label]),
    fact("Predicted", data.classes[predicted] + (predicted === held.label ? "" : " (wrong)")),
    fact("Readings", String(held.time.length)),
    fact("Sensors read", `${held.sensors.length} of ${width}`),
    ...Object.entries(held.statics).map(([name, value]) => fact(name, value)),
  ]);
  fill(byId("sample-bars"), data.classes.map((name, code) => {
    const row = element("div", undefined, "bar"), track = element("span", undefined, "bar-track");
    const bar = element("span", undefined, code === data.classes.length - 1 ? "bar-fill of-class" : "bar-fill");
    bar.style.width = `${100 * held.p[code]}%`;
    track.append(bar);
    row.append(element("span", name, "name"), track, element("span", percent(held.p[code]), "number"));
    return row;
  }));
  const asked = data.classes.length === 2 ? 1 : predicted;
  byId("contribution-note").textContent = `Each sensor's readings are taken away in turn. Effect: by how much they raise (+) or lower (−) the log odds of ${data.classes[asked]}; beside it, its probability without them, now ${percent(held.p[asked])}.`;
  const most = Math.max(...held.contribution.map(Math.abs), 1e-9);
  const order = held.contribution.map((_, at) => at).filter((at) => countOf(held, at)).sort((a, b) => Math.abs(held.contribution[b]) - Math.abs(held.contribution[a]));
  fill(byId("contributions").tBodies[0], order.map((at) => {
    const row = element("tr", undefined, at === showing.found ? "found" : ""), effect = element("div", undefined, "effect"), bar = element("span");
    const c = held.contribution[at], part = 50 * Math.abs(c) / most;
    bar.style.cssText = `background:${c > 0 ? CLASS : OTHERS};width:${part}%;left:${c > 0 ? 50 : 50 - part}%`;
    effect.append(bar);
    const pick = element("button", data.sensors[at], "link name");
    pick.type = "button";
    pick.addEventListener("click", () => { showing.sensor = at; showSensor(); byId("sensor").scrollIntoView({ block: "center" }); });
    const name = element("th"), cell = element("td");
    name.scope = "row"; name.append(pick); cell.append(effect);
    row.append(name, cell, element("td", signed(c), "number"), element("td", percent(held.without[at]), "number"), element("td", String(countOf(held, at)), "number"));
    return row;
  }));
  showReadings(held);
  showSampleGraph();
}

function range(held, sensor) {
  const at = held.sensors.indexOf(sensor);
  return at < 0 ? [0, 0] : [held.start[at], at + 1 < held.start.length ? held.start[at + 1] : held.time.length];
}
const countOf = (held, sensor) => { const [from, to] = range(held, sensor); return to - from; };

function showSampleGraph() {
  if (!data.readings.length) return;
  const graphs = data.readings[showing.reading].samples;
  const edges = graphs ? edgesOfSample(graphs[showing.sample]) : [];
  byId("sample-graph-note").textContent = graphs ? "" : "This reading has one graph per class, and none per sample.";
  drawGraph("graph-sample", edges, edges[0] ? Math.abs(edges[0].w) : 0, (w) => (w > 0 ? INK : "#8a6d00"));
  fill(byId("sample-edges"), kept(edges).filter(touches).slice(0, 20).map((edge) =>
    element("li", `${data.sensors[edge.u]} → ${data.sensors[edge.v]}: ${shown(edge.w)}`)));
}

// From blue over grey to red: how far a value lies below or above the mean of training.
function colourOf(z) {
  const part = Math.min(1, Math.abs(z) / 2.5), end = z < 0 ? [33, 102, 172] : [178, 24, 43];
  return `rgb(${[184, 192, 200].map((c, at) => Math.round(c + part * (end[at] - c))).join(",")})`;
}

function showReadings(held) {
  const columns = { time: held.time, sensor: [], value: held.value, color: [], size: [], name: [], attention: [] };
  held.sensors.forEach((sensor) => {
    const [from, to] = range(held, sensor);
    for (let n = from; n < to; n++) {
      columns.sensor.push(data.short[sensor]);
      columns.name.push(data.sensors[sensor]);
      columns.color.push(colourOf((held.value[n] - data.mean[sensor]) / data.scale[sensor]));
      columns.attention.push(held.attention ? shown(held.attention[n]) : "");
      columns.size.push(held.attention ? Math.min(16, Math.max(4, 8 * Math.sqrt(held.attention[n]))) : 8);
    }
  });
  byId("attention-key").hidden = !held.attention;
  const rows = held.sensors.map((sensor) => data.short[sensor]).reverse();
  model("readings-sensors").factors = rows.length ? rows : ["-"];
  model("readings-chart").height = 80 + 24 * Math.max(rows.length, 2);
  model("readings").data = columns;
  fill(byId("sensor"), held.sensors.map((sensor) => {
    const option = element("option", data.sensors[sensor]);
    option.value = String(sensor);
    return option;
  }));
  if (!held.sensors.includes(showing.sensor)) showing.sensor = held.sensors.length ? held.sensors[0] : 0;
  showSensor();
}

function showSensor() {
  if (!data.samples.length) return;
  const held = data.samples[showing.sample], sensor = showing.sensor, [from, to] = range(held, sensor);
  byId("sensor").value = String(sensor);
  const time = held.time.slice(from, to), value = held.value.slice(from, to);
  const mean = data.mean[sensor], scale = data.scale[sensor];
  model("sensor-usual").data = time.length ? { left: [Math.min(...held.time)], right: [Math.max(...held.time)], bottom: [mean - scale], top: [mean + scale] }
    : { left: [], right: [], bottom: [], top: [] };
  model("sensor").data = { time, value };
  byId("chart-sensor").setAttribute("aria-label", `Readings of ${data.sensors[sensor]} in sample ${held.id}: ${time.length}`);
  fill(byId("sensor-table").tBodies[0], time.map((t, at) => {
    const row = element("tr");
    row.append(element("td", shown(t), "number"), element("td", String(value[at]), "number"));
    return row;
  }));
}

// ------------------------------------------------------------------ start

function listen(id, event, action) {
  if (has(id)) byId(id).addEventListener(event, action);
}
function step(by) {
  const options = [...byId("sample").options], at = options.findIndex((option) => Number(option.value) === showing.sample);
  if (!options.length) return;
  showing.sample = Number(options[(at + by + options.length) % options.length].value);
  byId("sample").value = String(showing.sample);
  showSample();
}
function showAll() { showGraphs(); showSample(); }

async function start() {
  Bokeh.set_log_level("error");
  for (const [place, item] of Object.entries(charts)) if (has(place)) await Bokeh.embed.embed_item(item, place);
  listen("reading", "change", (event) => { showing.reading = Number(event.target.value); showGraphs(); showSampleGraph(); });
  listen("class", "change", (event) => { showing.code = Number(event.target.value); showGraphs(); });
  listen("threshold", "input", (event) => { showing.hidden = Number(event.target.value); showGraphs(); showSampleGraph(); });
  listen("search", "input", () => { showSearch(); showAll(); });
  listen("sample", "change", (event) => { showing.sample = Number(event.target.value); showSample(); });
  listen("sample-filter", "input", () => { listSamples(); showSample(); });
  listen("sensor", "change", (event) => { showing.sensor = Number(event.target.value); showSensor(); });
  listen("previous", "click", () => step(-1));
  listen("next", "click", () => step(1));
  if (has("threshold")) byId("threshold").value = String(showing.hidden);
  document.querySelectorAll("form").forEach((form) => form.addEventListener("submit", (event) => event.preventDefault()));
  if (data.samples.length) { listSamples(); byId("sample").selectedIndex = 0; showing.sample = Number(byId("sample").value); }
  showAll();
  window.addEventListener("beforeprint", () => { showGraphs(); showSampleGraph(); });
  let waiting = null;
  window.addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(() => { showGraphs(); showSampleGraph(); }, 150); });
  document.documentElement.dataset.ready = "yes";
}
start();
