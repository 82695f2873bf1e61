// The live page: asks for the state every two seconds. Comes after episode.js of the report.
// Everything that came from a run folder becomes a text node; no markup is ever made from it.
(() => {
  const EVERY = 2000;
  const KEPT = 300; // rows of ended episodes in the table
  let chosen = ""; // the run that the reader chose; empty: the one that changed last
  let shown = "";
  let playing = false; // the shown run
  let lines = 0;
  let opened = null; // the row to return to

  async function ask(path) {
    const answer = await (await fetch(path)).json();
    if (answer.error) throw new Error(answer.error);
    return answer;
  }

  function duration(seconds) {
    const minutes = Math.floor(Math.round(seconds) / 60);
    if (minutes >= 60) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
    return minutes ? `${minutes} min ${Math.round(seconds) % 60} s` : `${Math.round(seconds)} s`;
  }

  const percent = (part, whole) => `${(100 * part / whole).toFixed(0)} %`;
  const show = (selector, visible) => { $(selector).hidden = !visible; };
  const cell = (words, style = "") => make("td", { class: style }, String(words));

  function facts(run) {
    const beat = run.beat;
    const found = [chip(run.state, run.state === "stopped" ? "odd" : "good"), chip(`${run.ended} of ${run.episodes} episodes`)];
    if (run.scored) found.push(chip(`success so far ${percent(run.wins, run.scored)} (${run.wins} of ${run.scored})`));
    if (run.turns) found.push(chip(`invalid ${percent(run.faults, run.turns)} of turns`));
    if (run.broken) found.push(chip(`broken ${run.broken}`, "bad"));
    if (beat) {
      found.push(chip(`${beat.turns_per_second} turns/s`));
      if (beat.tokens) found.push(chip(`${beat.tokens_per_second} tokens/s`));
      found.push(chip(`${beat.in_flight} requests in flight`, beat.retrying ? "odd" : ""));
      if (beat.seconds_left !== null) found.push(chip(`${beat.at_most ? "at most " : ""}${duration(beat.seconds_left)} left`));
    }
    if (run.tokens) found.push(chip(`${run.tokens} tokens in ended episodes`));
    if (run.cost) found.push(chip(`${run.cost.toFixed(2)} USD`));
    for (const [ending, count] of run.endings) found.push(chip(`${ending} ${count}`));
    return found;
  }

  function row(run, one) {
    const style = one.broken ? "odd" : one.success ? "good" : "bad";
    const found = make("tr", { tabindex: "0" }, cell(one.seed), cell(one.attempt), cell(one.stop_reason, style),
      cell(one.reward === null ? "–" : decimals(one.reward), "r"), cell(one.turns, "r"), cell(one.faults || "", "r"),
      cell(one.broken ? one.error : one.objective, "obj"));
    found.addEventListener("click", () => view(run, one.line, found));
    found.addEventListener("keydown", (event) => { if (event.key === "Enter") view(run, one.line, found); });
    return found;
  }

  async function view(run, line, from) {
    const one = await ask(`episode?run=${encodeURIComponent(run)}&line=${line}`);
    opened = from;
    $("#v-title").textContent = `${one.task} · seed ${one.seed} · attempt ${one.attempt}`;
    $("#v-objective").textContent = one.objective;
    $("#v-facts").replaceChildren(chip(one.stop_reason, one.success ? "good" : "bad"), chip(`${one.turns} turns`));
    $("#v-body").replaceChildren(...turns(one));
    $("#viewer").showModal();
    $("#v-body").scrollTop = 0;
  }

  $("#v-close").addEventListener("click", () => $("#viewer").close());
  $("#viewer").addEventListener("close", () => opened && opened.focus());

  $("#runs").addEventListener("change", () => { chosen = $("#runs").value; poll(); });

  function fill(state) {
    const run = state.details;
    const options = state.runs.map((one) => make("option", { value: one.run },
      `${one.task} ${one.model} ${one.run_id} · ${one.ended}/${one.episodes} ${one.state}`));
    if (document.activeElement !== $("#runs")) $("#runs").replaceChildren(...options);
    if (!run) return;
    $("#runs").value = state.run;
    document.title = `${run.ended}/${run.episodes} ${run.task}`;
    $("#name").textContent = run.model;
    const knobs = Object.entries(run.knobs).map(([name, value]) => ` ${name}=${JSON.stringify(value)}`).join("");
    $("#task").textContent = run.task + knobs;
    $("#lead").textContent = run.folder;
    $("#bar").max = run.episodes || 1;
    $("#bar").value = run.ended;
    $("#facts").replaceChildren(...facts(run));
    show("#problem", run.problem);
    $("#problem").textContent = run.problem;
    const beat = run.beat ?? { retrying: 0, playing: [] };
    show("#retrying", beat.retrying);
    $("#retrying").textContent = `${beat.retrying} requests wait for their next try, within ${Math.round(beat.pause)} s: ${beat.reason}`;
    show("#broken", run.errors.length);
    $("#errors").replaceChildren(...run.errors.map(([why, count]) => make("li", {}, make("span", { class: "times" }, `${count} × `), why)));
    show("#in-play", beat.playing.length);
    $("#playing tbody").replaceChildren(...beat.playing.map((one) => make("tr", {}, cell(one.seed), cell(one.attempt),
      cell(one.turns, "r"), cell(Math.round(one.seconds), "r"), cell(one.command, "words"))));
    const body = $("#table tbody");
    shown = state.run;
    playing = run.state === "playing";
    lines = run.lines;
    for (const one of run.rows) body.prepend(row(state.run, one));
    while (body.children.length > KEPT) body.lastChild.remove();
    show("#finished", lines);
    $("#count").textContent = lines > KEPT ? `The latest ${KEPT} of ${lines}, newest first.` : "Newest first.";
  }

  let asking = false;
  async function poll() {
    if (asking) return;
    asking = true;
    try {
      const name = chosen || (playing ? shown : "");
      let state = await ask(`state?run=${encodeURIComponent(name)}&after=${lines}`);
      const other = shown !== state.run || (state.details && state.details.lines < lines);
      if (other && lines) { // another run, or the journal began anew: its rows are needed from the first line
        lines = 0;
        state = await ask(`state?run=${encodeURIComponent(state.run)}&after=0`);
        $("#table tbody").replaceChildren();
      }
      fill(state);
      show("#lost", false);
    } catch (error) {
      show("#lost", true);
      console.warn(error);
    }
    asking = false;
    document.documentElement.dataset.ready = "";
  }

  poll();
  setInterval(poll, EVERY);
})();
