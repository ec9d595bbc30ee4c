// The polygons as a table: one stop of the Tab key, arrow keys inside, Enter or a click zooms.

import { element } from "./dom.js";
import { area, areaOf } from "./format.js";

const PAGE = 10;

export class PolygonTable {
  constructor(body, onChoose) {
    this.body = body;
    body.addEventListener("click", (event) => {
      const row = event.target.closest("tr");
      if (!row) return;
      this.#enter(row);
      onChoose(Number(row.dataset.id));
    });
    body.addEventListener("keydown", (event) => this.#key(event));
  }

  draw(features, unit) {
    this.body.replaceChildren(...features.map((feature) => makeRow(feature, unit)));
    this.#enter(this.body.rows[0]);
  }

  mark(id, { scroll = false } = {}) {
    for (const row of this.body.rows) {
      const chosen = row.dataset.id === String(id);
      row.setAttribute("aria-selected", chosen);
      if (!chosen) continue;
      this.#enter(row);
      if (scroll) row.scrollIntoView({ block: "nearest" });
    }
  }

  #key(event) {
    const rows = [...this.body.rows];
    const at = rows.indexOf(event.target.closest("tr"));
    const moves = {
      ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + PAGE, PageUp: at - PAGE,
      Home: 0, End: rows.length - 1,
    };
    if (at < 0 || !(event.key in moves)) return;
    event.preventDefault();
    const row = rows[Math.min(rows.length - 1, Math.max(0, moves[event.key]))];
    this.#enter(row);
    row.querySelector("button").focus();
  }

  // Where the Tab key arrives.
  #enter(row) {
    this.active?.querySelector("button").setAttribute("tabindex", -1);
    this.active = row;
    row?.querySelector("button").setAttribute("tabindex", 0);
  }
}

function makeRow(feature, unit) {
  const { id, properties: p } = feature;
  const button = element("button", { type: "button", tabIndex: -1, textContent: String(id) });
  button.setAttribute("aria-label", `Zoom to polygon ${id}`);
  const cells = [area(areaOf(p), unit), p.prob_mean.toFixed(2), p.prob_max.toFixed(2)];
  const row = element("tr", {}, element("td", {}, button), ...cells.map((textContent) => element("td", { textContent })));
  row.dataset.id = id;
  row.setAttribute("aria-selected", false);
  return row;
}
