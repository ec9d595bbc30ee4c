// The texts about the scene and the server: header, facts, where the model runs, who is signed in.

import { $, element } from "./dom.js";
import { number } from "./format.js";


export function tellScene(job) {
  $("scene-name").textContent = titleOf(job);
  document.title = `${job.name} · adadino`;
  const { view, result: found } = job;
  const place = view ? `${view.crs ?? "pixels"} · ${number(view.width)} × ${number(view.height)} px` : "\u00a0";
  $("scene-facts").textContent = place;
  const facts = [["Before", job.before_name], ["After", job.after_name], ["Model", job.result?.adapted?.kept === "new" ? job.makes : job.model]];
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

export function titleOf(job) {
  return job.source === "demo" ? "Demo: a synthetic place at two dates" : job.name;
}

export function tellServer(info) {
  const chip = $("device");
  const [device, more] = chip.children;
  device.textContent = info.ready ? info.device.toUpperCase() : "loading…";
  more.textContent = info.ready ? ` · ${info.device_name}` : "";
  chip.classList.toggle("slow", info.device === "cpu");
  const speed = info.models[0].mp_per_s;
  chip.title = info.device === "cpu" && speed
    ? `The model runs on the CPU: about ${number(speed, 2)} megapixels a second. Large scenes take long.`
    : "Where the model runs";
  $("account").hidden = !info.tokens;
  $("who").textContent = info.who ?? "";
}
