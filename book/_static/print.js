// Paper is white: a page in the dark theme is printed in the light one.
let onScreen;
addEventListener("beforeprint", () => {
  onScreen = document.documentElement.dataset.theme;
  document.documentElement.dataset.theme = "light";
});
addEventListener("afterprint", () => {
  document.documentElement.dataset.theme = onScreen;
});
