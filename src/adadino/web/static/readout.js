// Below the map: where the pointer is, in which coordinates, and how long a metre is.

import { round125 } from "./format.js";

export class Readout {
  constructor(sceneMap, { coordinates, crs, scale }) {
    Object.assign(this, { sceneMap, coordinates, crs, scale });
    sceneMap.map.on("pointermove", (event) => this.#place(event.coordinate));
    sceneMap.map.on("moveend", () => this.#measure());
    sceneMap.map.getViewport().addEventListener("pointerleave", () => this.#place(null));
  }

  show(view) {
    this.view = view;
    this.crs.textContent = view.crs ?? "pixels";
    this.#place(null);
    this.#measure();
  }

  #place(at) {
    if (!this.view || !at) {
      this.coordinates.textContent = "\u00a0";
      return;
    }
    const view = this.view;
    const [a, b, c, d, e, f] = view.transform;
    const column = view.native ? (at[0] - c) / a : at[0];
    const row = view.native ? (at[1] - f) / e : -at[1];
    if (!view.crs) {
      this.coordinates.textContent = `column ${Math.floor(column)}, row ${Math.floor(row)}`;
      return;
    }
    const place = [a * column + b * row + c, d * column + e * row + f];
    const digits = Math.max(0, Math.min(8, Math.ceil(-Math.log10(Math.abs(a) || Math.abs(b))) + 1));
    // Plain numbers, to be copied into another program.
    this.coordinates.textContent = place.map((value) => value.toFixed(digits)).join(", ");
  }

  #measure() {
    const resolution = this.sceneMap.map.getView().getResolution();
    if (!this.view || !resolution) return;
    const each = resolution * (this.view.metres ?? 1);
    const length = round125(each * Math.min(120, this.scale.clientWidth - 70));
    const [bar, text] = this.scale.children;
    bar.style.width = `${length / each}px`;
    const unit = this.view.metres ? "m" : "px";
    text.textContent = unit === "m" && length >= 1000 ? `${length / 1000} km` : `${Number(length.toPrecision(3))} ${unit}`;
  }
}
