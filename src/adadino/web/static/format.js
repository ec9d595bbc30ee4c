// Numbers as people write them.

export function number(value, digits = 0) {
  return value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

export function area(value, unit) {
  if (unit === "px") return `${number(value)} px`;
  if (value >= 1e6) return `${number(value / 1e6, 2)} km²`;
  if (value >= 1e4) return `${number(value / 1e4, 2)} ha`;
  return `${number(value, value < 10 && !Number.isInteger(value) ? 2 : 0)} m²`;
}

// The area of a polygon in the unit of its scene.
export function areaOf(properties) {
  return properties?.area_m2 ?? properties?.area_px;
}

export function percent(share) {
  if (share > 0 && share < 0.001) return "< 0.1 %";
  return `${number(100 * share, 1)} %`;
}

export function duration(seconds) {
  if (seconds < 1) return "under 1 s";
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return `${number(seconds / 3600, 1)} h`;
}

// The same for a guess.
export function about(seconds) {
  return seconds < 1 ? duration(seconds) : `about ${duration(seconds)}`;
}

export function size(bytes) {
  if (bytes < 1e6) return `${number(bytes / 1e3)} kB`;
  return bytes < 1e9 ? `${number(bytes / 1e6, 1)} MB` : `${number(bytes / 1e9, 2)} GB`;
}

export function when(seconds) {
  return new Date(seconds * 1000).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
}

// 1, 2 or 5 times a power of ten, not above the value.
export function round125(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [5, 2, 1].map((step) => step * power).find((step) => step <= value * 1.0000001);
}
