// Before the first paint, so that nothing flashes.
(() => {
  let theme = "auto";
  try { theme = localStorage.getItem("adadino-theme") || "auto"; } catch { /* storage is closed */ }
  document.documentElement.dataset.theme = theme;
})();
