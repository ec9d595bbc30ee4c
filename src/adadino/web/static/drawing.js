// Outlines by mouse, finger or keys. By keys: the arrows move the map below a cross in its middle,
// Space sets a corner there, Enter ends the outline, Escape gives it up.

/* global ol */
import { $ } from "./dom.js";

const HINTS = {
  polygon: "Click the corners, or move the map below the cross and press Space. Enter ends it.",
  freehand: "Draw around the place with the mouse button or a finger down.",
  reshape: "Drag corners and edges of the outline. Enter keeps it.",
};

export class Drawing {
  constructor(sceneMap) {
    this.sceneMap = sceneMap;
    this.going = null;
    $("draw-corner").addEventListener("click", () => this.corner());
    $("draw-finish").addEventListener("click", () => this.finish());
    $("draw-cancel").addEventListener("click", () => this.cancel());
  }

  // One outline; null where it was given up.
  outline({ freehand = false, title }) {
    const source = new ol.source.Vector();
    const draw = new ol.interaction.Draw({ source, type: "Polygon", freehand, stopClick: true });
    const done = this.#begin(title, freehand ? "freehand" : "polygon", [draw], null);
    draw.on("drawend", ({ feature }) => this.#end(feature.getGeometry()));
    return done;
  }

  // A changed copy of an outline.
  reshape(geometry, title) {
    const feature = new ol.Feature(geometry.clone());
    const source = new ol.source.Vector({ features: [feature] });
    const layer = new ol.layer.Vector({ source, style: new ol.style.Style({ stroke: new ol.style.Stroke({ color: "#00e5ff", width: 3 }) }) });
    const modify = new ol.interaction.Modify({ source });
    return this.#begin(title, "reshape", [modify], { layer, feature });
  }

  get active() {
    return this.going !== null;
  }

  corner() {
    const [draw] = this.going?.tools ?? [];
    if (!draw?.appendCoordinates) return;
    draw.appendCoordinates([this.sceneMap.map.getView().getCenter()]);
    $("draw-cross").hidden = false;
  }

  back() {
    this.going?.tools[0].removeLastPoint?.();
  }

  finish() {
    if (!this.going) return;
    const { tools: [draw], kept } = this.going;
    if (kept) this.#end(kept.feature.getGeometry());
    else if (!draw.finishDrawing()) $("draw-hint").textContent = "An outline needs at least three corners.";
  }

  cancel() {
    this.#end(null);
  }

  #begin(title, how, tools, kept) {
    this.cancel();
    const { map } = this.sceneMap;
    if (kept) map.addLayer(kept.layer);
    for (const tool of tools) map.addInteraction(tool);
    $("drawing").hidden = false;
    $("draw-title").textContent = title;
    $("draw-hint").textContent = HINTS[how];
    $("draw-corner").hidden = how !== "polygon";
    $("draw-finish").hidden = how === "freehand";
    $("draw-cross").hidden = how !== "polygon";
    this.sceneMap.target.focus({ preventScroll: true });
    return new Promise((resolve) => { this.going = { tools, kept, resolve }; });
  }

  #end(geometry) {
    if (!this.going) return;
    const { tools, kept, resolve } = this.going;
    this.going = null;
    const { map } = this.sceneMap;
    for (const tool of tools) map.removeInteraction(tool);
    if (kept) map.removeLayer(kept.layer);
    $("drawing").hidden = true;
    $("draw-cross").hidden = true;
    resolve(geometry);
  }
}
