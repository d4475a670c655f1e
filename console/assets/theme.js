// Sets the chosen colours before the page is drawn. Without a choice, the system's
// setting applies.
(function () {
  try {
    const theme = localStorage.getItem("dew-theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch { /* the browser does not allow storage: use the system's setting */ }
})();
