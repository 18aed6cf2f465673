// Exercises that are solved in the page: an editor in place of the stub. What
// is written stays in this browser. Without Python the page is as it was.
document.addEventListener("DOMContentLoaded", () => {
  const python = globalThis.dpkitPython; // engine.js
  if (!python?.available) return;
  const RUN = "dpbook.exercises.page:run_code";
  const make = (tag, properties, ...inside) => {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(...inside);
    return made;
  };

  // A book opened from a disk may have no memory.
  const remember = (key, text) => {
    try {
      if (text === undefined) return localStorage.getItem(key);
      if (text === null) localStorage.removeItem(key);
      else localStorage.setItem(key, text);
    } catch { /* then what is written is lost with the page */ }
  };

  // Tab indents, but Escape lets the next Tab leave; Enter keeps the indent.
  const easeTyping = (area, check) => {
    let leaving = false;
    const insert = (text) => document.execCommand("insertText", false, text) ||
      area.setRangeText(text, area.selectionStart, area.selectionEnd, "end");
    area.addEventListener("keydown", (event) => {
      const { key, shiftKey, ctrlKey, metaKey, altKey } = event;
      if (key === "Enter" && (ctrlKey || metaKey)) {
        check();
      } else if (key === "Enter") {
        const before = area.value.slice(0, area.selectionStart);
        const [, indent, rest] = /( *)([^\n]*)$/.exec(before);
        insert(`\n${indent}${rest.endsWith(":") ? "    " : ""}`);
      } else if (key === "Tab" && !(leaving || shiftKey || altKey || ctrlKey)) {
        insert("    ");
      } else {
        leaving = key === "Escape";
        return;
      }
      event.preventDefault();
    });
  };

  // What comes back: a sentence, which is spoken, and what was printed.
  const words = ({ printed, why, solved }, checked) =>
    solved ? "Solved." : why ? `${checked ? "Not yet: " : ""}${why}` :
      printed ? "It printed:" : "It ran, and printed nothing.";

  document.querySelectorAll(".exercise-in-page").forEach((place) => {
    const name = place.dataset.exercise;
    const key = `exercise-${name}`;
    const original = [place.previousElementSibling, place.nextElementSibling];
    const stub = original[0].querySelector("pre").textContent;
    let solution = place;
    while (!solution.matches(".solution")) {
      solution = solution.nextElementSibling;
    }

    const area = make("textarea", {
      id: key, spellcheck: false, autocapitalize: "off", autocomplete: "off",
    });
    const verdict = make("p", { className: "verdict" });
    verdict.setAttribute("role", "status");
    const printed = make("pre", { hidden: true, tabIndex: 0 });
    const fit = () => {
      area.rows = Math.max(5, area.value.split("\n").length + 1);
    };
    const write = (text) => {
      area.value = text;
      fit();
    };

    let busy = false;
    const ask = async (exercise) => {
      if (busy) return;
      busy = true;
      verdict.className = "verdict";
      verdict.textContent = python.parts.python ? "Python is at work …" :
        "Python is loaded, once …";
      printed.hidden = true;
      try {
        const sent = JSON.stringify({ code: area.value, exercise });
        const found = JSON.parse(await python.call(RUN, sent));
        verdict.textContent = words(found, exercise);
        verdict.classList.toggle("solved", found.solved);
        printed.textContent = found.printed;
        printed.hidden = !found.printed;
      } catch (error) {
        const loop = /within/.test(error.message);
        verdict.textContent = `Stopped: ${error.message}.` +
          (loop ? " Is there a loop without an end?" : "");
      }
      busy = false;
    };
    const check = () => ask(name);

    const acts = {
      Run: () => ask(),
      Check: check,
      Solution: () => {
        solution.querySelector(".toggle-button-hidden")?.click();
        solution.scrollIntoView();
        solution.querySelector("button")?.focus();
      },
      "Start again": () => {
        write(stub.trimEnd());
        remember(key, null);
        verdict.textContent = "The stub is back.";
        printed.hidden = true;
      },
    };
    const buttons = Object.entries(acts).map(([text, onclick]) =>
      make("button", { type: "button", textContent: text, onclick }));

    write(remember(key) ?? stub.trimEnd());
    area.addEventListener("input", () => {
      fit();
      remember(key, area.value);
    });
    easeTyping(area, check);
    printed.setAttribute("aria-label", "printed");
    place.append(
      make("label", { htmlFor: key }, "Your code for ", make("code", {}, name)),
      area,
      make("p", { className: "keys" },
        "Ctrl + Enter checks. Tab indents; Escape, then Tab, leaves."),
      make("div", { className: "acts" }, ...buttons),
      verdict, printed,
    );
    place.hidden = false;
    original.forEach((cell) => cell.classList.add("solved-in-page"));
  });
});
