// How outlines look in a review: told apart by colour, by dashes, and by a wider line when chosen.

/* global ol */
const LOOKS = {
  right: { color: "#1a9850" }, wrong: { color: "#6a3d9a", lineDash: [10, 6] }, unsure: { color: "#b8860b", lineDash: [2, 6] },
  missed: { color: "#0077b6" }, unchanged: { color: "#555555", lineDash: [10, 6] }, open: { color: "#e63c1e" },
};

export function outlineStyle(drawn, verdict, chosen) {
  const look = LOOKS[drawn] ?? LOOKS[verdict] ?? LOOKS.open;
  const width = chosen ? 4.5 : 2.5;
  return [
    new ol.style.Style({ stroke: new ol.style.Stroke({ color: chosen ? "#ffd400" : "#fff", width: width + (chosen ? 5 : 2.5) }) }),
    new ol.style.Style({ stroke: new ol.style.Stroke({ ...look, width }), fill: new ol.style.Fill({ color: `${look.color}1f` }) }),
  ];
}
