// The first panel: threshold, smallest area, figures, table, downloads.

import { ask, sentence } from "./api.js";
import { area, duration, element, number, percent, round125 } from "./format.js";

const ROWS = 200;
const LONG_S = 300;
const $ = (id) => document.getElementById(id);

export class Result {
  constructor(sceneMap) {
    this.sceneMap = sceneMap;
    this.job = null;
    this.steps = [0];
    sceneMap.onselect = (id) => this.#mark(id, true);
    $("threshold").addEventListener("input", () => this.#thresholdMoved());
    $("min-area").addEventListener("input", () => this.#apply());
  }

  // A job to look at; called again whenever it has changed.
  show(job) {
    const other = this.job?.id !== job.id;
    const finished = job.state === "done" && (other || this.job.state !== "done");
    this.job = job;
    this.#tell(job);
    if (other) this.#clear();
    if (finished) this.#fetch();
    this.#links();
  }

  get threshold() {
    return Number($("threshold").value);
  }

  get least() {
    return this.steps[Number($("min-area").value)] ?? 0;
  }

  #tell(job) {
    const box = $("status");
    box.className = `status ${job.state === "failed" ? "bad" : ""}`;
    box.hidden = job.state === "done";
    if (!box.hidden) box.replaceChildren(...describe(job));
    const warnings = job.result?.warnings ?? [];
    $("warnings").hidden = warnings.length === 0;
    $("warnings").replaceChildren(...warnings.map((text) => element("li", { textContent: sentence(text) })));
  }

  #clear() {
    this.found = null;
    for (const id of ["count", "area", "share"]) $(id).textContent = "–";
    $("rows").replaceChildren();
    $("empty").hidden = true;
    $("note").textContent = "\u00a0";
    this.steps = [0];
    $("min-area").value = 0;
    $("min-area-value").textContent = "all";
  }

  #thresholdMoved() {
    $("threshold-value").textContent = this.threshold.toFixed(2);
    this.#links();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.#fetch(), 60);
  }

  async #fetch() {
    if (this.job?.state !== "done") return;
    this.abort?.abort();
    this.abort = new AbortController();
    const id = this.job.id;
    try {
      const found = await ask(`/api/jobs/${id}/polygons?threshold=${this.threshold}`, { signal: this.abort.signal });
      if (id !== this.job.id) return;
      this.found = found;
    } catch (error) {
      if (error.name !== "AbortError") $("note").textContent = error.message;
      return;
    }
    this.sceneMap.setPolygons(this.found);
    this.#makeSteps();
    this.#apply();
  }

  // The slider runs over round areas, from one pixel to the largest polygon.
  #makeSteps() {
    const least = this.least;
    const largest = this.found.features[0]?.properties.area_m2 ?? 0;
    this.steps = [0];
    let step = round125(Math.max(this.job.view.pixel_area, 1e-9)) * 2;
    while (step < largest && this.steps.length < 40) {
      this.steps.push(step);
      const lead = Math.round(step / 10 ** Math.floor(Math.log10(step) + 1e-9));
      step *= lead === 2 ? 2.5 : 2;
      step = Number(step.toPrecision(3));
    }
    $("min-area").max = this.steps.length - 1;
    const at = this.steps.findLastIndex((value) => value <= least);
    $("min-area").value = Math.max(0, at);
  }

  #apply() {
    const found = this.found;
    if (!found) return;
    const { unit } = found;
    const least = this.least;
    const shown = found.features.filter((feature) => feature.properties.area_m2 >= least);
    const cut = found.features.length < found.count && least === 0;
    const total = cut ? found.area : shown.reduce((sum, f) => sum + f.properties.area_m2, 0);
    $("min-area-value").textContent = least ? `from ${area(least, unit)}` : "all";
    $("count").textContent = number(cut ? found.count : shown.length);
    $("area").textContent = area(total, unit);
    $("share").textContent = percent(found.change_fraction);
    this.sceneMap.setSmallest(least);
    $("rows").replaceChildren(...shown.slice(0, ROWS).map((feature) => this.#row(feature, unit)));
    $("empty").hidden = shown.length > 0;
    $("note").textContent = this.#note(found, shown.length);
    this.#links();
  }

  #note(found, shown) {
    const notes = [];
    if (found.features.length < found.count) notes.push(`The map shows the ${number(found.features.length)} largest.`);
    if (shown > ROWS) notes.push(`The table has the first ${ROWS}.`);
    if (found.step > 1) notes.push(`Outlines are drawn at 1:${found.step}; downloads are exact.`);
    return notes.join(" ") || "\u00a0";
  }

  #row(feature, unit) {
    const { id, properties: p } = feature;
    const button = element("button", { type: "button", textContent: String(id) });
    button.setAttribute("aria-label", `Zoom to polygon ${id}`);
    const cells = [area(p.area_m2, unit), p.prob_mean.toFixed(2), p.prob_max.toFixed(2)];
    const row = element("tr", {}, element("td", {}, button), ...cells.map((textContent) => element("td", { textContent })));
    row.dataset.id = id;
    row.addEventListener("click", () => {
      this.sceneMap.choose(id, { zoom: true });
      this.#mark(id, false);
    });
    return row;
  }

  #mark(id, scroll) {
    for (const row of $("rows").children) {
      const chosen = row.dataset.id === String(id);
      row.setAttribute("aria-selected", chosen);
      if (chosen && scroll) row.scrollIntoView({ block: "nearest" });
    }
  }

  #links() {
    const done = this.job?.state === "done";
    for (const link of $("downloads").querySelectorAll("a")) {
      const query = link.dataset.file === "probability.tif" ? "" : `?threshold=${this.threshold}&min_area=${this.least}`;
      if (done) link.href = `/api/jobs/${this.job.id}/${link.dataset.file}${query}`;
      else link.removeAttribute("href");
    }
  }
}

// What a job that is not done is about, for the panel and for the list.
export function describe(job) {
  const texts = {
    failed: () => `Failed: ${job.error}`,
    cancelled: () => "Cancelled.",
    queued: () => (job.place ? `Waiting: ${job.place} before it.` : "Waiting for the model.") + lasting(job),
    running: () => running(job),
    done: () => `${percent(job.result.change_fraction)} changed${job.result.ahead ? "" : ` · ${duration(job.result.seconds)}`}`,
  };
  const parts = [element("span", { textContent: texts[job.state]() })];
  if (job.state === "running") {
    const bar = element("progress", { max: job.progress?.total ?? 1 });
    if (job.progress) bar.value = job.progress.done;
    bar.setAttribute("aria-label", "Progress");
    parts.push(bar);
  }
  return parts;
}

function running(job) {
  const p = job.progress;
  if (!p) return `Preparing the images…${lasting(job)}`;
  const speed = `${number(p.tiles_per_s, 1)} tiles/s, ${number(p.mp_per_s, 2)} MP/s`;
  return `${p.done} of ${p.total} tiles · ${speed} · ${duration(p.eta_s)} left`;
}

function lasting(job) {
  if (!job.estimate_s) return "";
  const long = job.estimate_s > LONG_S ? " Cancel it if that is too long, or use a machine with a GPU." : "";
  return ` It takes about ${duration(job.estimate_s)}.${long}`;
}
