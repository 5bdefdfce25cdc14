// The page that lays runs side by side: data.runs has the best first, data.differing the keys with a value a run.
document.title = "compared runs – qft";
const kDashes = [[], [7, 4], [2, 3], [9, 3, 2, 3]];
const marks = data.runs.map((run, i) => ({ color: kColors[i % kColors.length], dash: kDashes[Math.floor(i / kColors.length) % kDashes.length] }));
const hidden = data.runs.map(() => false);
const allSeries = [];
const words = value => value === null || value === undefined ? "–" : Array.isArray(value) ? value.join(", ") : shown(value);
const swatch = i => { const mark = make("i"); mark.style.cssText = `display:inline-block;width:10px;height:10px;border-radius:2px;margin-right:8px;background:${marks[i].color}`; return mark; };
// The name of a run, which hides its curves and shows them again.
function named(i) {
  const element = make("span", { class: "toggle", title: data.runs[i].dir + ": hides and shows its curves" }, swatch(i), data.runs[i].name);
  element.onclick = () => {
    hidden[i] = !hidden[i];
    element.classList.toggle("off", hidden[i]);
    for (const s of allSeries) if (s.run === i) s.hidden = hidden[i];
    redraw();
  };
  return element;
}
const status = run => make("span", { class: "status " + run.status, style: "margin: 0", text: run.status });

function heading() {
  page.append(make("h1", { text: `${data.runs.length} runs side by side` }));
  for (const text of data.problems) page.append(make("div", { class: "panel warning", text }));
}

function best() {
  const head = ["run", "best eval_loss", "at step", "last loss", "steps", "tokens a second", "time", "peak memory of a rank", "status"];
  const table = make("table", { class: "numbers" }, make("tr", {}, ...head.map(text => make("th", { text }))));
  data.runs.forEach((run, i) => {
    const cells = [named(i), short(run.best_eval_loss), run.best_eval_step === null ? "–" : run.best_eval_step, short(run.loss),
                   run.step === null ? "–" : `${run.step} / ${run.total_steps === null ? "–" : run.total_steps}`,
                   run.tokens_per_second === null ? "–" : Math.round(run.tokens_per_second).toLocaleString(), run.time, bytes(run.memory_peak), status(run)];
    table.append(make("tr", {}, ...cells.map(cell => make("td", {}, cell instanceof Node ? cell : String(cell)))));
  });
  page.append(make("h2", { text: "Best values" }), make("div", { class: "panel scroll" }, table));
}

function differing() {
  const keys = Object.keys(data.differing);
  if (!keys.length) { page.append(make("h2", { text: "What differs" }), make("div", { class: "panel faint", text: "no key differs" })); return; }
  const table = make("table", {}, make("tr", {}, make("th", { text: "key" }), ...data.runs.map((run, i) => make("th", {}, swatch(i), run.name))));
  for (const key of keys) table.append(make("tr", {}, make("td", { class: "faint", style: "white-space: nowrap", text: key }), ...data.differing[key].map(value => make("td", { text: words(value) }))));
  page.append(make("h2", { text: "What differs" }), make("div", { class: "panel scroll" }, table));
}

function curves() {
  const names = ["loss", "eval_loss", "learning_rate", "grad_norm", "tokens_per_second", "memory_peak"].filter(name => data.runs.some(run => run.curves[name]));
  const box = make("div", { class: "charts" });
  for (const name of names) {
    const series = [];
    data.runs.forEach((run, i) => { if (run.curves[name]) series.push({ name: run.name, points: run.curves[name], run: i, hidden: false, ...marks[i] }); });
    allSeries.push(...series);
    box.append(new Chart(name, series, name === "loss" || name === "eval_loss").element);
  }
  const key = make("div", { class: "legend" }, ...data.runs.map((run, i) => named(i)));
  if (names.length) page.append(make("h2", { text: "Curves" }), tools(), key, make("p"), box);
}

heading();
best();
differing();
curves();
page.append(make("p", { class: "faint", text: `this page is of ${moment(data.now)}` }));
