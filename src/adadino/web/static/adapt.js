// The adapted model: asked for in the review, and told of beside its map, with both maps to compare.

import { ask, sentence } from "./api.js";
import { $, say } from "./dom.js";
import { number } from "./format.js";

export class Adapt {
  // `review` is what is judged, `onCreated` hears of the new job, `onMap` which map is wanted.
  constructor(review, { onCreated, onMap }) {
    Object.assign(this, { review, onCreated });
    $("adapt-form").addEventListener("submit", (event) => this.#submit(event));
    $("adapt-name").addEventListener("input", () => say("adapt-problem"));
    for (const choice of document.querySelectorAll("[name=which-map]")) {
      choice.addEventListener("change", () => onMap(choice.value === "old"));
    }
  }

  // The figures of a job that has made a model.
  show(job) {
    const found = job.result?.adapted;
    $("adapted").hidden = !found;
    if (!found) return;
    const f1 = (share) => number(100 * share, 1);
    const signed = (share) => `${share < 0 ? "−" : "+"}${f1(Math.abs(share))}`;
    const kept = found.kept === "new";
    $("adapted-sentence").textContent = kept ? `${found.sentence} It is among the models as “${job.makes}”.` : found.sentence;
    $("adapted-old").textContent = f1(found.old_f1);
    $("adapted-new").textContent = f1(found.new_f1);
    $("adapted-difference").textContent = signed(found.difference);
    $("adapted-how").textContent = `On ${found.tiles} tiles that were held out in turn. 95 % interval of the difference: ${signed(found.low)} to ${signed(found.high)}.`;
    $("which-map").hidden = !kept;
  }

  // Another job has one map of its own.
  reset() {
    document.querySelector("[name=which-map][value=new]").checked = true;
  }

  async #submit(event) {
    event.preventDefault();
    const name = $("adapt-name").value.trim();
    if (!name) {
      say("adapt-problem", "Give the new model a name.");
      $("adapt-name").focus();
      return;
    }
    if (this.review.log.waiting.length) {
      say("adapt-problem", "Some of your actions are not on the server yet; try again in a moment.");
      return;
    }
    say("adapt-problem");
    $("adapt-start").disabled = true;
    try {
      const headers = { "content-type": "application/json" };
      const job = await ask(`/api/jobs/${this.review.job.id}/review/adapt`, { method: "POST", headers, body: JSON.stringify({ name }) });
      $("adapt-name").value = "";
      this.onCreated(job);
    } catch (error) {
      say("adapt-problem", sentence(error.message));
    } finally {
      $("adapt-start").disabled = false;
    }
  }
}
