// The map: two dates, probability and polygons in the scene's own coordinates, or in pixels.

/* global ol */
import { element } from "./dom.js";
import { projectionOf } from "./projection.js";
import { area, areaOf } from "./format.js";

const HIGH = 140;  // what a popup needs above it
const COLOUR = "230, 60, 30";
const FLIGHT_MS = 250;

export class SceneMap {
  constructor(target, popup) {
    this.target = target;
    this.popup = popup;
    this.onselect = () => {};
    this.onmove = () => {};
    this.settings = {
      basemap: { visible: true, opacity: 1 }, before: { visible: true, opacity: 1 },
      after: { visible: true, opacity: 1 }, probability: { visible: false, opacity: 0.7 },
      polygons: { visible: true, opacity: 1 },
    };
    this.layers = {};
    this.features = new ol.source.Vector();
    this.chosen = null;
    this.falseColour = false;
    this.onlaidout = () => {};
    this.overlay = new ol.Overlay({ element: popup, positioning: "bottom-center", offset: [0, -12], stopEvent: false });
    this.map = new ol.Map({
      target, layers: [], overlays: [this.overlay],
      controls: [new ol.control.Zoom(), new ol.control.Control({ element: this.#fitButton() })],
      interactions: ol.interaction.defaults.defaults({ altShiftDragRotate: false, pinchRotate: false }),
    });
    this.map.on("singleclick", (event) => this.#click(event));
    this.map.on("moveend", () => this.onmove());
    target.map = this.map;
  }

  // Lays out a scene; `tiles(layer, z, x, y)` gives the address of a tile.
  show(view, tiles, basemap) {
    this.view = view;
    this.falseColour &&= Boolean(view.infrared);
    this.onlaidout(view);
    const projection = projectionOf(view);
    const resolutions = Array.from({ length: view.levels }, (_, z) => view.resolution * 2 ** (view.levels - 1 - z));
    const grid = new ol.tilegrid.TileGrid({
      origin: [view.extent[0], view.extent[3]], extent: view.extent, resolutions, tileSize: 256,
    });
    const picture = (name) => new ol.layer.Tile({
      source: new ol.source.TileImage({
        projection, tileGrid: grid, transition: 120,
        tileUrlFunction: ([z, x, y]) => tiles(this.falseColour && name !== "probability" ? `${name}-false` : name, z, x, y),
      }),
    });
    this.layers = { before: picture("before"), after: picture("after"), probability: picture("probability") };
    if (basemap && view.mercator) {
      this.layers.basemap = new ol.layer.Tile({ source: new ol.source.XYZ({ url: basemap }) });
    }
    this.features = new ol.source.Vector();
    this.layers.polygons = new ol.layer.Vector({ source: this.features, style: (f) => this.#style(f) });
    const order = ["basemap", "before", "after", "probability", "polygons"].filter((name) => this.layers[name]);
    this.map.setLayers(order.map((name) => this.layers[name]));
    for (const name of order) this.setLayer(name, {});
    const [left, bottom, right, top] = view.extent;
    const longest = Math.max(right - left, top - bottom);
    this.map.setView(new ol.View({
      projection, center: [(left + right) / 2, (bottom + top) / 2],
      extent: [left - longest / 2, bottom - longest / 2, right + longest / 2, top + longest / 2],
      constrainOnlyCenter: true, minResolution: view.resolution / 16,
      maxResolution: longest / 128, resolution: longest / 512, enableRotation: false,
    }));
    this.fitScene();
    this.choose(null);
  }

  // The whole scene, as it is shown at first.
  fitScene() {
    this.fit(this.view.extent, 12);
    this.home = this.#here();
  }

  // East, north and resolution; null while the whole scene is seen as at first.
  get place() {
    const here = this.#here();
    const [east, north, resolution] = here.map((value, i) => Math.abs(value - this.home[i]) / here[2]);
    return east < 0.5 && north < 0.5 && resolution < 1e-3 ? null : here;
  }

  set place(place) {
    if (!place) {
      this.fitScene();
      return;
    }
    this.map.getView().setResolution(place[2]);
    this.map.getView().setCenter(place.slice(0, 2));
  }

  #here() {
    const view = this.map.getView();
    return [...view.getCenter(), view.getResolution()];
  }

  #fitButton() {
    const button = element("button", { type: "button", id: "fit", title: "Show the whole scene" }, element("i"));
    button.setAttribute("aria-label", "Show the whole scene");
    button.addEventListener("click", () => this.view && this.fitScene());
    return element("div", { className: "ol-fit ol-unselectable ol-control" }, button);
  }

  setLayer(name, change) {
    const settings = Object.assign(this.settings[name], change);
    this.layers[name]?.setVisible(settings.visible);
    this.layers[name]?.setOpacity(settings.opacity);
  }

  // Near infrared, red and green in the places of red, green and blue.
  showFalseColour(seen) {
    this.falseColour = seen;
    for (const name of ["before", "after"]) this.reload(name);
  }

  // The tiles of a layer exist only from a moment on.
  reload(name) {
    this.layers[name]?.getSource().refresh();
  }

  // GeoJSON of the server as features; pixels are counted downwards there, the map's y goes up.
  read(collection) {
    const read = new ol.format.GeoJSON().readFeatures(collection);
    if (!this.view.native) for (const feature of read) feature.getGeometry().scale(1, -1, [0, 0]);
    return read;
  }

  // An outline as the server takes it.
  write(geometry) {
    const shape = geometry.clone();
    if (!this.view.native) shape.scale(1, -1, [0, 0]);
    return new ol.format.GeoJSON().writeGeometryObject(shape);
  }

  setPolygons(collection) {
    this.features.clear(true);
    this.features.addFeatures(this.read(collection));
    this.unit = collection.unit;
    this.choose(null);
  }

  setSmallest(least) {
    this.least = least;
    this.layers.polygons?.changed();
    if (this.chosen && areaOf(this.chosen.getProperties()) < least) this.choose(null);
  }

  // The popup stands over its top; where that is cut off, `at` the place that was clicked.
  choose(id, { zoom = false, at = null } = {}) {
    this.chosen = id === null ? null : this.features.getFeatureById(id);
    this.layers.polygons?.changed();
    this.popup.replaceChildren();
    if (!this.chosen) {
      this.overlay.setPosition(undefined);
      return;
    }
    const shape = this.chosen.getGeometry();
    if (zoom) this.fit(shape.getExtent(), 60, this.view.resolution / 4, HIGH + 12);
    const found = this.chosen.getProperties();
    const line = (name, text) => [element("dt", { textContent: name }), element("dd", { textContent: text })];
    const list = element("dl", {},
      ...line("Area", area(areaOf(found), this.unit)),
      ...line("Mean probability", found.prob_mean.toFixed(2)),
      ...line("Highest", found.prob_max.toFixed(2)));
    this.popup.append(element("b", { textContent: `Polygon ${id}` }), list);
    const [left, , right, top] = shape.getExtent();
    this.map.renderSync();
    const over = [(left + right) / 2, top];
    this.#open(at && this.map.getPixelFromCoordinate(over)[1] < HIGH ? at : over);
  }

  // Towards the middle of the map from wherever it is, so that none of it is cut off.
  #open(at) {
    const [x, y] = this.map.getPixelFromCoordinate(at);
    const [width] = this.map.getSize();
    let side = "center";
    if (x < 110) side = "left";
    if (x > width - 110) side = "right";
    const below = y < HIGH;
    this.overlay.setPositioning(`${below ? "top" : "bottom"}-${side}`);
    this.overlay.setOffset([0, below ? 12 : -12]);
    this.overlay.setPosition(at);
  }

  // `above` is what the popup needs over a polygon.
  fit(extent, padding, minResolution, above = padding, duration = 0) {
    const [width, height] = this.map.getSize() ?? [400, 400];
    const side = Math.min(padding, Math.min(width, height) / 4);
    this.map.getView().fit(extent, { padding: [Math.min(above, height / 2.5), side, side, side], minResolution, duration });
  }

  // Moves there, at once for people whom moving pictures trouble.
  fly(extent) {
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.map.getView().cancelAnimations();
    this.fit(extent, 90, this.view.resolution / 4, 90, calm ? 0 : FLIGHT_MS);
  }

  #click(event) {
    const found = this.settings.polygons.visible ? this.#at(event.coordinate) : null;
    this.choose(found ? found.getId() : null, { at: event.coordinate });
    this.onselect(found ? found.getId() : null);
  }

  // By geometry: OpenLayers' own way reads the canvas back, of which browsers warn.
  #at(place) {
    const seen = (feature) => areaOf(feature.getProperties()) >= (this.least ?? 0);
    const inside = this.features.getFeaturesAtCoordinate(place).find(seen);
    if (inside) return inside;
    const near = this.features.getClosestFeatureToCoordinate(place, seen);
    if (!near) return null;
    const [x, y] = near.getGeometry().getClosestPoint(place);
    const pixels = Math.hypot(x - place[0], y - place[1]) / this.map.getView().getResolution();
    return pixels <= 4 ? near : null;
  }

  #style(feature) {
    if (areaOf(feature.getProperties()) < (this.least ?? 0)) return undefined;
    const chosen = feature === this.chosen;
    return [
      new ol.style.Style({ stroke: new ol.style.Stroke({ color: "#fff", width: chosen ? 6 : 3.5 }) }),
      new ol.style.Style({
        stroke: new ol.style.Stroke({ color: chosen ? "#ffd400" : `rgb(${COLOUR})`, width: chosen ? 3.5 : 2 }),
        fill: new ol.style.Fill({ color: `rgba(${COLOUR}, ${chosen ? 0.35 : 0.16})` }),
      }),
    ];
  }
}
