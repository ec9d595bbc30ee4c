// The files of a result: what they contain, and how they come.

import { request } from "./api.js";
import { $, element } from "./dom.js";
import { area } from "./format.js";

const READY = "probability.tif";  // on the server's disk; the others are made when they are asked for

export class Downloads {
  constructor() {
    for (const link of $("downloads").querySelectorAll("a")) {
      link.addEventListener("click", (event) => {
        const elsewhere = event.ctrlKey || event.metaKey || event.shiftKey || event.altKey;
        if (!link.href || link.dataset.file === READY || elsewhere) return;
        event.preventDefault();
        this.#fetch(link);
      });
    }
  }

  show(job, { threshold, least, unit }) {
    const done = job?.state === "done";
    for (const link of $("downloads").querySelectorAll("a")) {
      const query = link.dataset.file === READY ? "" : `?threshold=${threshold}&min_area=${least}`;
      if (done) link.href = `/api/jobs/${job.id}/${link.dataset.file}${query}`;
      else link.removeAttribute("href");
    }
    if (!done) {
      $("contents").textContent = "The files are there when the job is done.";
      return;
    }
    const which = least ? `without polygons below ${area(least, unit)}` : "with all polygons";
    $("contents").textContent = `Mask, polygons and overview: at threshold ${threshold.toFixed(2)}, ${which}. Probability: all values.`;
  }

  // Asked for here and not by the browser: only so can a busy server be asked again, and its
  // sentence be shown instead of saved.
  async #fetch(link) {
    if (link.getAttribute("aria-busy") === "true") return;
    const say = (text) => { $("download-note").textContent = text; };
    link.setAttribute("aria-busy", "true");
    say(`${link.firstChild.textContent.trim()}: the file is being made…`);
    try {
      const response = await request(link.href, { onBusy: () => say("The server is busy; asking again…") });
      save(await response.blob(), nameOf(response) ?? link.dataset.file);
      say("");
    } catch (error) {
      say(error.message);
    } finally {
      link.removeAttribute("aria-busy");
    }
  }
}

function nameOf(response) {
  return /filename="([^"]+)"/.exec(response.headers.get("content-disposition") ?? "")?.[1];
}

function save(blob, name) {
  const address = URL.createObjectURL(blob);
  element("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}
