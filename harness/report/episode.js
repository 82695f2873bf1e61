// An episode as nodes: its turns, or two runs of one game side by side; and the theme button. Comes first in the one
// script of the report and of the live page.
// Everything that came from a model or an environment becomes a text node; no markup is ever made from it.
"use strict";
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

const decimals = (value) => (Number.isInteger(value) ? String(value) : value.toFixed(3));

const chip = (text, style = "") => make("span", { class: ("chip " + style).trim(), title: text }, text);

const REASONS = { format: "no command found", invalid: "not applicable", length: "cut off", thinking: "cut off while thinking" };
const command = (step) => (step.c.length ? step.c.map((one) => make("div", { class: "command" }, one)) : [make("span", { class: "chip odd" }, "no command")]);
const marks = (step) => [
  step.f && step.c.length ? chip(REASONS[step.f] ?? step.f, "odd") : null,
  step.r ? chip(`${step.r > 0 ? "+" : ""}${decimals(step.r)}`, step.r > 0 ? "good" : "bad") : null,
];
const agent = (step) => (step.a ? chip(step.a) : null); // who acted, in a game of several agents
const text = (words, style) => make("div", { class: "text " + style }, words);

function folded(title, fill) {
  const found = make("details", {}, make("summary", {}, title));
  found.addEventListener("toggle", () => found.open && found.children.length < 2 && found.append(...fill()));
  return found;
}

function expert(step, advice) {
  if (advice === null) return make("span", { class: "expert" }, "the expert knows no way from here");
  if (step.c.length === 1 && step.c[0] === advice) return chip("as the expert", "good");
  return make("span", { class: "expert" }, "expert: " + advice);
}

function picture(again, position) {
  const image = again.images[again.shots[position]];
  if (image === undefined) return null;
  const shape = (event) => event.target.naturalWidth > 2 * event.target.naturalHeight && event.target.closest(".turn").classList.add("wide");
  const source = "data:image/png;base64," + image;
  return make("div", { class: "pic" }, make("img", { src: source, onload: shape, loading: "lazy", alt: `The scene before turn ${position + 1}` }));
}

function turns(one) {
  const again = one.replay && one.replay.expert ? one.replay : null;
  const found = [];
  if (one.error) found.push(make("div", { class: "notice" }, one.error));
  if (one.replay && one.replay.difference) found.push(make("div", { class: "notice" }, `Played again: ${one.replay.difference}.`));
  let seen = one.first;
  let previous = []; // the messages of the prompt before
  one.steps.forEach((step, position) => {
    const told = make("div", { class: "told" }, text(seen, "seen"));
    if (again && again.prompts[position]) {
      const [shared, added] = again.prompts[position];
      const prompt = previous.slice(0, shared).concat(added);
      previous = prompt;
      told.append(folded(`Prompt · ${prompt.length} messages`, () => prompt.flatMap(([role, number]) => [
        make("span", { class: "role" }, role), text(again.strings[number], "")])));
    }
    const listed = again && again.admissible[position];
    if (listed && listed.length) {
      told.append(folded(`Admissible commands · ${listed.length}`, () => [
        make("ul", {}, ...listed.map((number) => make("li", {}, again.strings[number])))]));
    }
    if (step.t) told.append(text(step.t, "thought"));
    told.append(make("div", { class: "said" }, agent(step), make("div", {}, ...command(step)), ...marks(step),
      again && position < again.expert.length ? expert(step, again.expert[position]) : null));
    if (step.y !== undefined) told.append(folded("Reply as written", () => [text(step.y, "")]));
    const image = again && picture(again, position);
    found.push(make("article", { class: "turn" + (image ? " drawn" : "") }, make("div", { class: "no" }, String(position + 1)), told, image));
    seen = step.o;
  });
  const image = again && again.shots.length > one.steps.length ? picture(again, one.steps.length) : null;
  found.push(make("article", { class: "turn" + (image ? " drawn" : "") }, make("div", { class: "no" }, "end"), make("div", { class: "told" }, text(seen, "seen")), image));
  return found;
}

// Two runs of one game, turn by turn; they are alike until one says something else.
function beside(one, name, other, otherName) {
  const found = [make("div", { class: "duo heads" }, make("span"), make("span", {}, name), make("span", {}, otherName))];
  found.push(make("div", { class: "duo" }, make("div", { class: "no" }, "0"), text(one.first, "seen mine"),
    other.first === one.first ? make("div", { class: "theirs seen" }, "the same") : text(other.first, "seen theirs")));
  const names = { mine: name, theirs: otherName };
  const half = (step, style) => step === undefined ? make("div", { class: style }) : make("div", { class: style, "data-name": names[style] },
    step.t ? text(step.t, "thought") : null, make("div", { class: "said" }, agent(step), make("div", {}, ...command(step)), ...marks(step)), text(step.o, "seen"));
  let alike = true;
  for (let position = 0; position < Math.max(one.steps.length, other.steps.length); position++) {
    const [mine, theirs] = [one.steps[position], other.steps[position]];
    const same = alike && mine && theirs && mine.c.join("\n") === theirs.c.join("\n") && mine.o === theirs.o;
    if (alike && !same) found.push(make("p", { class: "parting" }, `They part at turn ${position + 1}.`));
    alike = same;
    found.push(make("div", { class: "duo turn-row" + (same ? " alike" : "") }, make("div", { class: "no" }, String(position + 1)), half(mine, "mine"), half(theirs, "theirs")));
  }
  return found;
}

$("#theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});
