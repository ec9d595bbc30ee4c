// Puts the page together: which job is shown, and who hears of it.

import { Adapt } from "./adapt.js";
import * as address from "./address.js";
import { ask } from "./api.js";
import { $, say } from "./dom.js";
import { Compare } from "./compare.js";
import { Jobs } from "./jobs.js";
import { layerControls } from "./layers.js";
import { SceneMap } from "./map.js";
import { NewJob } from "./newjob.js";
import { Readout } from "./readout.js";
import { Result } from "./result.js";
import { ReviewPanel } from "./review.js";
import { tellScene, tellServer, titleOf } from "./scene.js";
import { describe, goesOn } from "./status.js";
import { Swipe } from "./swipe.js";
import { tabs } from "./tabs.js";
import { themes } from "./themes.js";

const WRITE_MS = 250;  // browsers refuse addresses that change all the time
const stage = document.querySelector(".stage");

const sceneMap = new SceneMap($("map"), $("popup"));
const swipe = new Swipe($("swipe"), sceneMap);
const readout = new Readout(sceneMap, { coordinates: $("coordinates"), crs: $("crs"), scale: $("scale") });
const jobs = new Jobs({ onOpen: open, onChange: update, onProblem: (error) => error && !laid && veil(error.message) });
const result = new Result(sceneMap, { onChange: remember, onZoom: bringMap, onCancel: (job) => jobs.cancel(job) });
const compare = new Compare(sceneMap, swipe);
const review = new ReviewPanel(sceneMap, compare, { onChange: remember, settings: () => ({ threshold: result.threshold, least: result.least }) });
const adapt = new Adapt(review, { onCreated: (job) => open(job.id), onMap: (former) => result.showFormer(former) });
const newJob = new NewJob((job) => open(job.id));
let info = null;
let models = 0;  // how many jobs have made a model
let shown = null;  // the job of the panel
let laid = null;  // the job whose scene is on the map: a former one while another waits
let asked = address.read();  // what the address wants, until its job is here
let place = asked.map;  // what it wants of the map, until that can be laid out
let writing = null;

tabs(document.querySelector(".tabs"), (id) => {
  if (id === "tab-review") review.open();
  else if (id === "tab-change") review.leave();
});
themes($("theme"));
sceneMap.onmove = remember;
addEventListener("popstate", () => follow(address.read()));
addEventListener("keydown", (event) => { if (event.key === "Escape" && !$("confirm").open) result.release(); });
addEventListener("pagehide", write);
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address is not for places of the page
  $("panel").focus();
});
start();

async function start() {
  jobs.select(asked?.job);
  try {
    info = await ask("/api/info");
  } catch (error) {
    veil(error.message);
    setTimeout(start, 2000);
    return;
  }
  layerControls($("layers"), sceneMap, {
    basemap: info.basemap,
    onChange: (name, seen) => { if (name === "probability") $("legend").hidden = !seen; },
  });
  tellInfo();
  await jobs.refresh();
}

// A job by its id; none for the newest.
function open(id) {
  if (id && id === shown?.id) {
    $("tab-change").click();
    return;
  }
  write();
  const wanted = { job: id, threshold: result.threshold, least: 0, map: null };
  address.write(wanted, { push: Boolean(id) });
  follow(wanted);
  if (!id) return;
  if (matchMedia("(max-width: 860px)").matches) scrollTo({ top: 0 });
  $("tab-change").click();
}

function follow(wanted) {
  asked = wanted;
  place = wanted.map;
  jobs.select(wanted.job);
  jobs.refresh();
}

// The jobs have changed: show the chosen one, or else the newest that can be seen.
function update(all) {
  const job = all.find(({ id }) => id === jobs.current) ?? all.find(({ view }) => view) ?? all[0];
  if (!job) {
    veil("Nothing to show yet. Start a comparison under Jobs.");
    return;
  }
  if (asked) tellGone(Boolean(asked.job) && asked.job !== job.id);
  jobs.select(job.id);
  if (shown?.id !== job.id) adapt.reset();
  shown = job;
  lay(job);
  result.show(job, asked);
  adapt.show(job);
  review.follow(job);
  if (asked?.review && job.reviewed) $("tab-review").click();
  asked = null;
  tellScene(job);
  remember();
  const made = all.filter(({ makes, state }) => makes && state === "done").length;
  const stale = !info?.ready || made !== models; // there is a model more, or less
  models = made;
  if (stale) ask("/api/info").then((found) => { info = found; tellInfo(); }).catch(() => {});
}

// A job's scene on the map; the former one stays until there is something to lay out.
function lay(job) {
  const fresh = job.view && laid?.id !== job.id;
  const finished = laid?.id === job.id && laid.state !== "done" && job.state === "done";
  if (fresh || laid?.id === job.id) laid = job;
  if (fresh) layOut(job);
  if (finished) sceneMap.reload("probability");
  const former = !job.view && goesOn(job) && laid;
  say("former", former && `The map still shows “${titleOf(laid)}”.`);
  if (job.view || former) veil();
  else veil(describe(job));
  if (job.view && (asked || fresh)) {
    sceneMap.place = place;
    place = null;
  }
}

function layOut(job) {
  const tiles = (layer, z, x, y) => {
    if (layer === "probability" && laid.state !== "done") return undefined;
    const id = layer === "probability" && result.job?.id === job.id ? result.source : job.id;
    return `/api/jobs/${id}/tiles/${layer}/${z}/${x}/${y}.png`;
  };
  sceneMap.map.updateSize();
  sceneMap.show(job.view, tiles, info?.basemap);
  swipe.attach(sceneMap.layers.after);
  readout.show(job.view);
  compare.refresh(null);
}

function remember() {
  clearTimeout(writing);
  writing = setTimeout(write, WRITE_MS);
}

function write() {
  clearTimeout(writing);
  if (!shown || asked) return;
  const map = laid?.id === shown.id ? sceneMap.place : place;
  address.write({ job: shown.id, threshold: result.threshold, least: result.least, map, review: review.active });
}

// On a phone the table lies below the map.
function bringMap() {
  const { top, bottom } = stage.getBoundingClientRect();
  if (top >= 0 && bottom <= innerHeight) return;
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  stage.scrollIntoView({ block: "start", behavior: calm ? "auto" : "smooth" });
}

function veil(text = "") {
  say("veil", text);
  stage.classList.toggle("veiled", Boolean(text));
}

function tellGone(gone) {
  say("gone", gone && "The job of this address is no longer there. This is another one.");
}

function tellInfo() {
  newJob.setInfo(info);
  tellServer(info);
}
