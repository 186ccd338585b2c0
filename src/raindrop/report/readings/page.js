const FOLD = 40;  // rows of a long table that are shown at first
const state = { scenario: 0, unfolded: false, case: 0, sensor: 0, gap: 0 };
const percent = (share) => `${(100 * share).toFixed(1)} %`;
const precise = (x) => (Math.abs(x) >= 1e-3 && Math.abs(x) < 999.5 ? x.toPrecision(3) : formatted(x)).replace("-", "−");
const intervalText = (low, high) => (low === null || high === null ? "unknown" : `${withMinus(low)} to ${withMinus(high)}`);

// Dates are milliseconds since 1970, for Bokeh's axes too; the page has them since the start of their sample.
function toDates(each) {
  const moved = (times) => times.map((time) => each.zero + time);
  [each.start, each.stop] = moved([each.start, each.stop]);
  for (const filled of each.filled) {
    filled.time = moved(filled.time);
    filled.gaps = filled.gaps.map(([start, stop, from, to]) => [...moved([start, stop]), from, to]);
  }
  for (const readings of Object.values(each.readings)) readings[0] = moved(readings[0]);
}

// A time has as many digits as tell it from others nearby; a date has seconds only where there are some.
function timeText(time) {
  const current = data.cases[state.case], length = current.stop - current.start;
  if (data.dated) return new Date(Math.round(time)).toISOString().replace("T", " ").slice(0, length < 10_000 ? 23 : 19).replace(/:00$/, "");
  const digits = Math.max(0, Math.min(6, 2 - Math.floor(Math.log10(length || 1))));
  return Number(time.toFixed(digits)).toLocaleString("en", { maximumFractionDigits: digits }).replace("-", "−");
}

// ------------------------------------------------------------------ errors by sensor

function showErrors() {
  if (!exists("sensor-errors")) return;
  const scenario = data.scenarios[state.scenario], text = byId("sensor-filter").value.trim().toLowerCase();
  const name = (at) => data.sensors[scenario.sensor[at]], order = byId("order").value;
  const gain = (at) => (scenario.baseline[at] === null ? 0 : scenario.baseline[at] - scenario.scaled[at]);
  const compare = {
    error: (a, b) => scenario.scaled[b] - scenario.scaled[a],
    gain: (a, b) => gain(a) - gain(b),
    name: (a, b) => name(a).localeCompare(name(b), "en", { numeric: true }),
  }[order];
  const matching = scenario.sensor.map((_, at) => at).filter((at) => name(at).toLowerCase().includes(text)).sort(compare);
  const rows = state.unfolded ? matching : matching.slice(0, FOLD);
  const largest = Math.max(...scenario.scaled, ...scenario.baseline, 1e-9);
  byId("best-baseline").textContent = scenario.best || "baseline";
  fill(byId("sensor-errors").tBodies[0], rows.map((at) => {
    const row = element("tr"), head = element("th", name(at), "name"), cell = element("td", undefined, "extra track");
    const track = element("span", undefined, "bar-track"), bar = element("span", undefined, "bar-fill of-class");
    head.scope = "row";
    bar.style.width = `${100 * scenario.scaled[at] / largest}%`;
    track.append(bar);
    if (scenario.baseline[at] !== null) {
      const mark = element("span", undefined, "mark");
      mark.style.left = `${100 * scenario.baseline[at] / largest}%`;
      track.append(mark);
    }
    cell.append(track);
    row.append(head, cell, element("td", scenario.scaled[at].toFixed(3), "number"),
      element("td", scenario.baseline[at] === null ? "–" : scenario.baseline[at].toFixed(3), "number"),
      element("td", precise(scenario.mae[at]), "number"),
      ...scenario.coverage.map((share) => element("td", percent(share[at]), "number extra")),
      element("td", scenario.count[at].toLocaleString("en"), "number extra"));
    return row;
  }));
  byId("sensor-count").textContent = !matching.length ? "no such sensor"
    : rows.length < matching.length ? `${rows.length} of ${matching.length.toLocaleString("en")} sensors` : `${matching.length.toLocaleString("en")} ${matching.length === 1 ? "sensor" : "sensors"}`;
  byId("all-sensors").hidden = matching.length <= FOLD;
  byId("all-sensors").textContent = state.unfolded ? `Show the first ${FOLD} alone` : `Show all ${matching.length.toLocaleString("en")}`;
}

// ------------------------------------------------------------------ one case

function listCases() {
  const groups = new Map();
  data.cases.forEach((each, at) => {
    const kind = each.kind || "Gaps of the table";
    if (!groups.has(kind)) { groups.set(kind, element("optgroup")); groups.get(kind).label = kind; }
    state.case = at;
    const option = element("option", `${data.sensors[each.filled[0].sensor]} in ${each.sample}, ${timeText(each.start)} to ${timeText(each.stop)} (${each.reason})`);
    option.value = String(at);
    groups.get(kind).append(option);
  });
  state.case = 0;
  fill(byId("case"), [...groups.values()]);
}
function fact(name, value) {
  const pair = element("div");
  pair.append(element("dt", name), element("dd", value));
  return pair;
}

function showCase() {
  if (!data.cases.length) return;
  const current = data.cases[state.case];
  state.sensor = state.gap = 0;
  byId("case").value = String(state.case);
  fill(byId("sensor"), current.filled.map((each, at) => {
    const option = element("option", data.sensors[each.sensor]);
    option.value = String(at);
    return option;
  }));
  for (const name of ["case-x", "senders-x"]) {
    const range = model(name), room = 0.02 * (current.stop - current.start);
    if (range !== null) range.setv({ start: current.start - room, end: current.stop + room });
  }
  byId("thinned-note").hidden = !current.thinned;
  showSensor();
}

// The part of a column that belongs to each gap.
const runs = (filled) => filled.gaps.map(([, , from, to]) => [from, to]);

function showSensor() {
  const current = data.cases[state.case], filled = current.filled[state.sensor];
  const [time, value] = current.readings[filled.sensor];
  state.gap = 0;
  byId("sensor").value = String(state.sensor);
  byId("gap-label").hidden = filled.listed.length < 2;
  fill(byId("gap"), filled.listed.map(({ gap }, at) => {
    const option = element("option", `${timeText(filled.gaps[gap][0])} to ${timeText(filled.gaps[gap][1])}`);
    option.value = String(at);
    return option;
  }));
  const bounded = (at) => filled.low[at] !== null && filled.high[at] !== null;
  const bands = { xs: [], ys: [] }, bars = { time: [], low: [], high: [] }, lines = { xs: [], ys: [] };
  for (const [from, to] of runs(filled)) {
    const at = Array.from({ length: to - from }, (_, n) => from + n), within = at.filter(bounded);
    if (within.length > 1) {
      bands.xs.push([...within, ...within.slice().reverse()].map((n) => filled.time[n]));
      bands.ys.push([...within.map((n) => filled.low[n]), ...within.slice().reverse().map((n) => filled.high[n])]);
    } else within.forEach((n) => { bars.time.push(filled.time[n]); bars.low.push(filled.low[n]); bars.high.push(filled.high[n]); });
    lines.xs.push(at.map((n) => filled.time[n]));
    lines.ys.push(at.map((n) => filled.value[n]));
  }
  const senderText = (n, rank) => (filled.weights[n] && filled.weights[n][rank] ? `${data.sensors[filled.senders[n][rank]]} (${percent(filled.weights[n][rank])})` : "–");
  const columns = { time: filled.time, value: filled.value, interval: [], truth: [], first: [], second: [], third: [] };
  filled.time.forEach((_, n) => {
    columns.interval.push(intervalText(filled.low[n], filled.high[n]));
    columns.truth.push(filled.truth && filled.truth[n] !== null ? String(filled.truth[n]) : "unknown");
    ["first", "second", "third"].forEach((key, rank) => columns[key].push(senderText(n, rank)));
  });
  const known = filled.truth ? filled.time.map((_, n) => n).filter((n) => filled.truth[n] !== null) : [];
  // A line through readings is broken where there is a gap.
  const broken = { time: [], value: [] };
  time.forEach((t, at) => {
    if (at && filled.gaps.some(([start, stop]) => start < t && stop > time[at - 1])) { broken.time.push(t); broken.value.push(NaN); }
    broken.time.push(t); broken.value.push(value[at]);
  });
  model("case-readings").data = broken;
  model("case-bands").data = bands;
  model("case-bars").data = bars;
  model("case-lines").data = lines;
  model("case-filled").data = columns;
  model("case-truth").data = { time: known.map((n) => filled.time[n]), value: known.map((n) => filled.truth[n]) };
  byId("truth-key").hidden = !known.length;
  byId("readings-key").hidden = !time.length;
  const unbounded = !filled.time.some((_, n) => bounded(n));
  byId("band-key").hidden = unbounded;
  byId("band-note").hidden = !unbounded;
  byId("band-note").textContent = "There is no interval: the model was fitted without validation readings, or with too few.";
  byId("chart-case").setAttribute("aria-label", `${time.length} readings and ${filled.time.length} values of ${data.sensors[filled.sensor]}`);
  fill(byId("case-table").tBodies[0], filled.time.map((t, n) => {
    const row = element("tr");
    row.append(element("td", timeText(t), "number"), element("td", withMinus(filled.value[n]), "number"),
      element("td", intervalText(filled.low[n], filled.high[n]), "number"),
      element("td", filled.truth && filled.truth[n] !== null ? withMinus(filled.truth[n]) : "–", "number"));
    return row;
  }));
  showGap();
}

function showGap() {
  const current = data.cases[state.case], filled = current.filled[state.sensor], listed = filled.listed[state.gap];
  const [start, stop, from, to] = filled.gaps[listed.gap];
  byId("gap").value = String(state.gap);
  byId("case-title").textContent = `${data.sensors[filled.sensor]} in ${current.sample}${current.kind && current.kind !== "Forecast" ? ` (${current.kind.toLowerCase()})` : ""}`;
  const at = Array.from({ length: to - from }, (_, n) => from + n);
  const known = filled.truth ? at.filter((n) => filled.truth[n] !== null) : [];
  const inside = known.filter((n) => filled.low[n] !== null && filled.low[n] <= filled.truth[n] && filled.truth[n] <= filled.high[n]);
  const error = known.reduce((sum, n) => sum + Math.abs(filled.value[n] - filled.truth[n]), 0) / known.length;
  fill(byId("case-facts"), [
    fact("Chosen as", current.reason),
    fact("From", data.dated ? timeText(start) : `${timeText(start)} ${data.unit}`), fact("Length", `${formatted((stop - start) / data.perUnit)} ${data.unit}`),
    fact("Values", String(at.length)),
    ...(known.length ? [fact("Hidden readings", String(known.length)), fact("MAE", `${formatted(error)} (${formatted(error / data.scale[filled.sensor])} scaled)`)] : []),
    ...(known.length && filled.low[known[0]] !== null ? [fact("In 90 % interval", `${inside.length} of ${known.length}`)] : []),
  ]);
  model("case-gaps").data = {
    left: filled.gaps.map((gap) => gap[0]), right: filled.gaps.map((gap) => gap[1]),
    alpha: filled.gaps.map((_, n) => (n === listed.gap ? 0.9 : 0.35)),
  };
  if (data.messages) showSenders(current, filled, listed, start, stop);
}

function showSenders(current, filled, listed, start, stop) {
  const senders = listed.senders, largest = senders.length ? senders[0][1] : 1;
  const drawn = senders.slice(0, 3).filter(([sensor]) => current.readings[sensor] && current.readings[sensor][0].length);
  const colourOf = (sensor) => data.palette[drawn.findIndex((each) => each[0] === sensor)];
  fill(byId("senders"), senders.map(([sensor, weight]) => {
    const row = element("div", undefined, "bar"), track = element("span", undefined, "bar-track"), bar = element("span", undefined, "bar-fill");
    bar.style.width = `${100 * weight / largest}%`;
    bar.style.background = colourOf(sensor) || "#9aa5b1";
    track.append(bar);
    row.append(element("span", data.sensors[sensor], "name"), track, element("span", percent(weight), "number"));
    return row;
  }));
  const total = senders.reduce((sum, each) => sum + each[1], 0);
  byId("senders-note").textContent = senders.length
    ? `Mean attention over ${data.forecasts ? "these forecasts" : "the values of the gap"}. These ${senders.length} have ${percent(Math.min(total, 1))} of it; all together have at most 100 %.`
    : `No other sensor informed these ${data.forecasts ? "forecasts" : "values"}: none has readings nearby.`;
  byId("sender-part").hidden = !drawn.length;
  const lines = { xs: [], ys: [], color: [] }, dots = { time: [], scaled: [], value: [], color: [], sensor: [] };
  for (const [sensor] of drawn) {
    const [time, value] = current.readings[sensor], scaled = value.map((x) => (x - data.mean[sensor]) / data.scale[sensor]);
    lines.xs.push(time); lines.ys.push(scaled); lines.color.push(colourOf(sensor));
    time.forEach((t, n) => {
      dots.time.push(t); dots.scaled.push(scaled[n]); dots.value.push(value[n]);
      dots.color.push(colourOf(sensor)); dots.sensor.push(data.sensors[sensor]);
    });
  }
  model("senders-lines").data = lines;
  model("senders-dots").data = dots;
  model("senders-gap").data = { left: [start], right: [stop] };
  fill(byId("sender-key"), drawn.map(([sensor]) => {
    const entry = element("span"), swatch = element("span", undefined, "swatch");
    swatch.style.background = colourOf(sensor);
    entry.append(swatch, data.sensors[sensor]);
    return entry;
  }).concat(element("span", "in standard deviations from their training means")));
}

// ------------------------------------------------------------------ start

function step(by) {
  state.case = (state.case + by + data.cases.length) % data.cases.length;
  showCase();
}

async function start() {
  Bokeh.set_log_level("error");
  if (data.dated) data.cases.forEach(toDates);
  for (const [place, item] of Object.entries(charts)) if (exists(place)) await Bokeh.embed.embed_item(item, place);
  listen("scenario", "change", (event) => { state.scenario = Number(event.target.value); showErrors(); });
  listen("order", "change", showErrors);
  listen("sensor-filter", "input", showErrors);
  listen("all-sensors", "click", () => { state.unfolded = !state.unfolded; showErrors(); });
  listen("case", "change", (event) => { state.case = Number(event.target.value); showCase(); });
  listen("sensor", "change", (event) => { state.sensor = Number(event.target.value); showSensor(); });
  listen("gap", "change", (event) => { state.gap = Number(event.target.value); showGap(); });
  listen("previous", "click", () => step(-1));
  listen("next", "click", () => step(1));
  document.querySelectorAll("form").forEach((form) => form.addEventListener("submit", (event) => event.preventDefault()));
  showErrors();
  if (data.cases.length) { listCases(); showCase(); }
  document.documentElement.dataset.ready = "yes";
}
start();
