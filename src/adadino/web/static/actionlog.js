// What a reviewer does, on its way to the server: nothing is dropped before the server has kept it.
// Actions wait in the browser's storage and go one after the other. Each has a key, by which the
// server knows one that comes a second time.

import { ask } from "./api.js";

const AGAIN_MS = 1500;
const LATER = [401, 408, 429];

export class ActionLog {
  // `onState` hears what the server has kept, `onSaving` how many actions still wait and why.
  constructor(job, { onState, onSaving, onRefused }) {
    Object.assign(this, { job, onState, onSaving, onRefused, closed: false });
    this.place = `adadino-review-${job}`;
    this.waiting = recall(this.place);
    this.#flush();
  }

  add(action) {
    this.waiting.push({ ...action, key: `${Date.now().toString(36)}-${Math.random().toString(36).slice(2)}` });
    this.#keep();
    this.#flush();
  }

  close() {
    this.closed = true;
    clearTimeout(this.timer);
  }

  async #flush() {
    if (this.sending || this.closed) return;
    clearTimeout(this.timer);
    this.sending = true;
    this.onSaving(this.waiting.length);
    while (this.waiting.length && !this.closed) {
      try {
        const body = JSON.stringify(this.waiting[0]);
        const headers = { "content-type": "application/json" };
        const state = await ask(`/api/jobs/${this.job}/review/actions`, { method: "POST", headers, body });
        this.#sent();
        if (!this.closed) this.onState(state);
      } catch (error) {
        if (!error.status || error.status >= 500 || LATER.includes(error.status)) {
          this.onSaving(this.waiting.length, error.message);
          this.timer = setTimeout(() => this.#flush(), AGAIN_MS);
          break;
        }
        this.#sent();
        this.onRefused(error.message);
      }
    }
    this.sending = false;
  }

  #sent() {
    this.waiting.shift();
    this.#keep();
    if (!this.waiting.length) this.onSaving(0);
  }

  #keep() {
    try {
      if (this.waiting.length) localStorage.setItem(this.place, JSON.stringify(this.waiting));
      else localStorage.removeItem(this.place);
    } catch { /* storage is closed or full: they are kept while the page is open */ }
  }
}

function recall(place) {
  try {
    const found = JSON.parse(localStorage.getItem(place) ?? "[]");
    return Array.isArray(found) ? found : [];
  } catch {
    return [];
  }
}
