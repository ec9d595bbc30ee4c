// The list of jobs, asked for again while something goes on.

import { ask } from "./api.js";
import { element, when } from "./format.js";
import { describe } from "./result.js";

const BUSY_MS = 700;
const IDLE_MS = 8000;
const PATIENCE_MS = 15_000;
const $ = (id) => document.getElementById(id);
const goesOn = (job) => job.state === "queued" || job.state === "running";

export class Jobs {
  constructor({ onOpen, onChange, onProblem }) {
    Object.assign(this, { onOpen, onChange, onProblem, jobs: [], current: null, items: new Map() });
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
      detail.replaceChildren(...describe(job));
      const [stop, remove] = acts.children;
      stop.hidden = !goesOn(job);
      remove.hidden = goesOn(job);
      acts.hidden = job.source === "demo" || !job.own;
    });
  }

  #item(job) {
    const open = element("button", { type: "button", className: "open", textContent: job.source === "demo" ? "Demo pair" : job.name });
    open.addEventListener("click", () => this.onOpen(job.id));
    const act = (text, path, method) => {
      const button = element("button", { type: "button", textContent: text });
      button.setAttribute("aria-label", `${text} ${job.name}`);
      button.addEventListener("click", async () => {
        button.disabled = true;
        await ask(path, { method }).catch((error) => this.onProblem(error));
        button.disabled = false;
        if (method === "DELETE" && this.current === job.id) this.onOpen(null);
        this.refresh();
      });
      return button;
    };
    const path = `/api/jobs/${job.id}`;
    return element("li", {},
      element("div", { className: "head" }, open, element("span", { className: "muted" })),
      element("div", { className: "detail" }),
      element("div", { className: "acts" }, act("Cancel", `${path}/cancel`, "POST"), act("Remove", path, "DELETE")));
  }
}
