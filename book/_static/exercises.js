// Exercises that are solved in the page: an editor in place of the stub. What
// is written stays in this browser. Without Python the page is as it was.
document.addEventListener("DOMContentLoaded", () => {
  const python = globalThis.dpkitPython; // engine.js
  if (!python?.available) return;
  const RUN = "dpbook.exercises.page:run_code";
  const ADVICE = { // by the cause of an error of the engine
    late: " Is there a loop without an end?",
    recursion: " Does a function call itself without an end?",
  };
  const make = (tag, properties, ...inside) => {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(...inside);
    return made;
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

  // The numbers of lines, beside the code. They are drawn, and not read out: a
  // message that names a line leads there. Returns what fits both to the code.
  const numberLines = (area, numbers) => {
    numbers.setAttribute("aria-hidden", "true");
    area.addEventListener("scroll", () => { numbers.scrollTop = area.scrollTop; });
    return () => {
      const { length } = area.value.split("\n");
      area.rows = Math.max(5, length + 1);
      numbers.textContent =
        Array.from({ length }, (_, line) => `${line + 1}\n`).join("");
    };
  };

  const selectLine = (area, number) => {
    const lines = area.value.split("\n");
    const start = lines.slice(0, number - 1).join("\n").length + (number > 1);
    area.focus();
    area.setSelectionRange(start, start + (lines[number - 1] ?? "").length);
  };

  // “line 3: …” begins with a button that leads to that line.
  const withLine = (text, area) => {
    const [, before, line, number, after] =
      /^(Not yet: )?(line (\d+))(:.*)$/s.exec(text) ?? [];
    if (!line) return [text];
    const onclick = () => selectLine(area, number);
    return [before ?? "",
      make("button", { type: "button", textContent: line, onclick }), after];
  };

  // What comes back: a sentence, which is spoken.
  const words = ({ printed, value, why, solved }, checked) => {
    if (solved) return "Solved.";
    if (why) return `${checked ? "Not yet: " : ""}${why}`;
    if (printed) return "It printed:";
    return value ? "It printed nothing. The last line has a value:" :
      "It ran, and printed nothing.";
  };

  document.querySelectorAll(".exercise-in-page").forEach((place) => {
    const name = place.dataset.exercise;
    const key = `exercise-${name}`;
    const keyBefore = `${key} before`; // the code that a button took away
    const original = [place.previousElementSibling, place.nextElementSibling];
    const stub = original[0].querySelector("pre").textContent.trimEnd();
    let solution = place;
    while (!solution.matches(".solution")) {
      solution = solution.nextElementSibling;
    }

    const area = make("textarea", {
      id: key, spellcheck: false, autocapitalize: "off", autocomplete: "off",
    });
    const numbers = make("div", { className: "numbers" });
    const fit = numberLines(area, numbers);
    const verdict = make("p", { className: "verdict" });
    verdict.setAttribute("role", "status");
    const [printed, value] = ["printed", "value of the last line"].map((ariaLabel) =>
      make("div", { className: "shown", hidden: true, tabIndex: 0, role: "group",
        ariaLabel }));

    // ---- what is kept

    const write = (text) => {
      area.value = text;
      fit();
    };
    const keep = () => area.value === stub ?
      dpkitKept.forget(key) : dpkitKept.set(key, area.value);
    // Another tab may have written since.
    const follow = () => {
      const text = dpkitKept.get(key) ?? stub;
      if (area.value !== text) write(text);
      buttons.Undo.hidden = dpkitKept.get(keyBefore) === null;
    };
    /** Puts a text in place of the code, which “Undo” brings back. */
    const replace = (text, said) => {
      if (area.value === stub) dpkitKept.forget(keyBefore);
      else dpkitKept.set(keyBefore, area.value);
      write(text);
      keep();
      follow();
      show(said);
    };

    // ---- what is shown

    const show = (said, found = {}) => {
      verdict.replaceChildren(...withLine(said, area));
      verdict.classList.toggle("solved", found.solved === true);
      [[printed, found.printed], [value, found.value]].forEach(([part, text]) => {
        part.textContent = text;
        part.hidden = !text;
      });
    };

    const tell = python.telling(verdict, (phase) => show(phase));
    let run; // the AbortController of a run, while there is one
    const ask = async (exercise) => {
      if (run) return;
      run = new AbortController();
      buttons.Stop.disabled = false;
      const { signal } = run;
      let heard = "";
      const hear = (text) => { heard += text; };
      try {
        const sent = JSON.stringify({ code: area.value, exercise });
        const found = JSON.parse(await python.call(RUN, sent, { signal, tell, hear }));
        show(words(found, exercise), found);
      } catch ({ message, cause }) {
        show(signal.aborted ? "Stopped." :
          `Stopped: ${message}.${ADVICE[cause] ?? ""}`, { printed: heard });
      }
      run = undefined;
      if (document.activeElement === buttons.Stop) buttons.Run.focus();
      buttons.Stop.disabled = true;
    };
    const check = () => ask(name);

    const acts = {
      Run: () => ask(),
      Check: check,
      Stop: () => run.abort(),
      Solution: () => {
        solution.querySelector(".toggle-button-hidden")?.click();
        solution.scrollIntoView();
        solution.querySelector("button")?.focus();
      },
      "Start again": () => {
        if (area.value === stub) show("The stub is here.");
        else replace(stub, "The stub is back. “Undo” brings your code back.");
      },
      Undo: () => {
        replace(dpkitKept.get(keyBefore), "Your code is back.");
        if (buttons.Undo.hidden) buttons["Start again"].focus();
      },
    };
    const buttons = Object.fromEntries(Object.entries(acts)
      .map(([textContent, onclick]) => [textContent,
        make("button", { type: "button", textContent, onclick })]));
    buttons.Stop.disabled = true;

    follow();
    fit();
    addEventListener("storage", follow);
    addEventListener("pageshow", follow);
    document.addEventListener("visibilitychange", follow);
    area.addEventListener("input", () => {
      fit();
      keep();
    });
    easeTyping(area, check);
    place.append(
      make("label", { htmlFor: key }, "Your code for ", make("code", {}, name)),
      make("div", { className: "code" }, area, numbers),
      make("p", { className: "keys" },
        "Ctrl + Enter checks. Tab indents; Escape, then Tab, leaves."),
      make("div", { className: "acts" }, ...Object.values(buttons)),
      verdict, printed, value,
    );
    place.hidden = false;
    original.forEach((cell) => cell.classList.add("solved-in-page"));
  });
});
