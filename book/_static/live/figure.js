// Lets a reader change the live figures of a page. It knows nothing of them:
// it makes the controls that the JSON in a figure names, and shows what comes
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
    const { name, title, presets, controls, keeps_before: keeps } =
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
      controls.forEach(({ name: key }) => rows[key].show(settings[key]));
      change();
    }

    // ---- its controls; each returns {row, show, mark}

    const row = (...children) =>
      make("div", { className: "live-control" }, ...children);
    const marker = (...inputs) => (place, key) => inputs.forEach((input) =>
      input.setAttribute("aria-invalid", String(place === key)));

    const kinds = {
      choice({ name: key, label, options }) {
        const select = make("select", { id: `${figure.id}-${key}` },
          ...options.map((word) => make("option", {}, word)));
        select.onchange = () => set({ [key]: select.value });
        return {
          row: row(make("label", { htmlFor: select.id }, label), select),
          show: (value) => { select.value = value; },
          mark: marker(select),
        };
      },

      number({ name: key, label, stops, unit }) {
        const words = unit ? `${label}, ${unit}` : label;
        const field = make("input", { id: `${figure.id}-${key}`, inputMode: "decimal" });
        const slider = make("input", { type: "range", max: stops.length - 1 });
        slider.setAttribute("aria-label", words);
        slider.oninput = () => set({ [key]: stops[slider.value] });
        field.onchange = () => set({ [key]: read(field.value) });
        return {
          row: row(make("label", { htmlFor: field.id }, words), slider, field),
          show(value) {
            field.value = typeof value === "number" ? written(value) : value;
            const past = stops.findIndex((stop) => stop >= value);
            slider.value = past < 0 ? stops.length : past;
            slider.setAttribute("aria-valuetext", `${field.value} ${unit}`.trim());
          },
          mark: marker(slider, field),
        };
      },

      lists({ name: key, label, rules }) {
        const body = make("div", { role: "group", ariaLabel: `${label}s` });
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
        const mover = (words, ...way) => make("button",
          { type: "button", onclick: () => go(...way, true) }, words);
        return {
          row: make("div", { className: "live-wide" },
            ...(rules ? [make("p", {}, rules)] : []),
            make("p", {}, "Choose a box, then move it: by these buttons, or by Alt and an arrow."),
            make("div", { className: "live-buttons" },
              mover("← earlier", 0, -1), mover("later →", 0, 1),
              mover("↑ up", -1, 0), mover("down ↓", 1, 0)), body),
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

    const box = make("fieldset", { className: "live-controls" },
      make("legend", {}, title));
    const choose = (words, values, told) => make("button",
      { type: "button", onclick: () => set({ ...start, ...values }, told) }, words);
    const chosen = make("p", { className: "live-chosen", hidden: true });
    box.append(make("div", { className: "live-buttons" },
      ...Object.entries(presets).map(([words, values]) => choose(words, values,
        `“${words}” sets ${changes(values) || "nothing"}. All else is as at the start.`)),
      choose("start again", {})), chosen);
    const folded = make("details", { className: "live-wide" },
      make("summary", {}, "More settings"), make("div"));
    for (const control of controls) {
      rows[control.name] = kinds[control.kind](control);
      (control.folded ? folded.lastChild : box).append(rows[control.name].row);
    }
    if (folded.lastChild.hasChildNodes()) box.append(folded);
    figure.prepend(box, sentence); // what a touch comes to stands beside it

    // ---- a view that was sent: its settings are in the address
    const sent = {};
    for (const { name: key, kind } of controls) {
      const value = new URLSearchParams(location.search).get(`${id}.${key}`);
      if (value !== null) sent[key] = kind === "number" ? read(value) : value;
    }
    folded.open = controls.some((c) => c.folded && c.name in sent);
    Object.assign(settings, sent);
    controls.forEach(({ name: key }) => rows[key].show(settings[key]));
    arrange();
    if (Object.keys(sent).length) change();
  }

  document.querySelectorAll("figure.live[id]").forEach(enliven);
})();
