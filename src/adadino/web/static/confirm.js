// Asks before something is lost. Escape and the first button keep it.

import { $, say } from "./dom.js";

// `act` runs on yes; where it fails, its sentence stays in the dialog. True if it was done.
export function confirm(text, act) {
  const dialog = $("confirm");
  $("confirm-text").textContent = text;
  say("confirm-problem");
  $("confirm-yes").disabled = false;
  let done = false;
  $("confirm-no").onclick = () => dialog.close();
  $("confirm-yes").onclick = async () => {
    $("confirm-yes").disabled = true;
    try {
      await act();
      done = true;
      dialog.close();
    } catch (error) {
      say("confirm-problem", error.message);
      $("confirm-yes").disabled = false;
    }
  };
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(done), { once: true });
    dialog.showModal();
  });
}
