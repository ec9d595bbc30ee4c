// What a job that is not done is about: a sentence, a bar, and Cancel beside it.

import { element } from "./dom.js";
import { LONG_S } from "./estimate.js";
import { about, duration, number, percent } from "./format.js";

const PHASES = {
  adapting: "Adapting the model",
  opening: "Opening the images", preparing: "Preparing the images",
  predicting: "Comparing", writing: "Writing the result",
};

const COUNTED = ["adapting", "predicting"]; // the phases that have units

export const goesOn = (job) => job.state === "queued" || job.state === "running";

// Its elements stay: replacing them would take the focus from the button.
export class JobStatus {
  constructor(place, onCancel) {
    this.text = element("span", { className: "text" });
    this.bar = element("progress");
    this.bar.setAttribute("aria-label", "Progress");
    this.stop = element("button", { type: "button", className: "plain", textContent: "Cancel" });
    this.stop.addEventListener("click", async () => {
      this.stop.disabled = true;
      await onCancel(this.job);
      this.stop.disabled = false;
    });
    this.row = element("div", { className: "progressing" }, this.bar, this.stop);
    place.append(this.text, this.row);
  }

  show(job) {
    this.job = job;
    this.text.textContent = describe(job);
    this.row.hidden = !goesOn(job);
    this.bar.hidden = job.state !== "running";
    const { done, total } = job.progress ?? {};
    if (COUNTED.includes(phaseOf(job)) && total) Object.assign(this.bar, { max: total, value: done });
    else this.bar.removeAttribute("value");
    this.stop.hidden = !job.own || job.source === "demo";
    this.stop.setAttribute("aria-label", `Cancel ${job.name}`);
  }
}

export function describe(job) {
  const texts = {
    failed: () => `Failed: ${job.error}`,
    cancelled: () => "Cancelled.",
    queued: () => (job.place ? `Waiting: ${job.place} before it.` : "Waiting for the model.") + lasting(job),
    running: () => running(job),
    done: () => `${job.result.adapted ? `${job.result.adapted.sentence} ` : ""}${percent(job.result.change_fraction)} changed${job.result.domain ? ` (${job.result.domain})` : ""}${job.result.ahead ? "" : ` · ${duration(job.result.seconds)}`}`,
  };
  return texts[job.state]();
}

// The same in a few words, which change only when something has happened.
export function announcement(job) {
  const words = { queued: "waits", running: phaseOf(job) ? PHASES[phaseOf(job)].toLowerCase() : "runs", done: "is done", failed: "has failed", cancelled: "is cancelled" };
  return `${job.name}: ${words[job.state]}`;
}

function phaseOf(job) {
  const first = job.adapts ? "adapting" : "preparing";
  const phase = job.progress?.phase ?? (job.progress ? "predicting" : first);
  return job.state === "running" && phase in PHASES ? phase : null;
}

// The rate and the time left are the tiles' own; the other phases have none.
function running(job) {
  const phase = phaseOf(job);
  const p = job.progress;
  const names = Object.keys(PHASES).filter((name) => job.adapts || name !== "adapting");
  const step = `${PHASES[phase] ?? "Running"} (step ${names.indexOf(phase) + 1} of ${names.length})`;
  if (phase === "adapting" && p?.total) {
    const left = p.eta_s === null ? "" : ` · ${duration(p.eta_s)} left`;
    return `${step}: ${percent(p.done / p.total)}${left}`;
  }
  if (phase !== "predicting") return `${step}…${phase === "writing" ? "" : lasting(job)}`;
  const parts = [`${step}: ${number(p.done)} of ${number(p.total)} tiles`];
  if (p.tiles_per_s && p.mp_per_s) parts.push(`${number(p.tiles_per_s, 1)} tiles/s, ${number(p.mp_per_s, 2)} MP/s`);
  if (p.eta_s !== null && p.eta_s !== undefined) parts.push(`${duration(p.eta_s)} left`);
  return parts.join(" · ");
}

function lasting(job) {
  if (!job.estimate_s) return "";
  const long = job.estimate_s > LONG_S ? " Cancel it if that is too long, or use a machine with a GPU." : "";
  return ` It takes ${about(job.estimate_s)}.${long}`;
}
