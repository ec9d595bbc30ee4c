// Puts the page together: which job is shown, and who hears of it.

import { ask } from "./api.js";
import { element, number } from "./format.js";
import { Jobs } from "./jobs.js";
import { layerControls } from "./layers.js";
import { SceneMap } from "./map.js";
import { NewJob } from "./newjob.js";
import { Readout } from "./readout.js";
import { describe, Result } from "./result.js";
import { Swipe } from "./swipe.js";
import { tabs } from "./tabs.js";

const $ = (id) => document.getElementById(id);
const stage = document.querySelector(".stage");

const sceneMap = new SceneMap($("map"), $("popup"));
const swipe = new Swipe($("swipe"), sceneMap);
const readout = new Readout(sceneMap, { coordinates: $("coordinates"), crs: $("crs"), scale: $("scale") });
const result = new Result(sceneMap);
const newJob = new NewJob((job) => {
  open(job.id);
});
const jobs = new Jobs({ onOpen: open, onChange: update, onProblem: (error) => error && !shown && veil(error.message) });
let info = null;
let shown = null;  // the job whose scene is on the map

tabs(document.querySelector(".tabs"));
themes($("theme"));
start();

async function start() {
  jobs.select(new URLSearchParams(location.hash.slice(1)).get("job"));
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
  jobs.select(id);
  history.replaceState(null, "", id ? `#job=${id}` : "/");
  jobs.refresh();
  if (!id) return;
  if (matchMedia("(max-width: 860px)").matches) scrollTo({ top: 0 });
  $("tab-change").click();
}

// The jobs have changed: show the chosen one, or else the newest that can be seen.
function update(all) {
  const job = all.find(({ id }) => id === jobs.current) ?? all.find(({ view }) => view) ?? all[0];
  if (!job) {
    veil("Nothing to show yet. Start a comparison under Jobs.");
    return;
  }
  jobs.select(job.id);
  const same = shown?.id === job.id;
  if (job.view && !(same && shown.view)) lay(job);
  if (!job.view) veil(...describe(job));
  if (same && shown.state !== "done" && job.state === "done") sceneMap.reload("probability");
  shown = job;
  result.show(job);
  tell(job);
  if (!info?.ready) ask("/api/info").then((found) => { info = found; tellInfo(); }).catch(() => {});
}

function lay(job) {
  veil();
  const tiles = (layer, z, x, y) => {
    if (layer === "probability" && shown?.state !== "done") return undefined;
    return `/api/jobs/${job.id}/tiles/${layer}/${z}/${x}/${y}.png`;
  };
  shown = job;
  sceneMap.map.updateSize();
  sceneMap.show(job.view, tiles, info?.basemap);
  swipe.attach(sceneMap.layers.after);
  readout.show(job.view);
}

function veil(...parts) {
  $("veil").hidden = parts.length === 0;
  stage.classList.toggle("veiled", parts.length > 0);
  const text = parts.map((part) => (part instanceof Node ? part : element("span", { textContent: part })));
  $("veil").replaceChildren(element("span", {}, ...text));
}

function tell(job) {
  $("scene-name").textContent = job.source === "demo" ? "Demo: a synthetic place at two dates" : job.name;
  document.title = `${job.name} · adadino`;
  const { view, result: found } = job;
  const place = view ? `${view.crs ?? "pixels"} · ${number(view.width)} × ${number(view.height)} px` : "\u00a0";
  $("scene-facts").textContent = place;
  const facts = [["Before", job.before_name], ["After", job.after_name], ["Model", job.model]];
  if (job.bands) facts.push(["Bands", job.bands.join(", ")]);
  if (job.scale) facts.push(["Scale", `${job.scale[0]} to ${job.scale[1]}`]);
  if (view) facts.push(["Grid", place]);
  if (found) {
    const { shift } = found;
    const sure = shift.problem ?? `confidence ${shift.confidence.toFixed(2)}`;
    const moved = found.registered ? "applied" : "not applied";
    facts.push(["Shift", `${shift.dy.toFixed(2)} rows, ${shift.dx.toFixed(2)} columns (${sure}; ${moved})`]);
    facts.push(["Computed", found.ahead ? "ahead of time; this result comes with the package" : `on ${found.device} in ${number(found.seconds, 1)} s`]);
  }
  $("facts").replaceChildren(...facts.flatMap(([name, text]) => [
    element("dt", { textContent: name }), element("dd", { textContent: text }),
  ]));
}

function tellInfo() {
  newJob.setInfo(info);
  const chip = $("device");
  const [device, more] = chip.children;
  device.textContent = info.ready ? info.device.toUpperCase() : "loading…";
  more.textContent = info.ready ? ` · ${info.device_name}` : "";
  chip.classList.toggle("slow", info.device === "cpu");
  const speed = info.models[0].mp_per_s;
  chip.title = info.device === "cpu"
    ? `The model runs on the CPU: about ${number(speed, 2)} megapixels a second. Large scenes take long.`
    : "Where the model runs";
}

function themes(button) {
  const order = { auto: "light", light: "dark", dark: "auto" };
  const names = { auto: "Auto", light: "Light", dark: "Dark" };
  const root = document.documentElement;
  const show = () => {
    button.querySelector("span").textContent = names[root.dataset.theme];
    button.setAttribute("aria-label", `Theme: ${names[root.dataset.theme]}; change it`);
  };
  button.addEventListener("click", () => {
    root.dataset.theme = order[root.dataset.theme];
    try { localStorage.setItem("adadino-theme", root.dataset.theme); } catch { /* storage is closed */ }
    show();
  });
  show();
}
