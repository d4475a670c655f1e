// Sets the chosen colours before the page is drawn. Without a choice, the system's
// setting applies.
(function () {
  try {
    const theme = localStorage.getItem("dew-theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch { /* the browser does not allow storage: use the system's setting */ }
})();

// Loads the page again if a script could not be loaded. Chromium stops loading when a
// network interface of the machine appears, as it does at the start of an instance.
(function () {
  const key = "dew.reloads";
  addEventListener("error", (e) => {
    if (!e.target || e.target.tagName !== "SCRIPT") return;
    const count = Number(sessionStorage.getItem(key) || 0);
    if (count >= 3) return;
    sessionStorage.setItem(key, String(count + 1));
    setTimeout(() => location.reload(), 300);
  }, true);
})();
