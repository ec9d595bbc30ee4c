// The button that changes between the system's theme, light and dark.

const ORDER = { auto: "light", light: "dark", dark: "auto" };
const NAMES = { auto: "Auto", light: "Light", dark: "Dark" };

export function themes(button) {
  const root = document.documentElement;
  const show = () => {
    button.querySelector("span").textContent = NAMES[root.dataset.theme];
    button.setAttribute("aria-label", `Theme: ${NAMES[root.dataset.theme]}; change it`);
  };
  button.addEventListener("click", () => {
    root.dataset.theme = ORDER[root.dataset.theme];
    try { localStorage.setItem("adadino-theme", root.dataset.theme); } catch { /* storage is closed */ }
    show();
  });
  show();
}
