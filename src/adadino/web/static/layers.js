// The second panel: which layers are seen, and how much of them.

import { element } from "./dom.js";

const NAMES = {
  polygons: "Polygons", probability: "Probability", after: "After", before: "Before", basemap: "Basemap",
};

export function layerControls(place, sceneMap, { basemap, onChange }) {
  for (const [name, title] of Object.entries(NAMES)) {
    if (name === "basemap" && !basemap) continue;
    const settings = sceneMap.settings[name];
    const seen = element("input", { type: "checkbox", checked: settings.visible, id: `seen-${name}` });
    const opacity = element("input", { type: "range", min: 0, max: 100, value: 100 * settings.opacity, id: `opacity-${name}` });
    const shown = element("output", { textContent: `${opacity.value} %` });
    opacity.setAttribute("aria-label", `Opacity: ${title}`);
    seen.addEventListener("change", () => {
      sceneMap.setLayer(name, { visible: seen.checked });
      onChange(name, seen.checked);
    });
    opacity.addEventListener("input", () => {
      shown.textContent = `${opacity.value} %`;
      sceneMap.setLayer(name, { opacity: opacity.value / 100 });
    });
    const label = element("label", { htmlFor: seen.id }, seen, element("span", { className: "what", textContent: title }));
    place.append(element("div", { className: "layer" }, label, opacity, shown));
  }
  falseColourControl(place, sceneMap);
}

// Only for scenes whose near infrared was read.
function falseColourControl(place, sceneMap) {
  const seen = element("input", { type: "checkbox", id: "false-colour" });
  const label = element("label", { htmlFor: seen.id }, seen, element("span", { className: "what", textContent: "False colour (near infrared)" }));
  const row = element("div", { className: "layer", hidden: true }, label);
  seen.addEventListener("change", () => sceneMap.showFalseColour(seen.checked));
  sceneMap.onlaidout = (view) => {
    row.hidden = !view.infrared;
    seen.checked = sceneMap.falseColour;
  };
  place.append(row);
}
