// The form of a new comparison: two files, or two names from the server's folder.

import { ask, sentence, upload } from "./api.js";
import { DataFolder } from "./datafolder.js";
import { $, element, say } from "./dom.js";
import { estimate, tellEstimate, tooLong } from "./estimate.js";
import { number, size } from "./format.js";
import { drawFile, sniff } from "./localfile.js";

const DATES = ["before", "after"];
const EMPTY = "Drop a GeoTIFF, PNG or JPEG, or choose";

export class NewJob {
  constructor(onCreated) {
    this.onCreated = onCreated;
    this.files = {};
    this.pixels = {};
    this.folder = new DataFolder(() => this.#tell());
    for (const date of DATES) {
      $(`file-${date}`).addEventListener("change", (event) => this.#take(date, event.target.files[0]));
    }
    this.#dropping();
    $("new-job").addEventListener("submit", (event) => this.#submit(event));
    // A problem was one of what stood there before.
    $("new-job").addEventListener("input", () => say("problem"));
    $("new-job").addEventListener("change", () => this.#tell());
    for (const choice of $("new-job").elements.from) {
      choice.addEventListener("change", () => this.#switch(choice.value));
    }
  }

  setInfo(info) {
    const before = $("model").value;
    this.info = info;
    $("model").replaceChildren(...info.models.map(({ name }) => element("option", { value: name, textContent: name })));
    if (info.models.some(({ name }) => name === before)) $("model").value = before;
    $("sources").hidden = !info.data;
    this.#tell();
  }

  get from() {
    return $("new-job").elements.from.value;
  }

  async #switch(from) {
    $("pick-upload").hidden = from !== "upload";
    $("pick-data").hidden = from !== "data";
    if (from === "data") await this.folder.fill().catch((error) => say("problem", error.message));
    this.#tell();
  }

  // Two files dropped anywhere are before and after, in the order of their names.
  #dropping() {
    const over = (event) => {
      if (!event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      for (const date of DATES) $(`drop-${date}`).classList.toggle("over", event.target.closest?.(".drop")?.id === `drop-${date}`);
    };
    addEventListener("dragover", over);
    addEventListener("drop", (event) => {
      const files = [...event.dataTransfer?.files ?? []];
      if (!files.length) return;
      event.preventDefault();
      const spot = event.target.closest?.(".drop")?.id.slice(5);
      for (const date of DATES) $(`drop-${date}`).classList.remove("over");
      $("tab-jobs").click();
      $("new-job").elements.from.value = "upload";
      this.#switch("upload");
      if (files.length === 1) {
        this.#take(spot ?? (this.files.before ? "after" : "before"), files[0]);
        return;
      }
      files.sort((one, two) => one.name.localeCompare(two.name, "en", { numeric: true }));
      DATES.forEach((date, i) => this.#take(date, files[i]));
    });
  }

  async #take(date, file) {
    if (!file) return;
    say("problem");
    const found = await sniff(file).catch(() => null);
    if (!found) {
      say("problem", `${file.name} is no GeoTIFF, PNG or JPEG.`);
      return;
    }
    const limits = this.info?.limits;
    const pixels = (found.width ?? 0) * (found.height ?? 0);
    if (limits && pixels > limits.pixels) {
      say("problem", `${file.name} has ${number(pixels / 1e6)} million pixels; this server takes ${number(limits.pixels / 1e6)}.`);
      return;
    }
    if (limits && file.size > limits.upload_bytes) {
      say("problem", `${file.name} is larger than the ${size(limits.upload_bytes)} this server takes.`);
      return;
    }
    this.files[date] = file;
    this.pixels[date] = pixels;
    $(`drop-${date}`).classList.add("filled");
    const shape = pixels ? `${number(found.width)} × ${number(found.height)} px, ` : "";
    $(`drop-${date}`).querySelector("span").textContent = `${file.name} (${shape}${size(file.size)})`;
    drawFile($(`thumb-${date}`), file, pixels);
    this.#tell();
  }

  get #seconds() {
    return estimate(this.info, $("model").value, this.from === "upload" ? this.pixels.before : this.folder.pixels);
  }

  // What is known before anything is sent: how long it takes, and what it will be called.
  #tell() {
    $("estimate").textContent = tellEstimate(this.info, this.#seconds);
    const names = DATES.map((date) => (this.from === "upload" ? this.files[date]?.name : $(`data-${date}`).value));
    $("job-name").placeholder = names.map((name, i) => (name ? stem(name) : DATES[i])).join(" → ");
  }

  async #submit(event) {
    event.preventDefault();
    say("problem");
    $("start").disabled = true;
    try {
      const refused = tooLong(this.info, this.#seconds);
      if (refused) throw new Error(refused);
      const job = this.from === "upload" ? await this.#send() : await this.#name();
      this.#reset();
      this.onCreated(job);
    } catch (error) {
      say("problem", sentence(error.message));
    } finally {
      $("start").disabled = false;
      $("sending").hidden = true;
    }
  }

  // What stands under Options, checked before anything is sent.
  #options() {
    const numbers = (id) => ($(`option-${id}`).value.trim() ? $(`option-${id}`).value.split(",").map((part) => (part.trim() ? Number(part) : NaN)) : null);
    const bands = numbers("bands");
    const scale = numbers("scale");
    const right = (band) => Number.isInteger(band) && band > 0 && band < 100000;
    if (bands && !([1, 3].includes(bands.length) && bands.every(right))) {
      throw new Error("Bands must be three band numbers from 1, or one: 3,2,1.");
    }
    if (scale && !(scale.length === 2 && scale.every(Number.isFinite) && scale[0] < scale[1])) {
      throw new Error("Scale must be a smaller and a larger number: 0,3000.");
    }
    const name = $("job-name").value.trim() || null;
    return { name, model: $("model").value, register: $("register").checked, any_resolution: $("any-resolution").checked, bands, scale };
  }

  async #send() {
    const missing = DATES.find((date) => !this.files[date]);
    if (missing) throw new Error(`Choose the file ${missing}.`);
    const limit = this.info?.limits.upload_bytes ?? Infinity;
    if (this.files.before.size + this.files.after.size > limit) {
      throw new Error(`Both files together are larger than the ${size(limit)} this server takes.`);
    }
    const form = new FormData();
    for (const [name, value] of Object.entries(this.#options())) if (value !== null) form.append(name, value);
    for (const date of DATES) form.append(date, this.files[date]);
    $("sending").hidden = false;
    return upload("/api/jobs", form, (share) => { $("sending").value = share; });
  }

  async #name() {
    if (this.folder.problem) throw new Error(this.folder.problem);
    const asked = { before: $("data-before").value, after: $("data-after").value, ...this.#options() };
    const headers = { "content-type": "application/json" };
    return ask("/api/jobs", { method: "POST", headers, body: JSON.stringify(asked) });
  }

  #reset() {
    this.files = {};
    this.pixels = {};
    for (const date of DATES) {
      $(`file-${date}`).value = "";
      $(`drop-${date}`).classList.remove("filled");
      $(`drop-${date}`).querySelector("span").textContent = EMPTY;
      $(`thumb-${date}`).hidden = true;
    }
    $("job-name").value = "";
    this.#tell();
  }
}

// A file's name without folder and suffix: what the server makes a job's name of.
function stem(name) {
  return name.split("/").pop().replace(/(.)\.[^.]*$/, "$1");
}
