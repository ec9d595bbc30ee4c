// A projection for one scene: its extent in its own units, and nothing else to know.
// The way to Web Mercator, for a basemap, is a polynomial that the server fitted to the scene.

/* global ol */
const known = new Map();

export function projectionOf(view) {
  const key = JSON.stringify([view.crs, view.extent]);
  if (!known.has(key)) {
    const made = new ol.proj.Projection({
      code: `scene-${known.size}`, units: view.native ? "m" : "pixels", extent: around(view.extent),
      metersPerUnit: view.metres ?? 1, getPointResolution: (resolution) => resolution,
    });
    ol.proj.addProjection(made);
    if (view.mercator) {
      const { forward, inverse } = view.mercator;
      ol.proj.addCoordinateTransforms(made, "EPSG:3857", (at) => polynomial(forward, at), (at) => polynomial(inverse, at));
    }
    known.set(key, made);
  }
  return known.get(key);
}

// As far as the server's polynomial holds: nothing of a basemap is drawn beyond.
function around([left, bottom, right, top]) {
  const [across, up] = [0.75 * (right - left), 0.75 * (top - bottom)];
  return [left - across, bottom - up, right + across, top + up];
}

// sum of c[i][j] u^i v^j, where u and v are the coordinates brought to about -1..1
function polynomial({ centre, scale, x, y }, [east, north]) {
  const u = (east - centre[0]) / scale[0];
  const v = (north - centre[1]) / scale[1];
  const sum = (rows) => rows.reduce((all, row, i) => all + u ** i * row.reduce((part, c, j) => part + c * v ** j, 0), 0);
  return [sum(x), sum(y)];
}
