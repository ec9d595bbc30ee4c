// The addresses of a result for other map programs, each with a button that copies it.

import { $, element } from "./dom.js";

const SERVICES = [
  ["Polygons", "WFS / OGC API Features", ({ threshold, least }) => `features/${threshold}/${least}`],
  ["Images", "WMS/WMTS", () => "wmts"],
  ["Probability", "XYZ Tiles", () => "xyz/probability/{z}/{x}/{y}.png"],
  ["Item", "STAC", () => "stac.json"],
];

export function tellServices(job, settings) {
  const there = job?.state === "done" && Boolean(job.view?.mercator);
  $("services").hidden = !there;
  if (!there) return;
  const lines = SERVICES.map(([what, how, path]) => [what, how, `${location.origin}/api/jobs/${job.id}/${path(settings)}`]);
  const list = $("addresses");
  if (list.dataset.shown === String(lines)) return; // a click may be on its way
  list.dataset.shown = String(lines);
  $("copied").textContent = "";
  list.replaceChildren(...lines.map(([what, how, address]) => {
    const button = element("button", { type: "button", className: "plain", textContent: "Copy" });
    button.setAttribute("aria-label", `Copy the address for ${how}`);
    button.addEventListener("click", () => copy(address, how));
    return element("li", {}, element("b", { textContent: what }), element("small", { textContent: how }), button, element("code", { textContent: address }));
  }));
}

// Without TLS a browser may refuse; the address can then be marked by hand.
async function copy(address, how) {
  try {
    await navigator.clipboard.writeText(address);
    $("copied").textContent = `The address for ${how} is copied.`;
  } catch {
    $("copied").textContent = "The browser does not let the page copy; mark the address and copy it.";
  }
}
