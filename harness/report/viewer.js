// The episodes: a table over an index, and a viewer that decodes an episode's chunk when it is opened.
// Everything that came from a model or an environment becomes a text node; no markup is ever made from it.
"use strict";
(() => {
  const $ = (selector, root = document) => root.querySelector(selector);
  const make = (tag, options = {}, ...children) => {
    const found = document.createElement(tag);
    for (const [name, value] of Object.entries(options)) {
      if (name === "class") found.className = value;
      else if (name.startsWith("on")) found.addEventListener(name.slice(2), value);
      else found.setAttribute(name, value);
    }
    found.append(...children.filter((child) => child !== null && child !== ""));
    return found;
  };

  $("#theme").addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });
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

  const episode = async (number) => (await chunk(columns.chunk[number]))[columns.place[number]];
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
  const decimals = (value) => (Number.isInteger(value) ? String(value) : value.toFixed(3));
  // head, what is shown, what it is sorted by, class
  const HEADS = [
    ["", (n) => make("span", { class: verdict(n)[1], title: verdict(n)[2] }, verdict(n)[0]), (n) => columns.success[n], ""],
    ["model", (n) => make("span", {}, make("i", { class: "dot " + run(n).hue }), run(n).name), (n) => run(n).name, ""],
    ["task", (n) => run(n).config.task, (n) => word("game", n), "minor"],
    ["type", (n) => word("type", n), (n) => word("type", n), "minor"],
    ["seed", (n) => columns.seed[n] + (columns.attempt[n] ? ` · ${columns.attempt[n] + 1}` : ""), (n) => columns.seed[n], "r"],
    ["turns", (n) => columns.turns[n], (n) => columns.turns[n], "r"],
    ["reward", (n) => decimals(columns.reward[n]), (n) => columns.reward[n], "r minor"],
    ["invalid", (n) => faults(n) || "–", faults, "r minor"],
    ["ending", (n) => word("ending", n).replace("_", " "), (n) => word("ending", n), ""],
    ["objective", (n) => word("objective", n), (n) => word("objective", n), "obj"],
  ];
  let shown = []; // the episodes that pass the filters, in order
  let drawn = 0; // how many of them have a row
  let sorting = null; // [place in HEADS, descending]
  let deep = null; // {query, hits} of the last search through transcripts
  let current = 0; // place in `shown` that has the focus

  function heads() {
    const oneTask = words.game.length < 2;
    if (oneTask) HEADS.splice(HEADS.findIndex(([head]) => head === "task"), 1);
    if (words.type.length < 2) HEADS.splice(HEADS.findIndex(([head]) => head === "type"), 1);
    $("#table thead tr").replaceChildren(...HEADS.map(([head, , , style], place) => {
      const button = make("button", { type: "button", onclick: () => sort(place) }, head || "✓");
      if (!head) button.setAttribute("aria-label", "success");
      return make("th", { scope: "col", class: style.replace("obj", "") }, button);
    }));
  }

  function sort(place) {
    sorting = [place, sorting && sorting[0] === place ? !sorting[1] : false];
    [...$("#table thead tr").children].forEach((head, other) => {
      if (other === place) head.setAttribute("aria-sort", sorting[1] ? "descending" : "ascending");
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
    return term.startsWith("seed:") ? columns.seed[n] === +term.slice(5) : text.includes(term);
  }

  const haystacks = [];
  function matches(n, sought) {
    haystacks[n] ??= [run(n).name, run(n).config.task, word("type", n), word("objective", n), word("ending", n)].join(" ").toLowerCase();
    return sought.every((term) => holds(n, term, haystacks[n]));
  }

  function grow() {
    const rows = shown.slice(drawn, drawn + 150).map((n, offset) => {
      const place = drawn + offset;
      const row = make("tr", { tabindex: "0", "data-place": place, onclick: () => open(place) });
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

  function focusRow(place) {
    if (!shown.length) return;
    current = Math.max(0, Math.min(place, shown.length - 1));
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
        found.forEach((one, place) => {
          const said = [one.first, ...one.steps.flatMap((step) => [...step.c, step.o, step.y ?? ""])].join("\n").toLowerCase();
          if (sought.every((term) => holds(first + place, term, said))) hits.add(first + place);
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

  async function open(place, versus = null) {
    current = place;
    const number = shown[place], mine = ++asked;
    const [one, other] = await Promise.all([episode(number), versus === null ? null : episode(versus)]);
    if (mine !== asked) return;
    $("#v-title").textContent = `${run(number).name} · ${run(number).config.task} · seed ${columns.seed[number]}`
      + (columns.attempt[number] ? `, attempt ${columns.attempt[number] + 1}` : "");
    $("#v-objective").textContent = word("objective", number);
    $("#v-facts").replaceChildren(...facts(number, one));
    $("#v-prev").disabled = place === 0;
    $("#v-next").disabled = place === shown.length - 1;
    rivals(number, versus);
    $("#v-body").replaceChildren(...(other ? beside(number, one, versus, other) : turns(one)));
    $("#v-body").scrollTop = 0;
    turn = 0;
    $("#v-body").querySelector(".turn, .turn-row")?.classList.add("here");
    if (!viewer.open) viewer.showModal();
    $("#v-body").focus();
    history.replaceState(null, "", `#e=${number}`);
  }

  const chip = (text, style = "") => make("span", { class: ("chip " + style).trim() }, text);

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
      ...others.map((other) => option(other, `${verdict(other)[0]} ${run(other).name}`)));
    $("#v-versus").value = versus === null ? "" : String(versus);
    $("#v-versus").disabled = !others.length;
  }

  const REASONS = { format: "no command found", invalid: "not applicable", length: "cut off" };
  const command = (step) => (step.c.length ? step.c.map((one) => make("div", { class: "command" }, one)) : [make("span", { class: "chip odd" }, "no command")]);
  const marks = (step) => [
    step.f && step.c.length ? chip(REASONS[step.f] ?? step.f, "odd") : null,
    step.r ? chip(`${step.r > 0 ? "+" : ""}${decimals(step.r)}`, step.r > 0 ? "good" : "bad") : null,
  ];
  const text = (words, style) => make("div", { class: "text " + style }, words);

  function folded(title, fill) {
    const found = make("details", {}, make("summary", {}, title));
    found.addEventListener("toggle", () => found.open && found.children.length < 2 && found.append(...fill()), { once: false });
    return found;
  }

  function expert(step, advice) {
    if (advice === null) return make("span", { class: "expert" }, "the expert knows no way from here");
    if (step.c.length === 1 && step.c[0] === advice) return chip("as the expert", "good");
    return make("span", { class: "expert" }, "expert: " + advice);
  }

  function picture(again, place) {
    const image = again.images[again.shots[place]];
    if (image === undefined) return null;
    const shape = (event) => event.target.naturalWidth > 2 * event.target.naturalHeight && event.target.closest(".turn").classList.add("wide");
    const source = "data:image/png;base64," + image;
    return make("div", { class: "pic" }, make("img", { src: source, onload: shape, loading: "lazy", alt: `The scene before turn ${place + 1}` }));
  }

  function turns(one) {
    const again = one.replay && one.replay.expert ? one.replay : null;
    const found = [];
    if (one.error) found.push(make("div", { class: "notice" }, one.error));
    if (one.replay && one.replay.difference) found.push(make("div", { class: "notice" }, `Played again: ${one.replay.difference}.`));
    let seen = one.first;
    one.steps.forEach((step, place) => {
      const told = make("div", { class: "told" }, text(seen, "seen"));
      if (again && again.prompts[place]) {
        const prompt = again.prompts[place];
        told.append(folded(`Prompt · ${prompt.length} messages`, () => prompt.flatMap(([role, number]) => [
          make("span", { class: "role" }, role), text(again.strings[number], "")])));
      }
      const listed = again && again.admissible[place];
      if (listed && listed.length) {
        told.append(folded(`Admissible commands · ${listed.length}`, () => [
          make("ul", {}, ...listed.map((number) => make("li", {}, again.strings[number])))]));
      }
      if (step.t) told.append(text(step.t, "thought"));
      told.append(make("div", { class: "said" }, make("div", {}, ...command(step)), ...marks(step),
        again && place < again.expert.length ? expert(step, again.expert[place]) : null));
      if (step.y !== undefined) told.append(folded("Reply as written", () => [text(step.y, "")]));
      const image = again && picture(again, place);
      found.push(make("article", { class: "turn" + (image ? " drawn" : "") }, make("div", { class: "no" }, String(place + 1)), told, image));
      seen = step.o;
    });
    const image = again && again.shots.length > one.steps.length ? picture(again, one.steps.length) : null;
    found.push(make("article", { class: "turn" + (image ? " drawn" : "") }, make("div", { class: "no" }, "end"), make("div", { class: "told" }, text(seen, "seen")), image));
    return found;
  }

  // Two runs of one game, turn by turn; they are alike until one says something else.
  function beside(number, one, versus, other) {
    const name = (which) => `${verdict(which)[0]} ${run(which).name}`;
    const found = [make("div", { class: "duo heads" }, make("span"), make("span", {}, name(number)), make("span", {}, name(versus)))];
    found.push(make("div", { class: "duo" }, make("div", { class: "no" }, "0"), text(one.first, "seen mine"),
      other.first === one.first ? make("div", { class: "theirs seen" }, "the same") : text(other.first, "seen theirs")));
    const half = (step, style) => step === undefined ? make("div", { class: style }) : make("div", { class: style },
      step.t ? text(step.t, "thought") : null, make("div", { class: "said" }, make("div", {}, ...command(step)), ...marks(step)), text(step.o, "seen"));
    let alike = true;
    for (let place = 0; place < Math.max(one.steps.length, other.steps.length); place++) {
      const [mine, theirs] = [one.steps[place], other.steps[place]];
      const same = alike && mine && theirs && mine.c.join("\n") === theirs.c.join("\n") && mine.o === theirs.o;
      if (alike && !same) found.push(make("p", { class: "parting" }, `They part at turn ${place + 1}.`));
      alike = same;
      found.push(make("div", { class: "duo turn-row" + (same ? " alike" : "") }, make("div", { class: "no" }, String(place + 1)), half(mine, "mine"), half(theirs, "theirs")));
    }
    return found;
  }

  function step(by) {
    const rows = [...$("#v-body").querySelectorAll(".turn, .turn-row")];
    if (!rows.length) return;
    rows[turn]?.classList.remove("here");
    turn = Math.max(0, Math.min(turn + by, rows.length - 1));
    rows[turn].classList.add("here");
    rows[turn].scrollIntoView({ block: "start" });
  }

  const go = (place) => { if (place >= 0 && place < shown.length) open(place); };
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
      : { "/": () => $("#search").focus(), j: () => focusRow(document.activeElement.dataset.place ? current + 1 : current),
          k: () => focusRow(current - 1), Enter: () => document.activeElement.dataset.place && open(+document.activeElement.dataset.place) };
    if (!viewer.open && document.activeElement.dataset.place) {
      current = +document.activeElement.dataset.place;
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
    const linked = /^#e=(\d+)$/.exec(location.hash);
    if (linked && +linked[1] < total) open(shown.indexOf(+linked[1]));
    document.documentElement.dataset.ready = "yes";
    performance.mark("ready");
  }

  start().catch((error) => { $("#count").textContent = `The episodes cannot be read: ${error.message}`; });
})();
