// Three ways to see both dates: a bar between them, side by side, or in turns.

/* global ol */
import { $ } from "./dom.js";

const TURN_MS = 700;
const STAGE = document.querySelector(".stage");

export class Compare {
  constructor(sceneMap, swipe) {
    Object.assign(this, { sceneMap, swipe, way: "swipe", outlines: null });
    this.twin = null;
    for (const choice of document.getElementsByName("compare")) {
      choice.addEventListener("change", () => this.choose(choice.value));
    }
  }

  choose(way) {
    if (way === this.way) return;
    this.#end();
    this.way = way;
    document.querySelector(`[name="compare"][value="${way}"]`).checked = true;
    STAGE.dataset.compare = way;
    if (way === "side") this.#beside();
    if (way === "flicker") this.#turns();
    this.sceneMap.map.updateSize();
    this.sceneMap.map.render();
  }

  // A scene was laid out anew, or other outlines are shown.
  refresh(outlines = this.outlines) {
    this.outlines = outlines;
    const { way } = this;
    if (way === "swipe") return;
    this.choose("swipe");
    this.choose(way);
  }

  #end() {
    clearInterval(this.timer);
    this.timer = null;
    this.twin?.setTarget(null);
    this.twin = null;
    $("twin").hidden = true;
    this.swipe.whole = false;
    this.sceneMap.setLayer("after", { visible: true });
    $("turn").textContent = "";
  }

  // Both maps have one view, so that they move as one.
  #beside() {
    $("twin").hidden = false;
    this.swipe.whole = true;
    const { map, layers } = this.sceneMap;
    const shown = [new ol.layer.Tile({ source: layers.before.getSource() })];
    if (this.outlines) shown.push(new ol.layer.Vector({ source: this.outlines.getSource(), style: this.outlines.getStyle() }));
    this.twin = new ol.Map({ target: "twin", layers: shown, view: map.getView(), controls: [], interactions: ol.interaction.defaults.defaults({ altShiftDragRotate: false, pinchRotate: false }) });
    this.twin.on("singleclick", (event) => map.dispatchEvent(event));
  }

  #turns() {
    this.swipe.whole = true;
    let after = true;
    const turn = () => {
      after = !after;
      this.sceneMap.setLayer("after", { visible: after });
      $("turn").textContent = after ? "After" : "Before";
    };
    turn();
    this.timer = setInterval(turn, TURN_MS);
  }

  // Outlines on both maps, on or off.
  show(seen) {
    this.outlines?.setVisible(seen);
    this.twin?.getLayers().item(1)?.setVisible(seen);
  }

  redraw() {
    this.outlines?.changed();
    this.twin?.getLayers().item(1)?.changed();
  }
}
