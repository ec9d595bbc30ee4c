// The review: judge one polygon after the other, draw what was missed, take back and bring back.

/* global ol */
import { ActionLog } from "./actionlog.js";
import { ask, sentence } from "./api.js";
import { $, element, say } from "./dom.js";
import { Drawing } from "./drawing.js";
import { area, areaOf } from "./format.js";
import { outlineStyle } from "./outlines.js";

const KEYS = {
  a: "right", r: "wrong", u: "unsure", j: "next", k: "previous", z: "undo", y: "redo", Z: "redo",
  d: "draw", f: "freehand", n: "unchanged", e: "reshape", g: "redraw", c: "cut", x: "erase", o: "outlines",
  1: "swipe", 2: "side", 3: "flicker",
};
const TITLES = {
  draw: "A change that was missed", freehand: "A change that was missed", unchanged: "Nothing changed here",
  reshape: "Reshape", redraw: "A new outline", cut: "Cut a piece away",
};
const LISTS = { random: "random sample", uncertain: "least certain first" };
const NAMES = { right: "right", wrong: "wrong", unsure: "unsure" };

export class ReviewPanel {
  // `onChange` hears when a review is opened or left, `settings` tells threshold and smallest polygon.
  constructor(sceneMap, compare, { onChange, settings }) {
    Object.assign(this, { sceneMap, compare, onChange, settings, job: null, state: null, chosen: null, seen: true });
    this.drawing = new Drawing(sceneMap);
    this.features = new ol.source.Vector();
    this.layer = new ol.layer.Vector({ source: this.features, style: (feature) => this.#style(feature) });
    $("review-start").addEventListener("click", () => this.#start());
    for (const button of document.querySelectorAll("[data-do]")) {
      button.addEventListener("click", () => this.do(button.dataset.do));
    }
    $("outlines").addEventListener("change", () => this.#show($("outlines").checked));
    $("review-note").addEventListener("change", () => this.#note());
    addEventListener("keydown", (event) => this.#key(event));
    sceneMap.map.on("singleclick", (event) => this.#click(event));
  }

  // The job of the page; another one ends the review of the former.
  follow(job) {
    const other = this.job?.id !== job.id;
    if (other) this.leave();
    this.job = job;
    const done = job.state === "done";
    $("review-start").disabled = !done;
    const { threshold, least } = this.settings();
    say("review-when", done ? `At threshold ${threshold.toFixed(2)}${least ? ", without small polygons" : ""}, as set under Change.` : "The job must be done first.");
  }

  get active() {
    return this.state !== null;
  }

  // The tab was opened: go on where the review stands.
  async open() {
    if (this.active || !this.job?.reviewed) return;
    await this.#load(() => ask(`/api/jobs/${this.job.id}/review`));
  }

  leave() {
    if (!this.active) return;
    this.drawing.cancel();
    this.log.close();
    this.sceneMap.map.removeLayer(this.layer);
    this.sceneMap.setLayer("polygons", { visible: this.polygonsSeen });
    this.compare.refresh(null);
    this.compare.choose("swipe");
    this.state = null;
    $("review-work").hidden = true;
    $("review-begin").hidden = false;
    document.body.classList.remove("reviewing");
    this.onChange();
  }

  #start() {
    const { threshold, least } = this.settings();
    const query = `threshold=${threshold}&min_area=${least}`;
    return this.#load(() => ask(`/api/jobs/${this.job.id}/review?${query}`, { method: "POST" }));
  }

  async #load(get) {
    const { job } = this;
    $("review-start").disabled = true;
    say("review-problem");
    try {
      const found = await get();
      if (job === this.job || job.id === this.job.id) this.#enter(found);
    } catch (error) {
      say("review-problem", error.message);
    } finally {
      $("review-start").disabled = false;
    }
  }

  #enter(found) {
    this.job.reviewed = true;
    this.proposals = found.proposals;
    this.unit = found.unit;
    this.originals = new Map(this.sceneMap.read({ type: "FeatureCollection", features: found.polygons }).map((feature) => [feature.getId(), feature]));
    this.polygonsSeen = this.sceneMap.settings.polygons.visible;
    this.sceneMap.choose(null);
    this.sceneMap.setLayer("polygons", { visible: false });
    this.sceneMap.map.addLayer(this.layer);
    $("review-begin").hidden = true;
    $("review-work").hidden = false;
    document.body.classList.add("reviewing");
    this.log = new ActionLog(this.job.id, {
      onState: (state) => this.#take(state),
      onSaving: (count, why) => this.#tellSaving(count, why),
      onRefused: (text) => { say("review-problem", sentence(text)); this.#take(this.state); },
    });
    this.#take(found);
    this.compare.refresh(this.layer);
    this.choose(this.#waiting(0) ?? this.proposals[0]?.id ?? null);
    for (const name of ["verdicts.gpkg", "corrected.tif"]) $(`review-${name}`).href = `/api/jobs/${this.job.id}/review/${name}`;
    this.onChange();
  }

  // What the server has kept, drawn anew; what is on its way is shown on top of it.
  #take(state) {
    this.state = state;
    this.features.clear(true);
    const drawn = (name) => Object.entries(state[name]).map(([id, { geometry }]) => ({ type: "Feature", id: Number(id), geometry, properties: { drawn: name } }));
    const reshaped = new Map(this.#read(drawn("reshaped")).map((feature) => [feature.getId(), feature]));
    for (const [id, feature] of this.originals) {
      const shown = reshaped.get(id) ?? feature;
      if (shown !== feature) shown.setProperties({ ...feature.getProperties(), geometry: shown.getGeometry() });
      this.features.addFeature(shown);
    }
    this.features.addFeatures(this.#read([...drawn("missed"), ...drawn("unchanged")]));
    if (this.chosen !== null && !this.features.getFeatureById(this.chosen)) this.chosen = null;
    this.#tell();
  }

  #read(features) {
    return this.sceneMap.read({ type: "FeatureCollection", features });
  }

  // The verdict on a polygon, with those that are still on their way.
  verdict(id) {
    const own = this.log.waiting.findLast(({ do: done, shape }) => done === "judge" && shape === id);
    return own?.verdict ?? this.state.verdicts[id]?.verdict ?? null;
  }

  // The first polygon without a verdict, from a place in the list on.
  #waiting(from) {
    const order = [...this.proposals.slice(from), ...this.proposals.slice(0, from)];
    return order.find(({ id }) => !this.verdict(id))?.id ?? null;
  }

  choose(id, { fly = true } = {}) {
    this.chosen = id;
    const feature = this.#feature();
    if (feature && fly && !isEmpty(feature)) this.sceneMap.fly(feature.getGeometry().getExtent());
    this.#tell();
  }

  #feature() {
    return this.chosen === null ? null : this.features.getFeatureById(this.chosen);
  }

  get #at() {
    return this.proposals.findIndex(({ id }) => id === this.chosen);
  }

  do(what) {
    if (!this.active) return;
    say("review-problem");
    if (what in NAMES) this.#judge(what);
    else if (what === "next" || what === "previous") this.#step(what === "next" ? 1 : -1);
    else if (what === "undo" || what === "redo") this.#back(what);
    else if (what === "outlines") this.#show(!this.seen);
    else if (what === "erase") this.#erase();
    else if (what in TITLES) this.#draw(what);
    else {
      this.compare.choose(what);
      this.choose(this.chosen); // the map has another shape now
    }
  }

  #judge(verdict) {
    const place = this.#at;
    if (place < 0) {
      say("review-problem", "Choose a polygon of the map first: J and K go through them.");
      return;
    }
    this.log.add({ do: "judge", shape: this.chosen, verdict, list: this.proposals[place].list });
    const next = this.#waiting(place + 1);
    if (next !== null) this.choose(next);
    else this.#tell();
  }

  #step(by) {
    const count = this.proposals.length;
    if (count) this.choose(this.proposals[(Math.max(this.#at, by > 0 ? -1 : 0) + by + count) % count].id);
  }

  #back(what) {
    if (this.state[what] || this.log.waiting.length) this.log.add({ do: what });
    else say("review-problem", `There is nothing to ${what}.`);
  }

  #note() {
    if (this.chosen !== null) this.log.add({ do: "note", shape: this.chosen, note: $("review-note").value });
  }

  #erase() {
    const kind = this.#feature()?.get("drawn");
    if (kind === "missed" || kind === "unchanged") this.log.add({ do: "erase", shape: this.chosen });
    else say("review-problem", "Only drawings are erased; a polygon of the map is right or wrong.");
  }

  async #draw(what) {
    const feature = this.#feature();
    if (["reshape", "redraw", "cut"].includes(what) && !feature) {
      say("review-problem", "Choose a polygon or a drawing first.");
      return;
    }
    if (what === "reshape" && isEmpty(feature)) {
      say("review-problem", "Nothing is left of this outline; draw a new one, or undo.");
      return;
    }
    const shape = this.chosen;
    const outline = what === "reshape" ? await this.drawing.reshape(feature.getGeometry(), TITLES[what])
      : await this.drawing.outline({ freehand: what === "freehand", title: TITLES[what] });
    if (!outline || !this.active) return;
    const geometry = this.sceneMap.write(outline);
    const action = { freehand: "draw", redraw: "reshape" }[what] ?? what;
    this.log.add(action === "draw" || action === "unchanged" ? { do: action, geometry } : { do: action, shape, geometry });
  }

  #show(seen) {
    this.seen = seen;
    $("outlines").checked = seen;
    this.compare.show(seen);
  }

  #click({ coordinate }) {
    if (!this.active || this.drawing.active) return;
    const [found] = this.features.getFeaturesAtCoordinate(coordinate);
    if (found) this.choose(found.getId(), { fly: false });
  }

  #key(event) {
    if (!this.active || $("panel-review").hidden || event.ctrlKey || event.metaKey || event.altKey || $("confirm").open) return;
    const typing = event.target.matches?.("input:not([type=radio], [type=checkbox]), textarea, select");
    if (typing) return;
    const onButton = event.target.matches?.("button, a, summary, input");
    if (this.drawing.active && !onButton) {
      const act = { " ": () => this.drawing.corner(), Enter: () => this.drawing.finish(), Backspace: () => this.drawing.back() }[event.key];
      if (act) { event.preventDefault(); act(); return; }
    }
    if (event.key === "Escape") { this.drawing.cancel(); return; }
    const what = KEYS[event.key] ?? KEYS[event.key.toLowerCase()];
    if (!what || this.drawing.active) return;
    event.preventDefault();
    this.do(what);
  }

  #tellSaving(count, why) {
    const many = count === 1 ? "1 action is" : `${count} actions are`;
    $("review-saved").textContent = count ? `${many} not on the server yet. ${why ?? ""}` : "All is kept on the server.";
    $("review-saved").classList.toggle("late", Boolean(why));
    if (this.state) this.#tell();
  }

  #tell() {
    const { summary } = this.state;
    const feature = this.#feature();
    const place = this.#at;
    $("review-count").textContent = `${summary.judged} of ${summary.polygons}`;
    $("review-precision").textContent = tellPrecision(summary.precision);
    $("review-counts").textContent = `${summary.right} right, ${summary.wrong} wrong, ${summary.unsure} unsure${summary.disputed ? `, ${summary.disputed} disputed` : ""}; drawn: ${summary.missed} missed, ${summary.unchanged} unchanged.`;
    $("review-sample").textContent = tellSample(summary.sample);
    $("review-title").textContent = feature ? titleOf(feature, this.chosen) : "Nothing is chosen";
    $("review-facts").textContent = feature ? this.#facts(feature, place) : "J and K go through the polygons.";
    const verdict = place < 0 ? null : this.verdict(this.chosen);
    for (const name of Object.keys(NAMES)) {
      for (const button of document.querySelectorAll(`[data-do="${name}"]`)) button.setAttribute("aria-pressed", verdict === name);
    }
    $("review-undo").disabled = !(this.state.undo || this.log.waiting.length);
    $("review-redo").disabled = !this.state.redo;
    $("review-note").disabled = this.chosen === null;
    if (document.activeElement !== $("review-note")) $("review-note").value = this.state.notes[this.chosen] ?? "";
    this.#list();
    this.compare.redraw();
  }

  #facts(feature, place) {
    if (place < 0) return `Drawn by ${this.state[feature.get("drawn")][this.chosen]?.by ?? "you"}.`;
    const found = feature.getProperties();
    const { list } = this.proposals[place];
    const first = this.proposals.findIndex((proposal) => proposal.list === list);
    const all = this.proposals.filter((proposal) => proposal.list === list).length;
    const parts = [`${place - first + 1} of ${all}, ${LISTS[list]}`, area(areaOf(found), this.unit)];
    if (found.prob_mean !== null) parts.push(`mean p ${found.prob_mean.toFixed(2)}`);
    const judged = this.state.verdicts[this.chosen];
    if (judged?.others.length) parts.push(`disputed: ${judged.others.map((pair) => pair.join(" says ")).join(", ")}`);
    else if (judged) parts.push(`${judged.verdict} says ${judged.by}`);
    return `${parts.join(" · ")}.`;
  }

  #list() {
    const drawings = this.features.getFeatures().filter((feature) => ["missed", "unchanged"].includes(feature.get("drawn")));
    $("review-drawings").replaceChildren(...drawings.map((feature) => {
      const id = feature.getId();
      const button = element("button", { type: "button", className: "plain", textContent: titleOf(feature, id) });
      button.setAttribute("aria-pressed", id === this.chosen);
      button.addEventListener("click", () => this.choose(id));
      return element("li", {}, button);
    }));
  }

  #style(feature) {
    const id = feature.getId();
    return outlineStyle(feature.get("drawn") ?? "", this.originals.has(id) ? this.verdict(id) : null, id === this.chosen);
  }
}

// All of an outline may have been cut away.
function isEmpty(feature) {
  return ol.extent.isEmpty(feature.getGeometry().getExtent());
}

function titleOf(feature, id) {
  const names = { missed: `Missed change ${id}`, unchanged: `Unchanged area ${id}` };
  return names[feature.get("drawn")] ?? `Polygon ${id}`;
}

function tellPrecision(found) {
  if (!found) return "–";
  const whole = (share) => Math.round(100 * share);
  return `${whole(found.value)} % (${whole(found.low)}–${whole(found.high)})`;
}

function tellSample({ size, in_order: judged, skipped }) {
  const left = skipped ? ` ${skipped} more count when those before them are judged.` : "";
  return `Precision comes from the random sample alone: ${judged} of ${size} judged in order.${left}`;
}
