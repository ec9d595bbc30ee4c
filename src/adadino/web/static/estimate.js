// How long a job takes, before it is sent.

import { sentence } from "./api.js";
import { about, duration } from "./format.js";

export const LONG_S = 300;

// Seconds for a number of pixels; null where the speed or the size is not known.
export function estimate(info, name, pixels) {
  const model = info?.models.find((one) => one.name === name);
  if (!model?.mp_per_s || !pixels) return null;
  return (model.overhead_s ?? 0) + pixels / 1e6 / model.mp_per_s;
}

export function tellEstimate(info, seconds) {
  if (seconds === null) return "\u00a0";
  const cpu = info.device === "cpu";
  const parts = [`${sentence(about(seconds))} ${cpu ? "on the CPU" : `on ${info.device_name}`}.`];
  const refused = tooLong(info, seconds);
  if (refused) parts.push(refused);
  if (cpu && seconds > LONG_S) parts.push("A GPU is many times faster.");
  return parts.join(" ");
}

// Why the server would not take a job of this length; null if it would.
export function tooLong(info, seconds) {
  const most = info?.limits.job_s;
  if (!most || seconds === null || seconds <= most) return null;
  return `This server takes jobs of up to ${duration(most)}; choose a smaller scene.`;
}
