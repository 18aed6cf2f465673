// Lets a reader change the live figures of a page. It knows nothing of them:
// it makes the controls work that stand in a figure, and shows what comes
// back for their settings: from the frames, which were made with the page, or
// else from Python (engine.js). What is shown is
//   {pictures: [svg], facts: [[name, value]], sentence, refused, place}.
var dpkitFrames = {}; // of a page and figure: [[what a touch sets, shown]]
(() => {
  const folder = new URL("frames/", document.currentScript.src);
  const PATH = "dpbook.explore.all:answer";
  const QUIET = 250; // milliseconds without a change, until it is spoken
  const make = (tag, properties = {}, ...children) => {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(...children);
    return made;
  };
  const written = (value) =>
    value.toLocaleString("en", { maximumFractionDigits: 9 });
  /** The number that a reader wrote; the words, if they are none. */
  const read = (words) => {
    const value = Number(words.replaceAll(",", ""));
    return words.trim() === "" || Number.isNaN(value) ? words : value;
  };

  function enliven(figure) {
    const id = figure.id.slice("live-".length);
    const { name, presets, controls, keeps_before: keeps } =
      JSON.parse(figure.querySelector("script").textContent);
    const [pictures, facts, sentence] = ["pictures", "facts", "sentence"]
      .map((part) => figure.querySelector(`.live-${part}`));
    const start = Object.fromEntries(controls.map((c) => [c.name, c.start]));
    const settings = { ...start };
    const rows = {}; // by control: {row, show(value), mark(place)}
    const first = {
      pictures: [pictures.innerHTML], sentence: sentence.textContent,
      facts: [...facts.rows].map((r) => [...r.cells].map((c) => c.textContent)),
      refused: "", place: "",
    };
    let frames, busy, again, spoken;
    // What a figure that keeps it compares with: what was drawn before the
    // control that moves began to, or for a preset the start.
    let before = start, drawn = start, touched;
    sentence.setAttribute("role", "status");

    // ---- what is shown

    /** The frames of this figure; none, if they cannot be loaded. */
    const loaded = () => frames ??= new Promise((done) => {
      const file = figure.dataset.frames;
      const script = make("script", { src: new URL(file, folder).href });
      script.onload = () => done(dpkitFrames[file.split(".js")[0]]);
      script.onerror = () => done([]);
      document.head.append(script);
    });

    async function answer(asked, was) {
      const same = (one, move) => controls.every(({ name: key }) =>
        one[key] === (move[key] ?? start[key]));
      if (same(asked, {})) return first;
      const frame = (await loaded()).find(([move]) => same(asked, move));
      if (frame && (!keeps || same(was, {}) || !dpkitPython.available)) {
        return frame[1];
      }
      if (!dpkitPython.available) {
        throw new Error("this copy of the book has no Python, so that one " +
          "control at a time can be changed: begin with “start again”");
      }
      const sent = keeps ? { ...asked, before: was } : asked;
      const question = JSON.stringify({ figure: name, settings: sent });
      return JSON.parse(await dpkitPython.call(PATH, question, { tell }));
    }

    /** Says what is shown when the reader rests; or, of what is old, why. */
    function say(words, isOld) {
      clearTimeout(spoken);
      if (!isOld) figure.classList.remove("live-old");
      spoken = setTimeout(() => {
        figure.classList.toggle("live-old", isOld);
        sentence.textContent = words +
          (isOld ? " What is shown is from before the change." : "");
      }, QUIET);
    }
    const tell = dpkitPython.telling(sentence, (words) => say(words, true));

    function show(shown) {
      figure.classList.toggle("live-refused", shown.refused !== "");
      Object.entries(rows).forEach(([key, { mark }]) => mark(shown.place, key));
      say(shown.refused || shown.sentence, shown.refused !== "");
      if (shown.refused) return; // the last picture stays
      pictures.innerHTML = shown.pictures.join("");
      facts.tBodies[0].replaceChildren(...shown.facts.map(([what, ...values]) =>
        make("tr", {}, make("th", { scope: "row" }, what),
          ...values.map((value) => make("td", {}, value)))));
    }

    /** Puts what differs from the start into the address of the page. */
    function address() {
      const url = new URL(location);
      for (const { name: key } of controls) {
        url.searchParams.delete(`${id}.${key}`);
        if (settings[key] !== start[key]) {
          url.searchParams.set(`${id}.${key}`, settings[key]);
          url.hash = figure.id;
        }
      }
      try {
        history.replaceState(history.state, "", url);
      } catch { /* a browser may forbid it to a page from a disk */ }
    }

    /** Hides the controls that mean nothing for the other settings. */
    function arrange() {
      for (const { name: key, shown_for: only } of controls) {
        rows[key].row.hidden = only !== null && !only[1].includes(settings[only[0]]);
      }
    }

    /** Shows the settings; while an answer is awaited, the last ones win. */
    async function change() {
      arrange();
      again = busy;
      if (busy) return;
      busy = true;
      figure.classList.add("live-busy");
      say("Waiting for the answer …", true);
      try {
        const asked = { ...settings };
        const shown = await answer(asked, before);
        show(shown);
        if (!shown.refused) drawn = asked;
      } catch (error) {
        show({ refused: `There is no answer: ${error.message}.`, place: "" });
      }
      address();
      figure.classList.remove("live-busy");
      busy = false;
      if (again) change();
    }

    /** What a preset sets: “devices: 8, link: nvlink4”. */
    const changes = (values) => controls
      .filter(({ name: key }) => key in values && values[key] !== start[key])
      .map(({ name: key, label, unit }) =>
        `${label}: ${values[key].toLocaleString("en")}${unit ? ` ${unit}` : ""}`)
      .join(", ");

    function set(values, words = "") {
      const [key, isPreset] = Object.keys(values);
      if (isPreset) before = start;
      else if (key !== touched) before = drawn;
      touched = isPreset ? "" : key;
      chosen.textContent = words;
      chosen.hidden = words === "";
      Object.assign(settings, values);
      controls.forEach(({ name: key }) => {
        rows[key].show(settings[key]);
        // On a phone its row stays in view, above the picture.
        rows[key].row.classList.toggle("live-touched", key === touched);
      });
      change();
    }

    // ---- its controls; each returns {show, mark}

    const marker = (...inputs) => (place, key) => inputs.forEach((input) =>
      input.setAttribute("aria-invalid", String(place === key)));

    const kinds = {
      choice({ name: key }, row) {
        const select = row.querySelector("select");
        select.onchange = () => set({ [key]: select.value });
        return {
          show: (value) => { select.value = value; },
          mark: marker(select),
        };
      },

      number({ name: key, stops, unit }, row) {
        const [slider, field] = row.querySelectorAll("input");
        slider.oninput = () => set({ [key]: stops[slider.value] });
        field.onchange = () => set({ [key]: read(field.value) });
        return {
          show(value) {
            field.value = typeof value === "number" ? written(value) : value;
            const past = stops.findIndex((stop) => stop >= value);
            slider.value = past < 0 ? stops.length : past;
            slider.setAttribute("aria-valuetext", `${field.value} ${unit}`.trim());
          },
          mark: marker(slider, field),
        };
      },

      lists({ name: key, label }, row) {
        const body = row.querySelector("[role=group]");
        let lines, at = [0, 0], fault = "";
        const draw = (focus) => {
          body.replaceChildren(...lines.map((line, y) => make("div", { className: "live-line" },
            make("span", {}, `${label} ${y}`), ...line.map((word, x) => {
              const here = y === at[0] && x === at[1];
              const button = make("button", {
                type: "button", tabIndex: here ? 0 : -1, ariaPressed: String(here),
                className: word === fault ? "live-fault" : "",
                ariaLabel: `${word}, place ${x + 1} of ${line.length}, ${label} ${y}` +
                  (word === fault ? ", at fault" : ""),
                onclick: () => { at = [y, x]; draw(true); },
              }, word);
              return button;
            }))));
          if (focus) body.querySelector("[tabindex='0']")?.focus();
        };
        const go = (down, right, carry, focus) => {
          let y = at[0] + down;
          while (!carry && down && lines[y]?.length === 0) y += down; // no word
          if (!lines[y]) return;
          const [word] = carry ? lines[at[0]].splice(at[1], 1) : [];
          const most = lines[y].length - (carry ? 0 : 1);
          at = [y, Math.max(0, Math.min(most, at[1] + right))];
          if (carry) lines[y].splice(at[1], 0, word);
          draw(focus);
          if (!carry) return;
          settings[key] = lines.map((line) => line.join(" ")).join("\n");
          change();
        };
        body.onkeydown = (event) => {
          const way = { ArrowUp: [-1, 0], ArrowDown: [1, 0],
            ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
          if (!way) return;
          event.preventDefault();
          go(...way, event.altKey, true);
        };
        row.querySelectorAll("[data-way]").forEach((button) => {
          const [down, right] = button.dataset.way.split(" ").map(Number);
          button.onclick = () => go(down, right, true);
        });
        return {
          show(text) {
            lines = text.split("\n").map((line) => line.split(/\s+/).filter(Boolean));
            if (!lines[at[0]]?.[at[1]]) at = [lines.findIndex((line) => line.length), 0];
            draw(body.contains(document.activeElement));
          },
          mark(place) {
            if (place === fault) return;
            fault = place;
            draw(body.contains(document.activeElement));
          },
        };
      },
    };

    const chosen = figure.querySelector(".live-chosen");
    figure.querySelectorAll("[data-preset]").forEach((button) => {
      const words = button.dataset.preset, values = presets[words] ?? {};
      const told = words && `“${words}” sets ${changes(values) || "nothing"}. ` +
        "All else is as at the start.";
      button.onclick = () => set({ ...start, ...values }, told);
    });
    for (const control of controls) {
      const row = figure.querySelector(`[data-control="${control.name}"]`);
      rows[control.name] = { row, ...kinds[control.kind](control, row) };
    }

    // ---- a view that was sent: its settings are in the address
    const sent = {};
    for (const { name: key, kind } of controls) {
      const value = new URLSearchParams(location.search).get(`${id}.${key}`);
      if (value !== null) sent[key] = kind === "number" ? read(value) : value;
    }
    const folded = figure.querySelector("details");
    if (controls.some((c) => c.folded && c.name in sent)) folded.open = true;
    Object.assign(settings, sent);
    controls.forEach(({ name: key }) => rows[key].show(settings[key]));
    arrange();
    if (Object.keys(sent).length) change();
  }

  document.querySelectorAll("figure.live[id]").forEach(enliven);
})();
