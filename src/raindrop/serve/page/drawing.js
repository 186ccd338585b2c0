// Drawings as SVG elements. Names from the data are only ever set as text.

const SPACE = "http://www.w3.org/2000/svg";

export function element(name, attributes = {}, text = "") {
  const made = document.createElementNS(SPACE, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
  if (text) made.textContent = text;
  return made;
}

function drawing(width, height, label) {
  return element("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
}

export function short(text, length) {
  return text.length > length ? text.slice(0, length - 1) + "…" : text;
}

export function number(value) {
  if (value === null || !Number.isFinite(value)) return "unknown";
  const size = Math.abs(value);
  return size !== 0 && (size >= 1e5 || size < 1e-3) ? value.toExponential(2) : String(Number(value.toPrecision(4)));
}

function titled(shape, text) {
  shape.append(element("title", {}, text));
  return shape;
}

// The width to draw in: that of the place, so that letters keep their size.
function widthOf(place, most) {
  return Math.round(Math.min(Math.max(place.clientWidth, 240), most));
}

function letters(width) {
  return Math.max(8, Math.floor(width / 7));
}

// Probabilities as bars: [{name, share}].
export function shares(place, rows) {
  const width = widthOf(place, 800), start = Math.min(170, width * 0.3), end = width - 62;
  const svg = drawing(width, rows.length * 30 + 4, "Probability of each class");
  rows.forEach((row, at) => {
    const top = at * 30 + 4, long = end - start;
    svg.append(element("text", { x: 0, y: top + 16 }, short(row.name, letters(start))));
    svg.append(element("rect", { x: start, y: top + 2, width: long, height: 18, rx: 3, class: "track" }));
    svg.append(element("rect", { x: start, y: top + 2, width: Math.max(1, long * row.share), height: 18, rx: 3, class: "bar" }));
    svg.append(element("text", { x: width, y: top + 16, "text-anchor": "end" }, (100 * row.share).toFixed(1) + " %"));
  });
  place.replaceChildren(svg);
}

// Contributions as bars to both sides of zero: [{sensor, contribution, without}].
export function contributions(place, rows, effect) {
  const width = widthOf(place, 560), start = Math.min(190, width * 0.34), middle = (start + width - 66) / 2;
  const largest = Math.max(...rows.map((row) => Math.abs(row.contribution)), 1e-12), bottom = rows.length * 28 + 4;
  const svg = drawing(width, bottom + 20, "Contribution of each sensor");
  svg.append(element("line", { x1: middle, x2: middle, y1: 0, y2: bottom, class: "axis" }));
  rows.forEach((row, at) => {
    const long = ((middle - start) * Math.abs(row.contribution)) / largest, up = row.contribution > 0, top = at * 28 + 4;
    svg.append(element("text", { x: 0, y: top + 14 }, short(row.sensor, letters(start))));
    const bar = element("rect", { x: up ? middle : middle - long, y: top, width: Math.max(long, 1), height: 19, rx: 2, class: up ? "up" : "down" });
    svg.append(titled(bar, `${row.sensor}: ${number(row.contribution)} ${effect}; without it ${number(row.without)}`));
    const size = Math.abs(row.contribution), text = size < 0.001 ? "<0.001" : String(Number(size.toPrecision(3)));
    svg.append(element("text", { x: width, y: top + 14, "text-anchor": "end" }, (up ? "+" : "−") + text));
  });
  svg.append(element("text", { x: middle - 5, y: bottom + 15, "text-anchor": "end", class: "soft" }, "lowers"));
  svg.append(element("text", { x: middle + 5, y: bottom + 15, class: "soft" }, "raises"));
  place.replaceChildren(svg);
}

// Edges between sensors on a circle: [{sender, receiver, weight}].
export function graph(place, edges) {
  const names = [...new Set(edges.flatMap((edge) => [edge.sender, edge.receiver]))];
  const width = widthOf(place, 520), middle = width / 2, radius = Math.min(width / 2 - 92, 150), centre = radius + 30;
  const spot = new Map(names.map((name, at) => {
    const angle = -Math.PI / 2 + (2 * Math.PI * at) / names.length;
    return [name, [middle + radius * Math.cos(angle), centre + radius * Math.sin(angle), angle]];
  }));
  const svg = drawing(width, 2 * centre, "Sensor graph");
  const largest = Math.max(...edges.map((edge) => Math.abs(edge.weight)), 1e-12);
  for (const edge of [...edges].reverse()) {
    const [x1, y1] = spot.get(edge.sender), [x2, y2] = spot.get(edge.receiver), share = Math.abs(edge.weight) / largest;
    const bendX = (x1 + x2) / 2 + 0.18 * (y1 - y2), bendY = (y1 + y2) / 2 + 0.18 * (x2 - x1);
    const back = Math.hypot(x2 - bendX, y2 - bendY) || 1, ux = (x2 - bendX) / back, uy = (y2 - bendY) / back;
    const endX = x2 - 9 * ux, endY = y2 - 9 * uy, wide = 2.5 + 2.5 * share;
    const line = element("path", {
      d: `M${x1} ${y1} Q${bendX} ${bendY} ${endX - 6 * ux} ${endY - 6 * uy}`,
      class: "edge", "stroke-width": 0.6 + 2.4 * share, opacity: 0.25 + 0.6 * share,
    });
    svg.append(titled(line, `${edge.sender} → ${edge.receiver}: ${number(edge.weight)}`));
    const [baseX, baseY] = [endX - 9 * ux, endY - 9 * uy];
    svg.append(element("polygon", {
      points: `${endX},${endY} ${baseX - wide * uy},${baseY + wide * ux} ${baseX + wide * uy},${baseY - wide * ux}`,
      class: "arrow", opacity: 0.35 + 0.6 * share,
    }));
  }
  for (const [name, [x, y, angle]] of spot) {
    svg.append(titled(element("circle", { cx: x, cy: y, r: 6, class: "node" }), name));
    const side = Math.cos(angle), anchor = side > 0.3 ? "start" : side < -0.3 ? "end" : "middle";
    svg.append(element("text", { x: x + 12 * side, y: y + 16 * Math.sin(angle) + 4, "text-anchor": anchor }, short(name, 12)));
  }
  place.replaceChildren(svg);
}

// One sensor over time: readings, and filled ones with their intervals.
export function series(readings, filled, span) {
  const width = 320, height = 130, left = 60, right = 8, top = 8, bottom = 22;
  const known = filled.flatMap((row) => [row.value, row.low, row.high]).filter((value) => Number.isFinite(value) && value !== null);
  const values = [...readings.map((row) => row.value), ...known];
  let [low, high] = [Math.min(...values), Math.max(...values)];
  if (low === high) [low, high] = [low - 1, high + 1];
  const reach = span[1] - span[0] || 1;
  const x = (time) => left + ((time - span[0]) / reach) * (width - left - right);
  const y = (value) => top + (1 - (value - low) / (high - low)) * (height - top - bottom);
  const svg = drawing(width, height, "Readings over time");
  svg.append(element("line", { x1: left, x2: width - right, y1: height - bottom, y2: height - bottom, class: "axis" }));
  svg.append(element("line", { x1: left, x2: left, y1: top, y2: height - bottom, class: "axis" }));
  for (const [value, place] of [[high, top + 8], [low, height - bottom]]) {
    svg.append(element("text", { x: left - 5, y: place, "text-anchor": "end", class: "soft" }, number(value)));
  }
  if (readings.length > 1) {
    svg.append(element("polyline", { points: readings.map((row) => `${x(row.time)},${y(row.value)}`).join(" "), class: "line" }));
  }
  for (const row of filled) {
    if (Number.isFinite(row.low) && row.low !== null && Number.isFinite(row.high)) {
      svg.append(element("line", { x1: x(row.time), x2: x(row.time), y1: y(row.low), y2: y(row.high), class: "whisker" }));
    }
    const dot = element("circle", { cx: x(row.time), cy: y(row.value), r: 3, class: "filled" });
    svg.append(titled(dot, `${row.label}: ${number(row.value)} (${number(row.low)} to ${number(row.high)}), filled`));
  }
  for (const row of readings) {
    svg.append(titled(element("circle", { cx: x(row.time), cy: y(row.value), r: 3, class: "reading" }), `${row.label}: ${number(row.value)}`));
  }
  svg.append(element("text", { x: left, y: height - 6, class: "soft" }, readings.length || filled.length ? short(span[2], 19) : ""));
  svg.append(element("text", { x: width - right, y: height - 6, "text-anchor": "end", class: "soft" }, short(span[3], 19)));
  return svg;
}
