// The list of jobs, asked for again while something goes on.

import { ask } from "./api.js";
import { confirm } from "./confirm.js";
import { $, element, say } from "./dom.js";
import { when } from "./format.js";
import { goesOn, JobStatus } from "./status.js";

const BUSY_MS = 700;
const IDLE_MS = 8000;
const PATIENCE_MS = 15_000;

export class Jobs {
  constructor({ onOpen, onChange, onProblem }) {
    Object.assign(this, { onOpen, onChange, onProblem, jobs: [], current: null, items: new Map(), statuses: new Map() });
  }

  async refresh() {
    clearTimeout(this.timer);
    const turn = (this.turn = (this.turn ?? 0) + 1);
    let wait = BUSY_MS;
    try {
      const jobs = await this.#list();
      if (turn !== this.turn) return; // asked again since: that answer is newer
      if (jobs) this.jobs = jobs;
      this.#draw();
      this.onChange(this.jobs);
      const busy = this.jobs.some(goesOn);
      $("busy").hidden = !busy;
      // A server that has just started has no job yet.
      if (!busy && this.jobs.length) wait = IDLE_MS;
    } finally {
      // Whatever went wrong, the next question is asked: else the page would stand still for good.
      if (turn === this.turn) this.timer = setTimeout(() => this.refresh(), wait);
    }
  }

  // The server's jobs; null if it did not answer, or not in time.
  async #list() {
    const signal = AbortSignal.timeout(PATIENCE_MS);
    try {
      const { jobs } = await ask("/api/jobs", { signal });
      // A job from a link is not in one's own list.
      if (this.current && !jobs.some((job) => job.id === this.current)) {
        jobs.push(await ask(`/api/jobs/${this.current}`, { signal }));
      }
      this.onProblem(null);
      return jobs;
    } catch (error) {
      if (error.status === 404) this.current = null;
      this.onProblem(error);
      return null;
    }
  }

  select(id) {
    this.current = id;
    this.#draw();
  }

  // Items stay where they are: replacing them would take the focus from a button.
  #draw() {
    const ids = new Set(this.jobs.map((job) => job.id));
    for (const [id, item] of this.items) {
      if (!ids.has(id)) {
        item.remove();
        this.items.delete(id);
        this.statuses.delete(id);
      }
    }
    this.jobs.forEach((job, place) => {
      if (!this.items.has(job.id)) this.items.set(job.id, this.#item(job));
      const item = this.items.get(job.id);
      if ($("jobs").children[place] !== item) $("jobs").insertBefore(item, $("jobs").children[place] ?? null);
      item.classList.toggle("current", job.id === this.current);
      item.dataset.state = job.state;
      const [head, detail, acts] = item.children;
      head.lastChild.textContent = job.source === "demo" ? "demo" : when(job.created);
      detail.className = `detail ${job.state === "failed" ? "bad" : ""}`;
      this.statuses.get(job.id).show(job);
      acts.hidden = job.source === "demo" || !job.own || goesOn(job);
    });
  }

  #item(job) {
    const open = element("button", { type: "button", className: "open", textContent: job.source === "demo" ? "Demo pair" : job.name });
    open.addEventListener("click", () => this.onOpen(job.id));
    const remove = element("button", { type: "button", textContent: "Remove" });
    remove.setAttribute("aria-label", `Remove ${job.name}`);
    remove.addEventListener("click", () => this.#remove(job));
    const detail = element("div", { className: "detail" });
    this.statuses.set(job.id, new JobStatus(detail, (stopped) => this.cancel(stopped)));
    return element("li", {},
      element("div", { className: "head" }, open, element("span", { className: "muted" })),
      detail, element("div", { className: "acts" }, remove));
  }

  async cancel(job) {
    say("jobs-problem");
    await ask(`/api/jobs/${job.id}/cancel`, { method: "POST" }).catch((error) => say("jobs-problem", error.message));
    await this.refresh();
  }

  async #remove(job) {
    const text = `“${job.name}” goes with its images and its result. This cannot be undone.`;
    const gone = await confirm(text, () => ask(`/api/jobs/${job.id}`, { method: "DELETE" }));
    if (!gone) return;
    $("jobs-title").focus(); // the button is no more
    if (this.current === job.id) this.onOpen(null);
    this.refresh();
  }
}
