// What every page does: light or dark, live or not, times in words, focus that survives news.
(function () {
  "use strict";

  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");

  function isDark() {
    return root.dataset.theme ? root.dataset.theme === "dark" : system.matches;
  }

  const theme = document.getElementById("theme");
  function showTheme() {
    theme.setAttribute("aria-pressed", String(isDark()));
    document.dispatchEvent(new CustomEvent("anabranch:theme"));
  }
  theme.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try {
      localStorage.setItem("anabranch-theme", root.dataset.theme);
    } catch {
      // It lasts as long as the page then.
    }
    showTheme();
  });
  system.addEventListener("change", showTheme);
  showTheme();

  // Live: every look for news is an htmx request that a timer began; while paused, or unseen, none is sent.
  const live = document.getElementById("live");
  let paused = false;
  try {
    paused = sessionStorage.getItem("anabranch-paused") === "yes";
  } catch {
    // Then it begins live.
  }
  function showLive() {
    live.setAttribute("aria-pressed", String(!paused));
    root.classList.toggle("paused", paused);
  }
  live.addEventListener("click", () => {
    paused = !paused;
    try {
      sessionStorage.setItem("anabranch-paused", paused ? "yes" : "no");
    } catch {
      // As above.
    }
    showLive();
  });
  showLive();

  window.anabranch = { isDark, isQuiet: () => paused || document.visibilityState !== "visible" };

  document.addEventListener("htmx:beforeRequest", (event) => {
    const every = (event.target.getAttribute("hx-trigger") || "").startsWith("every");
    if (every && window.anabranch.isQuiet()) {
      event.preventDefault();
    }
  });
  for (const lost of ["htmx:sendError", "htmx:responseError"]) {
    document.addEventListener(lost, () => root.classList.add("lost"));
  }
  document.addEventListener("htmx:afterOnLoad", () => root.classList.remove("lost"));

  // Times in words, as long ago as they are now. The whole time stays in the title.
  function ago(seconds) {
    if (seconds < 2) return "just now";
    for (const [length, name] of [[86400, "day"], [3600, "hour"], [60, "minute"], [1, "second"]]) {
      const count = Math.floor(seconds / length);
      if (count >= 1) return `${count} ${name}${count > 1 ? "s" : ""} ago`;
    }
    return "just now";
  }
  function showTimes() {
    for (const time of document.querySelectorAll("time[datetime]")) {
      const text = ago((Date.now() - Date.parse(time.dateTime)) / 1000);
      if (time.textContent !== text) time.textContent = text;
    }
  }
  showTimes();
  setInterval(showTimes, 1000);
  document.addEventListener("htmx:afterSettle", showTimes);

  // A table that fits needs no focus of its own to be scrolled.
  function showScrolling() {
    for (const box of document.querySelectorAll(".scroll")) {
      const scrolls = box.scrollWidth > box.clientWidth + 1 || box.scrollHeight > box.clientHeight + 1;
      if (scrolls) box.setAttribute("tabindex", "0");
      else box.removeAttribute("tabindex");
    }
  }
  showScrolling();
  addEventListener("resize", showScrolling);
  document.addEventListener("htmx:afterSettle", showScrolling);
})();
