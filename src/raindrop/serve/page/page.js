// The page: readings in as CSV, the service's answers out as drawings. It asks no other address than its own service.

import { contributions, graph, number, series, shares } from "/page/drawing.js";

const MAX_CHARACTERS = 2_000_000, MAX_SAMPLES = 200, MAX_BARS = 15, MAX_SERIES = 24, EDGES = 20, COVERAGE = 0.9;
const at = (id) => document.getElementById(id);
let models = {};

// ------------------------------------------------------------------------------------------------ asking

async function ask(path, body) {
  const headers = { Accept: "application/json" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const token = at("token").value.trim();
  if (token) headers.Authorization = `Bearer ${token}`;
  let answer;
  try {
    answer = await fetch(path, { method: body === undefined ? "GET" : "POST", headers, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch {
    throw new Error("The service does not answer. Is it still running?");
  }
  const content = await answer.json().catch(() => ({}));
  if (answer.status === 401) at("token-row").hidden = false;
  if (!answer.ok) throw new Error(content.error?.message ?? `The service answered with status ${answer.status}.`);
  return content;
}

async function loadModels() {
  const about = await ask("/v1/model");
  models = Object.fromEntries(about.models.map((card) => [card.kind, card]));
  const main = models.samples ?? about.models[0];
  at("about").textContent = `${main.name}: ${main.task}${main.labels.length ? " of " + main.labels.join(", ") : ""}, trained on ` +
    `${main.trained_on.samples.toLocaleString("en")} samples and ${main.sensors.length} sensors.`;
  at("unit").textContent = main.time_unit;
  at("examples").replaceChildren(...main.examples.map((example) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = example.title;
    button.addEventListener("click", () => {
      at("csv").value = asCsv(example.readings);
      predict();
    });
    return button;
  }));
  at("statics").replaceChildren(...main.statics.flatMap(staticInput));
}

function staticInput(attribute) {
  const label = document.createElement("label"), id = `static-${attribute.name}`;
  label.textContent = attribute.name;
  label.htmlFor = id;
  const input = document.createElement(attribute.values ? "select" : "input");
  if (attribute.values) {
    for (const value of ["", ...attribute.values]) input.append(new Option(value || "unknown", value));
  } else {
    input.type = "number";
    input.step = "any";
    input.placeholder = "unknown";
  }
  input.id = id;
  input.dataset.attribute = attribute.name;
  return [label, input];
}

// ------------------------------------------------------------------------------------------------ readings

function quoted(text) {
  return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function asCsv(readings) {
  const rows = readings.time.map((time, row) => [time, quoted(readings.sensor[row]), readings.value[row]].join(","));
  return ["time,sensor,value", ...rows].join("\n");
}

function parseLine(line, separator) {
  const cells = [];
  let cell = "", inside = false;
  for (let place = 0; place < line.length; place++) {
    const letter = line[place];
    if (inside && letter === '"' && line[place + 1] === '"') { cell += '"'; place++; }
    else if (letter === '"') inside = !inside;
    else if (letter === separator && !inside) { cells.push(cell.trim()); cell = ""; }
    else cell += letter;
  }
  cells.push(cell.trim());
  return cells;
}

export function parseCsv(text) {
  if (text.length > MAX_CHARACTERS) throw new Error("This is too much for the page. Send it to /v1/predict, or use 'raindrop predict'.");
  const lines = text.replace(/^\uFEFF/, "").split(/\r\n|\n|\r/).filter((line) => line.trim());
  if (lines.length < 2) throw new Error("Give a line with the names time,sensor,value and at least one reading below it.");
  const separator = [";", "\t"].find((mark) => lines[0].includes(mark)) ?? ",";
  const names = parseLine(lines[0], separator).map((name) => name.toLowerCase());
  const column = Object.fromEntries(["sample", "time", "sensor", "value"].map((name) => [name, names.indexOf(name)]));
  for (const name of ["time", "sensor", "value"]) {
    if (column[name] < 0) throw new Error(`The first line names the columns; '${name}' is missing. It should be: time,sensor,value`);
  }
  const samples = new Map();
  lines.slice(1).forEach((line, row) => {
    const cells = parseLine(line, separator);
    const [time, sensor, value] = ["time", "sensor", "value"].map((name) => cells[column[name]] ?? "");
    if (!value) return;
    const plain = (cell) => (separator === ";" ? cell.replace(",", ".") : cell), amount = Number(plain(value));
    if (!Number.isFinite(amount)) throw new Error(`Line ${row + 2}: the value '${value.slice(0, 40)}' is not a number.`);
    const when = time !== "" && Number.isFinite(Number(plain(time))) ? Number(plain(time)) : time;
    const id = column.sample < 0 ? "sample" : cells[column.sample] ?? "";
    if (!samples.has(id)) samples.set(id, { time: [], sensor: [], value: [] });
    const own = samples.get(id);
    own.time.push(when);
    own.sensor.push(sensor);
    own.value.push(amount);
  });
  if (!samples.size) throw new Error("No line has a value.");
  return samples;
}

function chosenSample(samples) {
  const select = at("sample"), ids = [...samples.keys()].slice(0, MAX_SAMPLES), before = select.value;
  select.replaceChildren(...ids.map((id) => new Option(id, id)));
  select.value = samples.has(before) && before ? before : ids[0];
  at("sample-row").hidden = ids.length < 2;
  return select.value;
}

function statics(id) {
  const given = {};
  for (const input of at("statics").querySelectorAll("[data-attribute]")) {
    const name = input.dataset.attribute;
    if (input.value !== "") given[name] = [input.type === "number" ? Number(input.value) : input.value];
  }
  return Object.keys(given).length ? { samples: { sample: [id], ...given } } : {};
}

// ------------------------------------------------------------------------------------------------ answering

let latest = 0;

async function predict() {
  const turn = ++latest;
  at("problem").hidden = true;
  at("go").disabled = true;
  at("state").textContent = "Working ...";
  document.documentElement.dataset.ready = "no";
  try {
    if (!Object.keys(models).length) await loadModels();
    const samples = parseCsv(at("csv").value), id = chosenSample(samples), own = samples.get(id);
    const readings = { sample: own.time.map(() => id), ...own };
    at("results").hidden = false;
    const asked = [
      models.samples ? showScore(readings, id) : hide("score", "moved"),
      showGraph(readings, id),
      showSeries(readings, id),
    ];
    const failures = (await Promise.allSettled(asked)).filter((one) => one.status === "rejected");
    if (turn !== latest) return;
    at("results").hidden = failures.length === asked.length;
    if (failures.length) throw failures[0].reason;
  } catch (error) {
    at("problem").textContent = error.message;
    at("problem").hidden = false;
  } finally {
    if (turn === latest) {
      at("go").disabled = false;
      at("state").textContent = "";
      document.documentElement.dataset.ready = "yes";
    }
  }
}

function hide(...ids) {
  for (const id of ids) at(id).hidden = true;
}

async function showScore(readings, id) {
  const card = models.samples;
  at("score").hidden = at("moved").hidden = true;
  const body = { readings, explain: true, ...statics(id) };
  if (card.intervals) body.coverage = COVERAGE;
  const answer = await ask("/v1/predict", body);
  const row = answer.predictions[0];
  at("score").hidden = at("moved").hidden = false;
  at("notes").replaceChildren(...answer.notes.map((note) => {
    const item = document.createElement("li");
    item.textContent = note;
    return item;
  }));
  headline(card, row);
  const bars = answer.contributions.slice(0, MAX_BARS);
  at("moved-hint").textContent = bars.length
    ? `By how much the ${answer.effect} of ${bars[0].of} change${answer.effect === "log odds" ? "" : "s"} when a sensor is left out.`
    : "No sensor moved it.";
  if (bars.length) contributions(at("moved-chart"), bars, answer.effect);
  else at("moved-chart").replaceChildren();
}

function headline(card, row) {
  const percent = (share) => `${(100 * share).toFixed(1)} %`, bars = [];
  if (card.classes.length) {
    const main = card.positive ?? String(row.predicted);
    at("headline").textContent = `${main}: ${percent(row["probability_" + main])}`;
    bars.push(...card.classes.map((name) => ({ name, share: row["probability_" + name] })));
    const possible = card.classes.filter((name) => row["possible_" + name]);
    at("interval").textContent = !("abstain" in row) ? "The model has no intervals: it was trained without validation samples."
      : possible.length === 1 ? `With a coverage of 90 % the class is ${possible[0]}.`
        : possible.length ? `With a coverage of 90 % it can be ${possible.join(" or ")}: the model cannot tell.`
          : "No class is typical enough for a coverage of 90 %: the sample is unlike those of training.";
  } else if (`probability_${card.labels[0]}` in row) {
    bars.push(...card.labels.map((name) => ({ name, share: row["probability_" + name] })));
    at("headline").textContent = card.labels.filter((name) => row["predicted_" + name]).join(", ") || "none of the labels";
    at("interval").textContent = "";
  } else {
    at("headline").textContent = card.labels.map((name) => `${name}: ${number(row[name])}`).join(", ");
    at("interval").textContent = card.labels.filter((name) => `${name}_low` in row)
      .map((name) => `With a coverage of 90 % ${name} lies between ${number(row[name + "_low"])} and ${number(row[name + "_high"])}.`).join(" ");
  }
  if (bars.length) shares(at("classes"), bars);
  else at("classes").replaceChildren();
}

async function showGraph(readings, id) {
  const body = { readings, edges: EDGES, ...(models.samples ? statics(id) : {}) };
  at("graph-chart").replaceChildren();
  let answer;
  try {
    answer = await ask("/v1/graph", body);
  } catch (error) {
    at("graph-hint").textContent = error.message;
    return;
  }
  const [found] = answer.graphs;
  at("graph-hint").textContent = found.empty || `The ${found.edges.length} strongest edges: which sensor informs which in this sample.`;
  if (found.edges.length) graph(at("graph-chart"), found.edges);
}

async function showSeries(readings, id) {
  let filled = { time: [], sensor: [], value: [], low: [], high: [] };
  if (models.imputer) {
    try {
      const answer = await ask("/v1/readings", { readings, task: "fill", coverage: COVERAGE });
      filled = answer.readings;
      at("series-hint").textContent = `${filled.time.length} readings filled by the imputer '${models.imputer.name}' (orange, with intervals of 90 %).`;
    } catch (error) {
      at("series-hint").textContent = error.message;
    }
  } else {
    at("series-hint").textContent = "No imputer is served, so gaps stay open. Name the run of 'raindrop impute train' in 'raindrop serve'.";
  }
  const clock = (time) => (typeof time === "number" ? time : Date.parse(time)), rows = new Map();
  const add = (source, kind) => source.time.forEach((time, row) => {
    const sensor = source.sensor[row];
    if (!rows.has(sensor)) rows.set(sensor, { readings: [], filled: [] });
    const one = { time: clock(time), value: source.value[row], label: String(time) };
    if (kind === "filled") Object.assign(one, { low: source.low[row], high: source.high[row] });
    rows.get(sensor)[kind].push(one);
  });
  add(readings, "readings");
  add(filled, "filled");
  const all = [...rows.values()].flatMap((row) => [...row.readings, ...row.filled]).sort((a, b) => a.time - b.time);
  const span = [all[0].time, all.at(-1).time, all[0].label, all.at(-1).label];
  const shown = [...rows].slice(0, MAX_SERIES).map(([sensor, row]) => {
    const figure = document.createElement("figure"), caption = document.createElement("figcaption");
    caption.textContent = sensor;
    row.readings.sort((a, b) => a.time - b.time);
    figure.append(caption, series(row.readings, row.filled, span));
    return figure;
  });
  at("series-charts").className = "series";
  at("series-charts").replaceChildren(...shown);
}

// ------------------------------------------------------------------------------------------------ files

async function take(file) {
  if (!file) return;
  if (file.size > MAX_CHARACTERS) {
    at("problem").textContent = "This file is too large for the page. Send it to /v1/predict, or use 'raindrop predict'.";
    at("problem").hidden = false;
    return;
  }
  at("csv").value = await file.text();
  await predict();
}

at("go").addEventListener("click", predict);
at("sample").addEventListener("change", predict);
at("file").addEventListener("change", (event) => take(event.target.files[0]));
for (const kind of ["dragover", "dragleave", "drop"]) {
  at("input").addEventListener(kind, (event) => {
    event.preventDefault();
    at("input").classList.toggle("dropping", kind === "dragover");
    if (kind === "drop") take(event.dataTransfer.files[0]);
  });
}
loadModels().catch((error) => {
  at("about").textContent = error.message;
}).finally(() => {
  document.documentElement.dataset.ready = "yes";
});
