// Before anything is drawn: the colours that were chosen, or else those of the system.
(function () {
  let chosen = null;
  try {
    chosen = localStorage.getItem("anabranch-theme");
  } catch {
    // A browser that keeps nothing follows the system.
  }
  if (chosen === "light" || chosen === "dark") {
    document.documentElement.dataset.theme = chosen;
  }
})();
