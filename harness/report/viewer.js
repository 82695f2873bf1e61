// The episodes: a table over an index, and a viewer that decodes an episode's chunk when it is opened.
// What is built here comes from episode.js, by text nodes alone.
"use strict";
(() => {
  if (!$("#episodes")) return;

  // ---- data ---------------------------------------------------------------------------------------------------------

  const { runs } = JSON.parse($("#about").textContent);
  let columns, words, total;
  const chunks = new Map(); // number -> promise of its episodes; the last few stay decoded
  const KEPT = 12;

  async function unpack(id) {
    const packed = atob($("#" + id).textContent.trim());
    const bytes = Uint8Array.from(packed, (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return JSON.parse(await new Response(stream).text());
  }

  function chunk(number) {
    const found = chunks.get(number) ?? unpack("c" + number);
    chunks.delete(number); // to the end of the line
    chunks.set(number, found);
    if (chunks.size > KEPT) chunks.delete(chunks.keys().next().value);
    return found;
  }

  const episode = async (number) => (await chunk(columns.chunk[number]))[columns.position[number]];
  const word = (name, number) => words[name][columns[name][number]];
  const run = (number) => runs[columns.run[number]];
  const game = (number) => `${columns.game[number]} ${columns.seed[number]} ${columns.attempt[number]}`;
  const faults = (number) => columns.format[number] + columns.invalid[number] + columns.length[number];
  let byGame; // game -> the episodes of all runs that played it

  // ---- the table ----------------------------------------------------------------------------------------------------

  const verdict = (number) => {
    if (word("ending", number) === "broken") return ["○", "odd", "broken"];
    return columns.success[number] ? ["✓", "good", "solved"] : ["✕", "bad", "not solved"];
  };
  const title = (number) => `${verdict(number)[0]} ${run(number).name}`;
  // TextWorld's objectives begin with a greeting that names it; the table has no room for that.
  const GREETING = /^[^]{0,120}?TextWorld[^.!?]*[.!?] (?:You do! )?(?:Here is [^.!?]*[.!?] )?(?=.)/;
  // head, what is shown, what it is sorted by, class
  const HEADS = [
    ["", (n) => make("span", { class: verdict(n)[1], title: verdict(n)[2] }, verdict(n)[0]), (n) => columns.success[n], ""],
    ["model", (n) => make("span", {}, make("i", { class: "dot " + run(n).hue }), run(n).name,
      words.game.length > 1 ? make("small", { class: "under" }, run(n).config.task) : null), (n) => run(n).name, ""],
    ["task", (n) => run(n).config.task, (n) => word("game", n), "minor"],
    ["type", (n) => word("type", n), (n) => word("type", n), "minor"],
    ["seed", (n) => columns.seed[n] + (columns.attempt[n] ? ` · ${columns.attempt[n] + 1}` : ""), (n) => columns.seed[n], "r"],
    ["turns", (n) => columns.turns[n], (n) => columns.turns[n], "r"],
    ["reward", (n) => decimals(columns.reward[n]), (n) => columns.reward[n], "r minor"],
    ["invalid", (n) => faults(n) || "–", faults, "r minor"],
    ["ending", (n) => word("ending", n).replace("_", " "), (n) => word("ending", n), ""],
    ["objective", (n) => word("objective", n).replace(GREETING, ""), (n) => word("objective", n), "obj"],
  ];
  let shown = []; // the episodes that pass the filters, in order
  let drawn = 0; // how many of them have a row
  let sorting = null; // [position in HEADS, descending]
  let deep = null; // {query, hits} of the last search through transcripts
  let current = 0; // position in `shown` that has the focus

  function heads() {
    const oneTask = words.game.length < 2;
    if (oneTask) HEADS.splice(HEADS.findIndex(([head]) => head === "task"), 1);
    if (words.type.length < 2) HEADS.splice(HEADS.findIndex(([head]) => head === "type"), 1);
    $("#table thead tr").replaceChildren(...HEADS.map(([head, , , style], position) => {
      const button = make("button", { type: "button", onclick: () => sort(position) }, head || "✓");
      if (!head) button.setAttribute("aria-label", "success");
      return make("th", { scope: "col", class: style.replace("obj", "") }, button);
    }));
  }

  function sort(position) {
    sorting = [position, sorting && sorting[0] === position ? !sorting[1] : false];
    [...$("#table thead tr").children].forEach((head, other) => {
      if (other === position) head.setAttribute("aria-sort", sorting[1] ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    filter();
  }

  let pause = 0; // the table is filtered when typing has paused, or is over
  function settle() {
    if (!pause) return;
    clearTimeout(pause);
    pause = 0;
    filter();
  }

  function terms() {
    return $("#search").value.toLowerCase().split(/\s+/).filter(Boolean);
  }

  function filter() {
    const wanted = { run: $("#by-run").value, game: $("#by-game").value, type: $("#by-type").value, ending: $("#by-ending").value };
    const fault = $("#by-fault").value, kind = $("#by-kind").value, sought = terms();
    const hits = deep && deep.query === $("#search").value ? deep.hits : null;
    shown = [];
    for (let n = 0; n < total; n++) {
      if (Object.entries(wanted).some(([name, value]) => value !== "" && columns[name][n] !== +value)) continue;
      if (fault === "any" ? !faults(n) : fault === "none" ? faults(n) : fault && !columns[fault][n]) continue;
      if (kind === "replayed" && !columns.replayed[n]) continue;
      if (kind === "parted" && new Set(byGame.get(game(n)).map((one) => columns.success[one])).size < 2) continue;
      if (hits ? !hits.has(n) : sought.length && !matches(n, sought)) continue;
      shown.push(n);
    }
    if (sorting) {
      const by = HEADS[sorting[0]][2], sign = sorting[1] ? -1 : 1;
      const keys = new Map(shown.map((n) => [n, by(n)]));
      shown.sort((a, b) => (keys.get(a) < keys.get(b) ? -sign : keys.get(a) > keys.get(b) ? sign : a - b));
    }
    $("#table tbody").replaceChildren();
    drawn = current = 0;
    grow();
    const share = shown.length ? ` · ${(100 * shown.filter((n) => columns.success[n]).length / shown.length).toFixed(1)} % solved` : "";
    $("#count").textContent = `${shown.length.toLocaleString("en")} of ${total.toLocaleString("en")} episodes${share}`
      + (hits ? " · found in transcripts" : "");
  }

  function holds(n, term, text) {
    if (!term.startsWith("seed:")) return text.includes(term);
    return term === "seed:" || columns.seed[n] === +term.slice(5); // while the number is still to be typed, all
  }

  const haystacks = [];
  function matches(n, sought) {
    haystacks[n] ??= [run(n).name, run(n).config.task, word("type", n), word("objective", n), word("ending", n)].join(" ").toLowerCase();
    return sought.every((term) => holds(n, term, haystacks[n]));
  }

  function grow() {
    const rows = shown.slice(drawn, drawn + 150).map((n, offset) => {
      const position = drawn + offset;
      const row = make("tr", { tabindex: "0", "data-position": position, onclick: () => open(position) });
      row.append(...HEADS.map(([head, cell, , style]) => {
        const value = cell(n);
        const found = make("td", { class: style }, value instanceof Node ? value : String(value));
        if (head === "objective") found.title = value;
        return found;
      }));
      return row;
    });
    $("#table tbody").append(...rows);
    drawn += rows.length;
  }

  function focusRow(position) {
    if (!shown.length) return;
    current = Math.max(0, Math.min(position, shown.length - 1));
    while (drawn <= current) grow();
    $("#table tbody").children[current].focus();
  }

  async function searchTranscripts() {
    const query = $("#search").value, sought = terms();
    if (!sought.length) return $("#search").focus();
    $("#deep").disabled = true;
    const hits = new Set(), count = columns.chunk[total - 1] + 1;
    let first = 0;
    try {
      for (let number = 0; number < count; number++) {
        const found = await unpack("c" + number); // not kept: a search reads them all
        found.forEach((one, position) => {
          const said = [one.first, ...one.steps.flatMap((step) => [...step.c, step.o, step.y ?? ""])].join("\n").toLowerCase();
          if (sought.every((term) => holds(first + position, term, said))) hits.add(first + position);
        });
        first += found.length;
        if (number % 8 === 7) {
          $("#count").textContent = `Searching … ${Math.round((100 * number) / count)} %`;
          await new Promise((resume) => setTimeout(resume));
        }
      }
    } finally {
      $("#deep").disabled = false;
    }
    deep = { query, hits };
    filter();
  }

  // ---- the viewer ---------------------------------------------------------------------------------------------------

  const viewer = $("#viewer");
  let turn = 0; // the one the keys are at
  let asked = 0; // how many times an episode was asked for: of two on their way, the last one is shown

  async function open(position, versus = null) {
    current = position;
    const number = shown[position], mine = ++asked;
    const [one, other] = await Promise.all([episode(number), versus === null ? null : episode(versus)]);
    if (mine !== asked) return;
    $("#v-title").textContent = `${run(number).name} · ${run(number).config.task} · seed ${columns.seed[number]}`
      + (columns.attempt[number] ? `, attempt ${columns.attempt[number] + 1}` : "");
    $("#v-objective").textContent = word("objective", number);
    $("#v-facts").replaceChildren(...facts(number, one));
    $("#v-prev").disabled = position === 0;
    $("#v-next").disabled = position === shown.length - 1;
    rivals(number, versus);
    $("#v-body").replaceChildren(...(other ? beside(one, title(number), other, title(versus)) : turns(one)));
    $("#v-body").scrollTop = 0;
    turn = 0;
    $("#v-body").querySelector(".turn, .turn-row")?.classList.add("here");
    if (!viewer.open) viewer.showModal();
    $("#v-body").focus();
    history.replaceState(null, "", `#e=${number}`);
  }

  // The episode that the address names, #e=NUMBER, whatever the filters say.
  function follow() {
    const linked = /^#e=(\d+)$/.exec(location.hash);
    if (!linked || +linked[1] >= total) return;
    const position = shown.indexOf(+linked[1]);
    if (position >= 0) return open(position);
    $("#filters").reset();
    setTimeout(follow); // behind the filter that the reset has put off
  }

  function facts(number, one) {
    const [mark, style, name] = verdict(number);
    const found = [chip(`${mark} ${name}`, style), chip(`${columns.turns[number]} turns`)];
    if (!["solved", "broken"].includes(word("ending", number))) found.splice(1, 0, chip(word("ending", number).replace("_", " ")));
    found.push(chip(`reward ${decimals(columns.reward[number])}`));
    if (columns.progression[number] > 0 && columns.progression[number] < 1) found.push(chip(`progress ${Math.round(100 * columns.progression[number])} %`));
    if (faults(number)) found.push(chip(`${faults(number)} invalid`, "odd"));
    if (columns.tokens[number]) found.push(chip(`${columns.tokens[number]} tokens`));
    const told = word("objective", number).toLowerCase();
    for (const [name, value] of Object.entries(one.labels)) if (!told.includes(value.toLowerCase())) found.push(chip(`${name.replace("_", " ")} ${value}`));
    for (const [name, value] of Object.entries(one.metrics)) found.push(chip(`${name.replaceAll("_", " ")} ${decimals(value)}`));
    return found;
  }

  function rivals(number, versus) {
    const others = byGame.get(game(number)).filter((other) => other !== number);
    const option = (value, text) => make("option", { value }, text);
    $("#v-versus").replaceChildren(option("", others.length ? "nothing" : "no other run of this game"),
      ...others.map((other) => option(other, title(other))));
    $("#v-versus").value = versus === null ? "" : String(versus);
    $("#v-versus").disabled = !others.length;
  }

  function step(by) {
    const rows = [...$("#v-body").querySelectorAll(".turn, .turn-row")];
    if (!rows.length) return;
    rows[turn]?.classList.remove("here");
    turn = Math.max(0, Math.min(turn + by, rows.length - 1));
    rows[turn].classList.add("here");
    rows[turn].scrollIntoView({ block: "start" });
  }

  const go = (position) => { if (position >= 0 && position < shown.length) open(position); };
  viewer.addEventListener("close", () => {
    history.replaceState(null, "", location.pathname + location.search + "#episodes");
    focusRow(current);
  });
  $("#v-close").addEventListener("click", () => viewer.close());
  $("#v-prev").addEventListener("click", () => go(current - 1));
  $("#v-next").addEventListener("click", () => go(current + 1));
  $("#v-versus").addEventListener("change", (event) => open(current, event.target.value === "" ? null : +event.target.value));

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
    if (typing) {
      if (event.key === "Enter" || event.key === "Escape") settle(); // or the rows are replaced under the next key
      if (event.key === "Enter" && event.target.id === "search") { event.preventDefault(); searchTranscripts(); }
      if (event.key === "Escape" && !viewer.open) { event.preventDefault(); event.target.blur(); } // what was typed stays
      return;
    }
    const keys = viewer.open
      ? { j: () => step(1), k: () => step(-1), ArrowRight: () => go(current + 1), ArrowLeft: () => go(current - 1) }
      : { "/": () => $("#search").focus(), j: () => focusRow(document.activeElement.dataset.position ? current + 1 : current),
          k: () => focusRow(current - 1), Enter: () => document.activeElement.dataset.position && open(+document.activeElement.dataset.position) };
    if (!viewer.open && document.activeElement.dataset.position) {
      current = +document.activeElement.dataset.position;
      keys.ArrowDown = keys.j;
      keys.ArrowUp = keys.k;
    }
    if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
  });

  // ---- start --------------------------------------------------------------------------------------------------------

  function fill(select, names) {
    names.forEach((name, value) => $(select).append(make("option", { value }, name || "(none)")));
    $(select).parentElement.hidden = names.length < 2;
    $(select).addEventListener("change", filter);
  }

  async function start() {
    ({ columns, words } = await unpack("index"));
    total = columns.run.length;
    byGame = Map.groupBy ? Map.groupBy(columns.run.keys(), game) : columns.run.reduce((found, _, n) => {
      found.set(game(n), [...(found.get(game(n)) ?? []), n]);
      return found;
    }, new Map());
    const repeated = new Map();
    runs.forEach(({ name }) => repeated.set(name, (repeated.get(name) ?? 0) + 1));
    fill("#by-run", runs.map(({ name, config }) => (repeated.get(name) > 1 ? `${name} · ${config.task}` : name)));
    fill("#by-game", words.game);
    fill("#by-type", words.type);
    fill("#by-ending", words.ending);
    heads();
    $("#by-fault").addEventListener("change", filter);
    $("#by-kind").addEventListener("change", filter);
    $("#search").addEventListener("input", () => { clearTimeout(pause); pause = setTimeout(settle, 80); });
    $("#filters").addEventListener("reset", () => setTimeout(filter));
    $("#filters").addEventListener("submit", (event) => event.preventDefault());
    $("#deep").addEventListener("click", searchTranscripts);
    new IntersectionObserver(([seen]) => seen.isIntersecting && drawn < shown.length && grow(), { rootMargin: "600px" }).observe($("#more"));
    filter();
    follow();
    addEventListener("hashchange", follow);
    document.documentElement.dataset.ready = "yes";
    performance.mark("ready");
  }

  start().catch((error) => { $("#count").textContent = `The episodes cannot be read: ${error.message}`; });
})();
