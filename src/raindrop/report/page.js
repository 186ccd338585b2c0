const width = data.sensors.length;
const compares = data.groups.length > 1;  // the graphs of classes
// The share of edges, in %, that is hidden at first: two edges for each sensor are left, but not many more than 100.
function firstHidden(number = width) {
  const left = Math.min(2 / Math.max(number - 1, 1), 100 / Math.max(number * (number - 1), 1));
  return Math.max(0, Math.floor(1000 * (1 - left)) / 10);
}

// What is selected on the page.
const state = {
  view: 0, code: data.main_group, hidden: firstHidden(),
  search: null, sample: 0, sensor: 0, output: 0,
};

// ------------------------------------------------------------------ graphs

// Edges as {u, v, w}, strongest first.
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
// The share is of all possible edges, so that it means the same in every graph.
const kept = (edges) => edges.slice(0, Math.round(width * (width - 1) * (1 - state.hidden / 100)));
const touches = (edge) => state.search === null || edge.u === state.search || edge.v === state.search;

// A curve from the rim of dot u to the rim of dot v; the two directions bend apart.
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
  const size = byId(name).clientWidth || 300, pen = document.createElement("canvas").getContext("2d");
  pen.font = `${font}px ${getComputedStyle(document.body).fontFamily}`;
  const longest = Math.max(...data.short.map((text) => pen.measureText(text).width));
  const room = Math.max(size / 2 - longest - 4, size / 6);
  for (const axis of ["x", "y"]) model(`${name}-${axis}`).setv({ start: -0.56 * size / room, end: 0.56 * size / room });
  return room;
}

// The sensors whose names are shown: all where there is room on a circle of `radius`, else those with the strongest edges.
function named(drawn, radius, font) {
  const strength = new Array(width).fill(0);
  for (const edge of drawn) for (const at of [edge.u, edge.v]) strength[at] += Math.abs(edge.w);
  if (state.search !== null) strength[state.search] = Infinity;
  const apart = font / radius, angles = data.place.map(([x, y]) => Math.atan2(y, x)), shown = [];
  if (2 * Math.PI / width >= apart) return new Set(data.place.keys());
  for (const at of strength.map((_, at) => at).sort((a, b) => strength[b] - strength[a])) {
    const free = (other) => { const gap = Math.abs(angles[at] - angles[other]); return Math.min(gap, 2 * Math.PI - gap) >= apart; };
    if (strength[at] > 0 && shown.every(free)) shown.push(at);
  }
  return new Set(shown);
}

// Draws a graph, or where it has no edges shows the sentence `empty` in its place. Edges that are not among the
// strongest with every seed (`recurs`, where other seeds were given) are grey and dotted.
function drawGraph(name, edges, empty, largest, colour, difference = false, recurs = null) {
  const source = model(`${name}-edges`);
  if (source === null) return;
  byId(name).hidden = !edges.length;
  byId(`${name}-empty`).hidden = edges.length > 0;
  byId(`${name}-empty`).textContent = edges.length ? "" : empty;
  if (!edges.length) return;
  const drawn = kept(edges).slice(0, 400).reverse();
  const columns = { xs: [], ys: [], width: [], color: [], alpha: [], dash: [], sender: [], receiver: [], weight: [] };
  const heads = { x: [], y: [], angle: [], size: [], color: [], alpha: [] };
  for (const edge of drawn) {
    const share = largest ? Math.abs(edge.w) / largest : 0;
    const { xs, ys } = curve(edge.u, edge.v), last = xs.length - 1;
    const isFact = recurs === null || recurs[edge.u * width + edge.v] === 1;
    const paint = touches(edge) && isFact ? colour(edge.w) : FADED, alpha = touches(edge) && isFact ? 0.35 + 0.6 * share : 0.35;
    columns.xs.push(xs); columns.ys.push(ys); columns.width.push(0.6 + 4.4 * share * share);
    columns.color.push(paint); columns.alpha.push(alpha); columns.dash.push(!isFact ? "dotted" : edge.w < 0 && !difference ? "dashed" : "solid");
    columns.sender.push(data.sensors[edge.u]); columns.receiver.push(data.sensors[edge.v]); columns.weight.push(formatted(edge.w));
    heads.x.push(xs[last]); heads.y.push(ys[last]);
    heads.angle.push(Math.atan2(ys[last] - ys[last - 1], xs[last] - xs[last - 1]) - Math.PI / 2);
    heads.size.push(6 + 6 * share); heads.color.push(paint); heads.alpha.push(Math.min(1, alpha + 0.2));
  }
  source.data = columns;
  model(`${name}-heads`).data = heads;
  const font = width > 40 ? 9 : width > 24 ? 10 : byId(name).clientWidth < 340 ? 11 : 13;
  const withName = named(drawn.filter(touches), fit(name, font), font);
  const active = new Set(drawn.filter(touches).flatMap((edge) => [edge.u, edge.v]));
  const nodes = { x: [], y: [], color: [], size: [], sensor: [] };
  const labels = { x: [], y: [], angle: [], align: [], text: [], color: [], font: [] };
  data.place.forEach(([x, y], at) => {
    const isSearched = at === state.search, isLit = state.search === null || active.has(at) || isSearched;
    nodes.x.push(x); nodes.y.push(y); nodes.sensor.push(data.sensors[at]);
    nodes.color.push(isSearched ? "#d69e00" : isLit ? INK : FADED); nodes.size.push((isSearched ? 16 : 11) * (width > 24 ? 0.65 : 1));
    if (!withName.has(at)) return;
    const angle = Math.atan2(y, x), left = Math.cos(angle) < -1e-6;
    labels.x.push(x * 1.12); labels.y.push(y * 1.12); labels.text.push(data.short[at]);
    labels.angle.push(left ? angle + Math.PI : angle); labels.align.push(left ? "right" : "left");
    labels.color.push(isLit ? INK : "#7b8794"); labels.font.push(`${font}px`);
  });
  model(`${name}-nodes`).data = nodes;
  model(`${name}-labels`).data = labels;
}

// The mean graph of the selected class, and of all samples of the other classes.
function classMeans() {
  const view = data.views[state.view], none = new Array(width * width).fill(0);
  const others = none.slice();
  let count = 0;
  for (const [code, mean] of Object.entries(view.means)) {
    if (Number(code) === state.code) continue;
    const n = data.counts[code];
    count += n;
    mean.forEach((w, at) => { others[at] += n * w; });
  }
  return { own: view.means[state.code] || none, others: others.map((w) => (count ? w / count : 0)) };
}

function showGraphs() {
  if (!data.views.length) return;
  const view = data.views[state.view];
  const name = compares ? `class ${data.groups[state.code]}` : data.groups[0];
  const others = data.groups.length === 2 ? `class ${data.groups[1 - state.code]}` : "all other classes";
  document.querySelectorAll(".class-name").forEach((place) => { place.textContent = name; });
  document.querySelectorAll(".others-name").forEach((place) => { place.textContent = others; });
  byId("view-about").textContent = view.about;
  byId("view-warning").textContent = view.warnings[state.code] || "";
  byId("view-warning").hidden = !view.warnings[state.code];
  byId("view-empty").textContent = view.empty;
  byId("view-empty").hidden = !view.empty;
  byId("graph-controls").classList.toggle("standing-still", Boolean(view.empty));
  byId("view-graphs").hidden = Boolean(view.empty);
  byId("threshold").disabled = Boolean(view.empty);
  byId("threshold-text").textContent = view.empty ? "this graph has no edges" : "";
  if (view.empty) return;
  const means = classMeans(), own = edgesOf(means.own), rest = edgesOf(means.others);
  const difference = edgesOf(means.own.map((w, at) => w - means.others[at]));
  const largest = Math.max(...[own[0], rest[0]].map((edge) => (edge ? Math.abs(edge.w) : 0)));
  const noSamples = "There are no samples of this class.", rows = compares ? difference : own;
  const otherCode = Object.keys(view.empty_classes).find((code) => Number(code) !== state.code);
  const recurs = (part) => (view.recurs[part] && view.recurs[part][state.code]) || null;
  drawGraph("graph-class", own, view.empty_classes[state.code] || noSamples, largest, () => CLASS, false, recurs("own"));
  drawGraph("graph-others", rest, view.empty_classes[otherCode] || noSamples, largest, () => OTHERS, false, recurs("others"));
  drawGraph("graph-difference", difference, "There is no difference: the two graphs are the same.",
    difference[0] ? Math.abs(difference[0].w) : 0, (w) => (w > 0 ? CLASS : OTHERS), true, recurs("difference"));
  const left = kept(own), weakest = left[left.length - 1];
  byId("threshold-text").textContent = left.length
    ? `${left.length} of ${own.length} edges shown, weight ${formatted(Math.abs(weakest.w))} or more` : "no edges shown";
  const evidence = view.evidence[state.code] || [];
  byId("evidence-card").hidden = !evidence.length;
  fill(byId("evidence"), evidence.flatMap(([question, answer]) => [element("dt", question), element("dd", answer)]));
  byId("seeds-key").hidden = recurs("own") === null;
  showEdges(means, rows, view.q[state.code] || null, recurs(compares ? "difference" : "own"));
}

// The table of the largest differences, or of the strongest edges where nothing is compared.
function showEdges(means, edges, q, recurs) {
  if (compares) byId("q-head").hidden = !q;
  byId("recurs-head").hidden = !recurs;
  const rows = kept(edges).filter(touches);
  fill(byId("edge-table").tBodies[0], rows.slice(0, 50).map((edge) => {
    const at = edge.u * width + edge.v, row = element("tr");
    row.append(element("th", data.sensors[edge.u], "name"), element("td", data.sensors[edge.v], "name"));
    row.firstChild.scope = "row";
    if (compares) row.append(element("td", withMinus(means.own[at]), "number extra"), element("td", withMinus(means.others[at]), "number extra"));
    row.append(element("td", compares ? signed(edge.w) : withMinus(edge.w), "number"));
    if (q) row.append(element("td", q[at].toFixed(3), "number"));
    if (recurs) row.append(element("td", recurs[at] ? "yes" : "no"));
    return row;
  }));
  const touching = state.search === null ? "" : ` that touch ${data.sensors[state.search]}`;
  const noun = compares ? "differences" : "edges";
  byId("edge-note").textContent = !rows.length ? `No ${noun}${touching} are shown.`
    : `The ${Math.min(50, rows.length)} ${compares ? "largest" : "strongest"} of ${edges.length} ${noun}${touching}.`
    + (q ? " q is the Benjamini-Hochberg adjusted p-value of a permutation test: of all edges with q below 0.05, about 5 % are expected to be false discoveries." : "");
}

function showSearch() {
  const text = byId("search").value.trim().toLowerCase();
  const exact = data.sensors.findIndex((name) => name.toLowerCase() === text);
  const nearest = exact >= 0 ? exact : data.sensors.findIndex((name) => name.toLowerCase().includes(text));
  state.search = text === "" || nearest < 0 ? null : nearest;
  byId("search-text").textContent = text === "" ? "" : nearest < 0 ? "no such sensor" : `found ${data.sensors[nearest]}`;
  if (state.search !== null) state.sensor = nearest;
}

// ------------------------------------------------------------------ one sample

const outputText = (x) => (data.shares ? `${(100 * x).toFixed(1)} %` : withMinus(x));

function listSamples() {
  const text = byId("sample-filter").value.trim().toLowerCase();
  const order = data.samples.map((_, at) => at).sort((a, b) => data.samples[b].score - data.samples[a].score);
  const matching = order.filter((at) => text === "" || `${data.samples[at].id} ${data.samples[at].truth}`.toLowerCase().includes(text));
  fill(byId("sample"), matching.map((at) => {
    const option = element("option", `${data.samples[at].id} (${data.samples[at].truth}; ${data.samples[at].predicted})`);
    option.value = String(at);
    return option;
  }));
  byId("sample-count").textContent = matching.length ? `${matching.length} samples` : "no such sample";
  if (matching.length && !matching.includes(state.sample)) state.sample = matching[0];
  byId("sample").value = String(state.sample);
}
function fact(name, value) {
  const pair = element("div");
  pair.append(element("dt", name), element("dd", value === null ? "unknown" : value));
  return pair;
}

function showSample() {
  if (!data.samples.length) return;
  const sample = data.samples[state.sample];
  byId("sample-title").textContent = sample.id;
  fill(byId("sample-facts"), [
    ...sample.facts.map(([name, value]) => fact(name, value)),
    fact("Readings", String(sample.time.length)),
    fact("Sensors with readings", `${sample.sensors.length} of ${width}`),
    ...Object.entries(sample.statics).map(([name, value]) => fact(name, value)),
  ]);
  fill(byId("sample-bars"), sample.bars.map(([name, share, text, strong]) => {
    const row = element("div", undefined, "bar"), track = element("span", undefined, "bar-track");
    const bar = element("span", undefined, strong ? "bar-fill of-class" : "bar-fill");
    bar.style.width = `${100 * share}%`;
    track.append(bar);
    row.append(element("span", name, "name"), track, element("span", text, "number"));
    return row;
  }));
  showContributions(sample);
  showReadings(sample);
  showSampleGraph();
}

function showContributions(sample) {
  const contribution = sample.contribution[state.output], without = sample.without[state.output];
  const [before, between, after] = data.effect_note, [explained, value] = sample.explained[state.output];
  byId("contribution-note").textContent = before + explained + between + value + after;
  const largest = Math.max(...contribution.map(Math.abs), 1e-9);
  const order = contribution.map((_, at) => at).filter((at) => countOf(sample, at)).sort((a, b) => Math.abs(contribution[b]) - Math.abs(contribution[a]));
  fill(byId("contributions").tBodies[0], order.map((at) => {
    const row = element("tr", undefined, at === state.search ? "searched" : ""), effect = element("div", undefined, "effect"), bar = element("span");
    const c = contribution[at], share = 50 * Math.abs(c) / largest;
    bar.style.cssText = `background:${c > 0 ? CLASS : OTHERS};width:${share}%;left:${c > 0 ? 50 : 50 - share}%`;
    effect.append(bar);
    const button = element("button", data.sensors[at], "link name");
    button.type = "button";
    button.addEventListener("click", () => { state.sensor = at; showSensor(); byId("sensor").scrollIntoView({ block: "center" }); });
    const name = element("th"), cell = element("td", undefined, "extra");
    name.scope = "row"; name.append(button); cell.append(effect);
    row.append(name, cell, element("td", signed(c), "number"), element("td", outputText(without[at]), "number"), element("td", String(countOf(sample, at)), "number extra"));
    return row;
  }));
}

function range(sample, sensor) {
  const at = sample.sensors.indexOf(sensor);
  return at < 0 ? [0, 0] : [sample.start[at], at + 1 < sample.start.length ? sample.start[at + 1] : sample.time.length];
}
const countOf = (sample, sensor) => { const [from, to] = range(sample, sensor); return to - from; };

function showSampleGraph() {
  if (!data.views.length || !data.samples.length) return;
  const view = data.views[state.view], edges = view.samples ? edgesOfSample(view.samples[state.sample]) : [];
  const empty = view.samples ? view.empty_samples[state.sample] : view.empty || `This graph exists ${compares ? "per class" : "of all samples"} only, not per sample.`;
  drawGraph("graph-sample", edges, empty, edges[0] ? Math.abs(edges[0].w) : 0, (w) => (w > 0 ? INK : "#8a6d00"));
  byId("sample-edge-list").hidden = !edges.length;
  fill(byId("sample-edges"), kept(edges).filter(touches).slice(0, 20).map((edge) =>
    element("li", `${data.sensors[edge.u]} → ${data.sensors[edge.v]}: ${formatted(edge.w)}`)));
}

// From blue over grey to red: how far a value is below or above the training mean.
function colourOf(z) {
  const share = Math.min(1, Math.abs(z) / 2.5), end = z < 0 ? [33, 102, 172] : [178, 24, 43];
  return `rgb(${[184, 192, 200].map((c, at) => Math.round(c + share * (end[at] - c))).join(",")})`;
}

function showReadings(sample) {
  const columns = { time: sample.time, sensor: [], value: sample.value, color: [], size: [], name: [], attention: [] };
  sample.sensors.forEach((sensor) => {
    const [from, to] = range(sample, sensor);
    for (let n = from; n < to; n++) {
      columns.sensor.push(data.short[sensor]);
      columns.name.push(data.sensors[sensor]);
      columns.color.push(colourOf((sample.value[n] - data.mean[sensor]) / data.scale[sensor]));
      columns.attention.push(sample.attention ? formatted(sample.attention[n]) : "");
      columns.size.push(sample.attention ? Math.min(16, Math.max(4, 8 * Math.sqrt(sample.attention[n]))) : 8);
    }
  });
  byId("attention-key").hidden = !sample.attention;
  const rows = sample.sensors.map((sensor) => data.short[sensor]).reverse();
  model("readings-sensors").factors = rows.length ? rows : ["-"];
  model("readings-chart").height = 80 + 24 * Math.max(rows.length, 2);
  model("readings").data = columns;
  fill(byId("sensor"), sample.sensors.map((sensor) => {
    const option = element("option", data.sensors[sensor]);
    option.value = String(sensor);
    return option;
  }));
  if (!sample.sensors.includes(state.sensor)) state.sensor = sample.sensors.length ? sample.sensors[0] : 0;
  showSensor();
}

function showSensor() {
  if (!data.samples.length) return;
  const sample = data.samples[state.sample], sensor = state.sensor, [from, to] = range(sample, sensor);
  byId("sensor").value = String(sensor);
  const time = sample.time.slice(from, to), value = sample.value.slice(from, to);
  const mean = data.mean[sensor], scale = data.scale[sensor];
  model("sensor-band").data = time.length ? { left: [Math.min(...sample.time)], right: [Math.max(...sample.time)], bottom: [mean - scale], top: [mean + scale] }
    : { left: [], right: [], bottom: [], top: [] };
  model("sensor").data = { time, value };
  byId("chart-sensor").setAttribute("aria-label", `Readings of ${data.sensors[sensor]} in sample ${sample.id}: ${time.length}`);
  fill(byId("sensor-table").tBodies[0], time.map((t, at) => {
    const row = element("tr");
    row.append(element("td", formatted(t), "number"), element("td", String(value[at]), "number"));
    return row;
  }));
}

// ------------------------------------------------------------------ start

function step(by) {
  const options = [...byId("sample").options], at = options.findIndex((option) => Number(option.value) === state.sample);
  if (!options.length) return;
  state.sample = Number(options[(at + by + options.length) % options.length].value);
  byId("sample").value = String(state.sample);
  showSample();
}
function showAll() { showGraphs(); showSample(); }

// The bar with the graph settings sticks to the top of wide windows; what is scrolled to must not end up behind it.
function reserveRoomForControls() {
  const bar = byId("graph-controls");
  const sticks = bar !== null && getComputedStyle(bar).position === "sticky";
  document.documentElement.style.scrollPaddingTop = sticks ? `${bar.offsetHeight + 12}px` : "";
}

async function start() {
  Bokeh.set_log_level("error");
  for (const [place, item] of Object.entries(charts)) if (exists(place)) await Bokeh.embed.embed_item(item, place);
  listen("view", "change", (event) => { state.view = Number(event.target.value); showGraphs(); showSampleGraph(); });
  listen("class", "change", (event) => { state.code = Number(event.target.value); showGraphs(); });
  listen("threshold", "input", (event) => { state.hidden = Number(event.target.value); showGraphs(); showSampleGraph(); });
  listen("search", "input", () => { showSearch(); showAll(); });
  listen("sample", "change", (event) => { state.sample = Number(event.target.value); showSample(); });
  listen("sample-filter", "input", () => { listSamples(); showSample(); });
  listen("sensor", "change", (event) => { state.sensor = Number(event.target.value); showSensor(); });
  listen("output", "change", (event) => { state.output = Number(event.target.value); showContributions(data.samples[state.sample]); });
  listen("previous", "click", () => step(-1));
  listen("next", "click", () => step(1));
  if (exists("threshold")) byId("threshold").value = String(state.hidden);
  document.querySelectorAll("form").forEach((form) => form.addEventListener("submit", (event) => event.preventDefault()));
  if (data.samples.length) { listSamples(); byId("sample").selectedIndex = 0; state.sample = Number(byId("sample").value); }
  showAll();
  reserveRoomForControls();
  window.addEventListener("beforeprint", () => { showGraphs(); showSampleGraph(); });
  let timer = null;
  window.addEventListener("resize", () => {
    clearTimeout(timer);
    timer = setTimeout(() => { showGraphs(); showSampleGraph(); reserveRoomForControls(); }, 150);
  });
  document.documentElement.dataset.ready = "yes";
}
start();
