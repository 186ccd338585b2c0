// Pictures of sensor graphs: which frame is shown, which edges, and the evidence of one. Text is never markup.
for (const root of document.querySelectorAll(".sensor-graph")) {
  const FOLD = 30, all = (selector) => [...root.querySelectorAll(selector)], one = (selector) => root.querySelector(selector);
  const slider = one(".frame-slider"), choice = one(".frame-choice"), filter = one(".edge-filter");
  const list = one(".edges"), more = one(".all-edges"), said = one(".edge-text");
  let frame = 0, unfolded = false;

  const edges = () => all(`g.frame[data-frame="${frame}"] path.edge`).reverse();  // the strongest is drawn last
  const textOf = (path) => path.querySelector("title").textContent;
  function light(path) {
    all("path.lit").forEach((each) => each.classList.remove("lit"));
    path.classList.add("lit");
    said.textContent = textOf(path);
  }
  function matches(path) {
    const text = filter ? filter.value.trim().toLowerCase() : "";
    if (!text) return true;
    return path.dataset.edge.split(",").some((at) => one(`circle[data-sensor="${at}"] title`).textContent.toLowerCase().includes(text));
  }
  function show() {
    all("[data-frame]").forEach((each) => { each.toggleAttribute("hidden", Number(each.dataset.frame) !== frame); });
    if (slider) slider.setAttribute("aria-valuetext", one(`.frame-title [data-frame="${frame}"]`).textContent);
    said.textContent = "";
    if (!list) return;
    const shown = edges().filter(matches);
    edges().forEach((path) => path.classList.toggle("faded", !shown.includes(path)));
    const sensors = new Set(shown.flatMap((path) => path.dataset.edge.split(",")));
    const searched = filter && filter.value.trim() !== "";
    all("circle").forEach((dot) => dot.classList.toggle("faded", Boolean(searched) && !sensors.has(dot.dataset.sensor)));
    list.replaceChildren(...(unfolded ? shown : shown.slice(0, FOLD)).map((path) => {
      const row = document.createElement("li"), button = document.createElement("button");
      button.type = "button";
      button.textContent = textOf(path);
      for (const event of ["focus", "mouseenter", "click"]) button.addEventListener(event, () => light(path));
      row.append(button);
      return row;
    }));
    if (!shown.length && searched) said.textContent = "No edge of such a sensor is shown here.";
    more.hidden = shown.length <= FOLD;
    more.textContent = unfolded ? `Show the first ${FOLD}` : `Show all ${shown.length}`;
    one(".edges-title").hidden = !shown.length;
  }
  const select = (event) => { frame = Number(event.target.value); show(); };
  if (slider) slider.addEventListener("input", select);
  if (choice) choice.addEventListener("change", select);
  if (filter) filter.addEventListener("input", show);
  if (more) more.addEventListener("click", () => { unfolded = !unfolded; show(); });
  all("path.edge").forEach((path) => path.addEventListener("click", () => light(path)));
  all("path.edge").forEach((path) => path.addEventListener("mouseenter", () => light(path)));
  one("form").addEventListener("submit", (event) => event.preventDefault());
  show();
}
if (document.getElementById("charts") === null) document.documentElement.dataset.ready = "yes";
