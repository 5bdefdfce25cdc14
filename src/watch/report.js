// The page of one run.
const run = data, about = run.description || {};
const last = name => { const c = run.curves[name]; return c && c.length ? c[c.length - 1][1] : null; };

function heading() {
  const name = about.name || run.dir;
  document.title = name + " – qft";
  page.append(make("div", {}, make("h1", {}, make("span", { text: name }), make("span", { class: "status " + run.status, text: run.status }))));
  const model = about.model || {};
  const words = [];
  if (model.path) words.push(`${model.path}: ${count(model.parameters)} parameters, ${count(model.trainable)} trained`);
  if (about.ranks) words.push(`${about.ranks} rank${about.ranks === 1 ? "" : "s"} on ${[...new Set(about.hosts || [])].join(", ")}, ${about.device}`);
  if (about.strategy) words.push(about.strategy);
  for (const text of words) page.append(make("div", { class: "faint", text }));
  for (const text of run.warnings) page.append(make("div", { class: "panel warning", text }));
}

function cards() {
  const l = run.last || {}, at = run.progress || {};  // of a run that goes on
  const newer = at.step >= 0 && !(at.step <= l.current_steps);
  const step = newer ? at.step : l.current_steps, total = newer ? at.total_steps : l.total_steps;
  const list = [["step", step === undefined ? "–" : `${step} / ${total}`], ["loss", short(last("loss"))]];
  if (run.curves.eval_loss) list.push(["evaluation loss", short(last("eval_loss"))]);
  list.push(["tokens a second", last("tokens_per_second") === null ? "–" : Math.round(last("tokens_per_second")).toLocaleString()],
            ["tokens so far", count(last("num_input_tokens_seen"))], ["time gone", l.elapsed_time || "–"]);
  if (run.status === "running") list.push(["time left", l.remaining_time || "–"]);
  list.push(["peak memory of a rank", bytes(last("memory_peak"))],
            ["last checkpoint", run.checkpoints.length ? run.checkpoints[run.checkpoints.length - 1].name : "none"]);
  page.append(make("div", { class: "grid" }, ...list.map(([label, value]) => make("div", { class: "card" }, make("b", { text: value }), make("span", { text: label })))));
}

function curves() {
  const names = Object.keys(run.curves);
  if (!names.length) return;
  const series = (name, color) => ({ name: name.replace(/^(seconds|system)\/(\w+_(?=\d+$))?/, ""), points: run.curves[name], color });
  const main = [];
  if (run.curves.loss) main.push(series("loss", "--a"));
  if (run.curves.eval_loss) main.push(series("eval_loss", "--b"));
  const box = make("div", { class: "charts" });
  if (main.length) box.append(new Chart("loss", main, true).element);
  // What differs by its number alone, as of GPUs, shares a picture.
  const groups = new Map();
  for (const name of names) {
    if (["loss", "eval_loss", "epoch"].includes(name)) continue;
    const group = name.startsWith("system/") ? name.replace(/_\d+$/, "") : name.startsWith("seconds/") ? "seconds of a log line, by phase" : name;
    groups.set(group, [...(groups.get(group) || []), name]);
  }
  const element = ([group, members]) => new Chart(group, members.map((n, i) => series(n, members.length > 1 ? kColors[i % kColors.length] : "--a")), false).element;
  const first = ["grad_norm", "learning_rate", "tokens_per_second", "memory_peak"];
  const sorted = [...groups].sort((x, y) => (first.indexOf(x[0]) + 99) % 99 - (first.indexOf(y[0]) + 99) % 99);
  for (const group of sorted) box.append(element(group));
  page.append(make("h2", { text: "Curves" }), tools(), make("p"), box);
}

function shares(title, parts, format, note) {
  const list = Object.entries(parts || {}).filter(([, v]) => v > 0);
  const sum = list.reduce((s, [, v]) => s + v, 0);
  if (!sum) return;
  const bar = make("div", { class: "bar" }), legend = make("div", { class: "legend" });
  list.sort((x, y) => y[1] - x[1]).forEach(([name, v], i) => {
    const part = make("div", { title: `${name} ${format(v)}` }), mark = make("i");
    part.style.flex = v / sum; part.style.background = mark.style.background = kColors[i % kColors.length];
    bar.append(part);
    legend.append(make("span", {}, mark, `${name} ${format(v)} (${(100 * v / sum).toFixed(1)} %)`));
  });
  page.append(make("h2", { text: title }), make("div", { class: "panel" }, bar, legend, note ? make("div", { class: "faint", text: note }) : null));
}

function phases() {
  shares("Where the time goes", run.phases, v => `${v.toFixed(1)} s`, "of all log lines, on rank 0");
}

function memory() {
  const m = about.memory;
  if (m) shares("Memory of a rank by part, predicted", m.parts, bytes,
                `${bytes(m.total)} predicted, ${bytes(m.available)} available` + (last("memory_peak") !== null ? `, ${bytes(last("memory_peak"))} taken at most` : ""));
}

function lengths() {
  const l = about.data && about.data.lengths;
  if (!l || !l.counts) return;
  const most = Math.max(...l.counts), box = make("div");
  box.style.cssText = "display:flex;align-items:flex-end;height:150px;gap:1px";
  l.counts.forEach((n, i) => {
    const bar = make("div", { title: `${i * l.width} to ${(i + 1) * l.width - 1} tokens: ${n} samples` });
    bar.style.cssText = `flex:1;background:var(--a);height:${n ? Math.max(1, 100 * n / most) : 0}%`;
    box.append(bar);
  });
  const axis = make("div", { class: "faint" }, make("span", { text: "0" }), make("span", { text: `${l.counts.length * l.width} tokens` }));
  axis.style.cssText = "display:flex;justify-content:space-between;font-size:13px";
  page.append(make("h2", { text: "Lengths of the data" }), make("div", { class: "panel" }, box, axis,
    make("div", { class: "faint", text: `${(about.data.samples || 0).toLocaleString()} samples of ${(about.data.sources || []).join(", ")}: ${l.mean.toFixed(1)} tokens on average, ${l.longest} at most; cutoff_len ${l.cutoff_len}` })));
}

function samples() {
  if (!run.samples.length) return;
  const columns = [["prompt", "question"], ["expected", "expected"], ["base", "base model"], ["tuned", "tuned model"]].filter(([key]) => run.samples.some(s => s[key]));
  const table = make("table", { class: "samples" }, make("tr", {}, ...columns.map(([, title]) => make("th", { text: title }))));
  for (const s of run.samples) table.append(make("tr", {}, ...columns.map(([key]) => make("td", { text: s[key] }))));
  page.append(make("h2", { text: "Answers" }), make("div", { class: "panel scroll" }, table));
}

function table(title, rows, open) {
  if (!rows.length) return;
  const box = make("div", { class: "settings" });
  for (const [key, value] of rows) box.append(make("div", {}, make("span", { class: "faint", text: key }), make("span", { text: value })));
  page.append(make("details", { open }, make("summary", { text: title }), make("div", { class: "panel" }, box)));
}
heading();
cards();
curves();
phases();
memory();
lengths();
samples();
table("Results", Object.entries(run.results || {}).map(([k, v]) => [k, typeof v === "number" ? short(v) : shown(v)]), true);
table("Checkpoints", run.checkpoints.map(c => [c.name, moment(c.time)]), true);
table("Settings", Object.entries(about.settings || {}).filter(([, v]) => v !== null && v !== "" && !(Array.isArray(v) && !v.length)).map(([k, v]) => [k, shown(v)]), false);
page.append(make("p", { class: "faint", text: `run ${about.run || "–"}, begun ${moment(about.started)}; qft ${about.version || "–"}; this page is of ${moment(run.now)}` }));
