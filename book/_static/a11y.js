// Mends what the theme's markup tells a screen reader or keeps from a keyboard.
document.addEventListener("DOMContentLoaded", () => {
  const each = (selector, mend) =>
    document.querySelectorAll(selector).forEach(mend);

  // A label that differs from the visible text cannot be spoken to a machine:
  // the text itself is the better name.
  each("summary[aria-label], .search-button-field", (element) =>
    element.removeAttribute("aria-label"));
  // What unfolds the pages below a page has an icon alone.
  each(".has-children > details > summary", (element) => {
    const name = element.closest("li").querySelector("a").textContent.trim();
    element.setAttribute("aria-label", `Pages below: ${name}`);
  });
  each(".theme-switch[title]", (icon) => icon.removeAttribute("title"));
  each(".theme-switch title", (title) => title.remove());

  // The title of the book stands outside every landmark.
  each(".sidebar-primary-items__start", (part) => {
    part.setAttribute("role", "region");
    part.setAttribute("aria-label", "Book");
  });

  // On a phone the contents lie over the page: what leads to a section of it
  // closes them, so that the section is seen.
  document.addEventListener("click", ({ target }) => {
    if (target.closest("dialog a")?.pathname === location.pathname) {
      target.closest("dialog").close();
    }
  });

  // There the theme moves the contents into a dialog, and their classes too.
  // Another script of the theme then fails, because it looks for this one.
  const contents = document.getElementById("pst-secondary-sidebar");
  const name = "bd-sidebar-secondary";
  const keep = () =>
    contents.classList.contains(name) || contents.classList.add(name);
  if (contents) {
    new MutationObserver(keep).observe(contents, { attributeFilter: ["class"] });
  }

  // The roles of bibliography entries are deprecated, their list incomplete.
  each(".citation-list, .citation-list [role]", (element) =>
    element.removeAttribute("role"));

  // A button that unfolds a box is called what the box is called.
  each(".admonition-title .toggle-button", (button) =>
    button.setAttribute("aria-label", button.parentNode.textContent.trim()));

  // What scrolls sideways must scroll with the arrow keys too, also after a
  // folded box was opened or a font has arrived. It shows that it scrolls: the
  // edge where something is cut off fades (book.css).
  const wide = ".bd-content pre, .katex-display, .cell_output .text_html, " +
    ".pst-scrollable-table-container";
  const reach = (box) => {
    const { scrollLeft: left, clientWidth: seen, scrollWidth: all } = box;
    const scrolls = all > seen && getComputedStyle(box).overflowX !== "visible";
    if (scrolls) box.setAttribute("tabindex", "0");
    else box.removeAttribute("tabindex");
    box.classList.toggle("more-left", scrolls && left > 1);
    box.classList.toggle("more-right", scrolls && left + seen < all - 1);
  };
  const watcher = new ResizeObserver((entries) =>
    entries.forEach((entry) => reach(entry.target)));
  each(wide, (box) => {
    watcher.observe(box);
    box.addEventListener("scroll", () => reach(box), { passive: true });
  });
  document.fonts.ready.then(() => each(wide, reach));
});
