// Asks before something is lost. Escape and the first button keep it.

const $ = (id) => document.getElementById(id);

// `act` runs on yes; where it fails, its sentence stays in the dialog. True if it was done.
export function confirm(text, act) {
  const dialog = $("confirm");
  $("confirm-text").textContent = text;
  $("confirm-problem").hidden = true;
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
      $("confirm-problem").textContent = error.message;
      $("confirm-problem").hidden = false;
      $("confirm-yes").disabled = false;
    }
  };
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(done), { once: true });
    dialog.showModal();
  });
}
