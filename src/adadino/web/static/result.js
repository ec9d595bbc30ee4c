// The first panel: threshold, smallest polygon, figures, table, downloads.

import { ask, sentence } from "./api.js";
import { $, element } from "./dom.js";
import { Downloads } from "./downloads.js";
import { area, areaOf, number, percent, round125 } from "./format.js";
import { tellServices } from "./services.js";
import { announcement, JobStatus } from "./status.js";
import { PolygonTable } from "./table.js";

const ROWS = 200;
const STEPS = 60;

export class Result {
  // `onChange` hears of every move of a slider, `onZoom` of a polygon chosen in the table.
  constructor(sceneMap, { onChange, onZoom, onCancel }) {
    Object.assign(this, { sceneMap, onChange, job: null, former: false, found: null, least: 0, largest: 0, steps: [0] });
    this.status = new JobStatus($("status"), onCancel);
    this.downloads = new Downloads();
    this.table = new PolygonTable($("rows"), (id) => {
      sceneMap.choose(id, { zoom: true });
      this.table.mark(id);
      onZoom();
    });
    sceneMap.onselect = (id) => this.table.mark(id, { scroll: true });
    $("threshold").addEventListener("input", () => this.#moved());
    $("min-area").addEventListener("input", () => {
      this.least = this.steps[Number($("min-area").value)] ?? 0;
      this.#moved();
    });
  }

  // A job to look at; called again whenever it has changed. `asked` is what an address wants.
  show(job, asked = null) {
    const other = this.job?.id !== job.id;
    const finished = job.state === "done" && (other || this.job.state !== "done");
    this.job = job;
    if (other) this.former = false;
    this.#tell(job, other);
    if (other) this.#clear();
    if (asked) this.#set(asked);
    if (finished || asked) this.#fetch();
    this.#texts();
  }

  // The job whose map is shown: of an adapted model, the old one can be seen in its place.
  get source() {
    return this.former ? this.job.adapts : this.job.id;
  }

  showFormer(former) {
    this.former = former;
    this.release();
    this.sceneMap.reload("probability");
    this.#texts();
    this.#fetch();
  }

  get threshold() {
    return Number($("threshold").value);
  }

  // Takes back the choice of a polygon.
  release() {
    this.sceneMap.choose(null);
    this.table.mark(null);
  }

  #tell(job, other) {
    $("status").className = `status ${job.state === "failed" ? "bad" : ""}`;
    $("status").hidden = job.state === "done";
    this.status.show(job);
    if (!other && job.source !== "demo") $("announce").textContent = announcement(job);
    const warnings = job.result?.warnings ?? [];
    $("warnings").hidden = warnings.length === 0;
    $("warnings").replaceChildren(...warnings.map((text) => element("li", { textContent: sentence(text) })));
  }

  #clear() {
    this.abort?.abort();
    Object.assign(this, { found: null, least: 0, largest: 0 });
    for (const id of ["count", "area", "share"]) $(id).textContent = "–";
    this.table.draw([]);
    $("empty").hidden = true;
    $("note").textContent = "\u00a0";
    $("announce").textContent = "";
    this.#makeSteps();
  }

  #set({ threshold, least }) {
    $("threshold").value = threshold;
    this.least = least;
    this.#makeSteps();
  }

  #moved() {
    this.#texts();
    this.#draw();
    this.onChange();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.#fetch(), 60);
  }

  async #fetch() {
    if (this.job?.state !== "done") return;
    this.abort?.abort();
    const { signal } = (this.abort = new AbortController());
    const id = this.source;
    const onBusy = () => { $("note").textContent = "The server is busy; asking again…"; };
    try {
      const query = `threshold=${this.threshold}&min_area=${this.least}`;
      const found = await ask(`/api/jobs/${id}/polygons?${query}`, { signal, onBusy });
      if (signal.aborted || id !== this.source) return;
      this.#take(found);
    } catch (error) {
      if (error.name !== "AbortError") $("note").textContent = error.message;
    }
  }

  // The figures are the server's: its list may be cut, its count is not.
  #take(found) {
    const chosen = this.found?.threshold === found.threshold ? this.sceneMap.chosen?.getId() ?? null : null;
    this.found = found;
    this.largest = Math.max(this.largest, areaOf(found.features[0]?.properties) ?? 0);
    this.sceneMap.setPolygons(found);
    if (chosen !== null) this.sceneMap.choose(chosen);
    this.#makeSteps();
    $("count").textContent = number(found.count);
    $("area").textContent = area(found.area, found.unit);
    $("share").textContent = percent(found.change_fraction);
    $("share-what").textContent = this.job.result?.domain ? `of the area (${this.job.result.domain})` : "of the area";
    this.#texts();
    this.#draw();
    this.table.mark(chosen);
  }

  // What can be shown at once of the polygons that are here.
  #draw() {
    const { found, least } = this;
    if (!found) return;
    const shown = found.features.filter(({ properties }) => areaOf(properties) >= least);
    this.sceneMap.setSmallest(least);
    this.table.draw(shown.slice(0, ROWS), found.unit);
    $("empty").hidden = shown.length > 0;
    $("empty").textContent = `No polygon ${least ? "of this size " : ""}at this threshold.`;
    $("note").textContent = note(found, shown.length);
  }

  // The slider runs over round areas, from one pixel to the largest polygon seen.
  #makeSteps() {
    const most = Math.max(this.largest, this.least);
    this.steps = [0];
    let step = round125(Math.max(this.job.view?.pixel_area ?? 1, 1e-9)) * 2;
    while (step < most && this.steps.length < STEPS) {
      this.steps.push(step);
      const lead = Math.round(step / 10 ** Math.floor(Math.log10(step) + 1e-9));
      step = Number((step * (lead === 2 ? 2.5 : 2)).toPrecision(3));
    }
    // An address may hold any value.
    if (!this.steps.includes(this.least)) this.steps = [...this.steps, this.least].sort((one, two) => one - two);
    $("min-area").max = this.steps.length - 1;
    $("min-area").value = this.steps.indexOf(this.least);
  }

  #texts() {
    const { threshold, least } = this;
    const unit = this.found?.unit ?? (this.job?.view && !this.job.view.crs ? "px" : "m2");
    const smallest = least ? `from ${area(least, unit)}` : "all";
    $("threshold-value").textContent = threshold.toFixed(2);
    $("min-area-value").textContent = smallest;
    $("min-area").setAttribute("aria-valuetext", smallest);
    const shown = this.job && { ...this.job, id: this.source };
    this.downloads.show(shown, { threshold, least, unit });
    tellServices(shown, { threshold, least });
  }
}

function note(found, shown) {
  const notes = [];
  if (found.features.length < found.count) notes.push(`The map shows the ${number(found.features.length)} largest.`);
  if (shown > ROWS) notes.push(`The table has the first ${ROWS}.`);
  if (found.step > 1) notes.push(`Outlines are drawn at 1:${found.step}; downloads are exact.`);
  return notes.join(" ") || "\u00a0";
}
