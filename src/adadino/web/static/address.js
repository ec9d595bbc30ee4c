// The address holds what is seen, so that a link or a reload brings it back:
// #job=ID&threshold=0.35&smallest=100&review=1&map=EAST,NORTH,RESOLUTION

const DEFAULT = 0.5;

export function read() {
  const given = new URLSearchParams(location.hash.slice(1));
  const number = (name) => (given.has(name) ? Number(given.get(name)) : NaN);
  const threshold = number("threshold");
  const least = number("smallest");
  const map = (given.get("map") ?? "").split(",").map((part) => (part ? Number(part) : NaN));
  return {
    job: given.get("job"),
    threshold: threshold >= 0.01 && threshold <= 0.99 ? threshold : DEFAULT,
    least: least > 0 && Number.isFinite(least) ? least : 0,
    review: given.has("review"),
    map: map.length === 3 && map.every(Number.isFinite) && map[2] > 0 ? map : null,
  };
}

// A new entry of the history for another job; changes of the view replace the present one.
export function write({ job, threshold = DEFAULT, least = 0, map = null, review = false }, { push = false } = {}) {
  const parts = job ? [`job=${encodeURIComponent(job)}`] : [];
  if (threshold !== DEFAULT) parts.push(`threshold=${threshold}`);
  if (least) parts.push(`smallest=${least}`);
  if (review) parts.push("review=1");
  if (map) parts.push(`map=${place(map)}`);
  const hash = parts.length ? `#${parts.join("&")}` : "";
  if (hash === location.hash) return;
  const address = location.pathname + location.search + hash;
  if (push) history.pushState(null, "", address);
  else history.replaceState(null, "", address);
}

// To a tenth of a pixel of the screen.
function place([east, north, resolution]) {
  const digits = Math.min(12, Math.max(0, 1 - Math.floor(Math.log10(resolution))));
  return [east.toFixed(digits), north.toFixed(digits), Number(resolution.toPrecision(6))].join(",");
}
