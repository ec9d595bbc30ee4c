// Two images of the server's data folder: which there are, how they look, how large they are.

import { ask } from "./api.js";
import { $, element } from "./dom.js";
import { number, size } from "./format.js";


export class DataFolder {
  // `onFacts` hears when the size of an image is known.
  constructor(onFacts) {
    Object.assign(this, { onFacts, facts: {}, problems: {} });
    for (const date of ["before", "after"]) {
      $(`data-${date}`).addEventListener("change", () => this.#look(date));
      const picture = $(`preview-${date}`).querySelector("img");
      picture.addEventListener("error", () => { picture.hidden = true; });
    }
  }

  // The list, asked for again each time: files come and go.
  async fill() {
    const { files } = await ask("/api/files");
    for (const date of ["before", "after"]) {
      const chosen = $(`data-${date}`).value;
      const options = files.map(({ path, bytes }) => element("option", { value: path, textContent: `${path} (${size(bytes)})` }));
      $(`data-${date}`).replaceChildren(...options);
      if (files.some(({ path }) => path === chosen)) $(`data-${date}`).value = chosen;
      else $(`data-${date}`).selectedIndex = Math.min(date === "after" ? 1 : 0, files.length - 1);
      this.#look(date);
    }
  }

  // Of the image before, on whose grid the result lies.
  get pixels() {
    return this.facts.before?.pixels ?? 0;
  }

  // Why a chosen image cannot be used; undefined if it can.
  get problem() {
    return this.problems.before ?? this.problems.after;
  }

  async #look(date) {
    const path = $(`data-${date}`).value;
    const box = $(`preview-${date}`);
    const [picture, text] = box.children;
    this.facts[date] = this.problems[date] = undefined;
    box.hidden = true;
    if (!path) return;
    const query = `path=${encodeURIComponent(path)}`;
    let facts = null;
    let problem;
    try {
      facts = await ask(`/api/files/facts?${query}`);
    } catch (error) {
      if (error.status === 422) problem = error.message;
    }
    if (path !== $(`data-${date}`).value) return; // another was chosen since
    this.facts[date] = facts ?? undefined;
    this.problems[date] = problem;
    box.hidden = !facts && !problem;
    picture.hidden = !facts;
    if (facts) picture.src = `/api/files/preview.png?${query}`;
    text.textContent = facts ? tell(facts) : problem ?? "";
    this.onFacts();
  }
}

function tell({ width, height, bands, crs }) {
  return `${number(width)} × ${number(height)} px, ${bands} ${bands === 1 ? "band" : "bands"}, ${crs ?? "no coordinates"}`;
}
