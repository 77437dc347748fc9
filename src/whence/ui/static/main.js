// The page: what is chosen, and how keys and clicks change it.

import { Name, count, fail, glossed, h, percent, place, replace, short, tell } from "./dom.js";
import { readAddress, writeAddress } from "./address.js";
import { sampleView, scaleKey } from "./maps.js";
import { source } from "./source.js";
import { balance, charts } from "./charts.js";
import { card, conceptStrip, doubtWords, drawMark, pairView, sentence, usualView, verdict } from "./panels.js";
import { auditView, classView } from "./audit.js";
import { TestList } from "./list.js";
import { WhatIf } from "./whatif.js";

const state = { info: null, names: [], list: null, whatIf: null, tab: "explore", test: null, own: null, why: null, pair: null, shown: null, asked: 0,
  choice: { k: 5, target: null, C: null, question: "made of" }, solved: new Set(), foretelling: null, foretold: !source.live, doubt: null, usual: null };
const names = () => state.names;

function choose(test) {
  Object.assign(state, { test, own: null, pair: null });
  state.choice.target = null;
  state.list.show(test);
  return explain();
}

function chooseOwn(body, type) {
  Object.assign(state, { own: { body, type }, test: null, pair: null });
  state.choice.target = null;
  state.list.show(null);
  return explain();
}

async function explain() {
  const panel = place("explanation"), mine = ++state.asked, { C, question } = state.choice;
  panel.setAttribute("aria-busy", "true");
  writeAddress(state.info, state);
  try {
    if (question === "would change") {
      await Promise.race([foretell(), new Promise((go) => { setTimeout(go, 300); })]);
      if (mine !== state.asked) return;
      if (!state.foretold) await meanwhile(mine);
      await foretell();
    } else if (question === "made of" && C !== null && !state.solved.has(C)) {
      tell(`Solving at C = ${short(C)} …`);
      await source.solveAt(C, ({ seconds }) => tell(`Solving at C = ${short(C)} … ${seconds.toFixed(1)} s`));
      state.solved.add(C);
    }
    if (mine !== state.asked) return; // a later choice came in between
    const why = await answer(state.choice);
    if (mine !== state.asked) return;
    drawn(why);
    tell(`${why.test === null ? "Your sample" : `Test sample ${why.test}`}: ${new Name(why.verdict.predicted)}${why.speech !== "class" ? "" : `, ${percent(why.probability)}`}`);
  } catch (error) {
    if (mine !== state.asked) return;
    state.choice.question = "made of";
    fail(panel, error);
    tell("");
  } finally {
    if (mine === state.asked) panel.removeAttribute("aria-busy");
  }
}

const answer = (choice) => state.own ? source.own(state.own.body, state.own.type, choice) : source.explain(state.test, choice);

function drawn(why) {
  Object.assign(state, { why, doubt: null, usual: null });
  draw();
  doubt(why);
  usual(why);
}

// How usual the test is comes when the features of the training set are read, once.
async function usual(why) {
  const found = await source.usual(why, state.own).catch(() => null); // a hint, without which all else holds
  if (why !== state.why || !found) return;
  state.usual = found;
  replace(place("usual"), usualView(found));
  sumUp();
}

// While effects are fitted, what the logit is made of can be looked at.
async function meanwhile(mine) {
  if (state.why?.question === "made of" && state.why.test === state.test && !state.own) { place("explanation").removeAttribute("aria-busy"); return; }
  const why = await answer({ ...state.choice, question: "made of" });
  if (mine !== state.asked) return;
  drawn(why);
  place("explanation").removeAttribute("aria-busy");
}

// Effects are fitted once, beside all else; whoever asks for them follows the same fit.
function foretell() {
  if (state.foretelling) return state.foretelling;
  const box = place("fitting"), bar = place("fitting-bar"), words = place("fitting-words");
  const mine = state.foretelling = source.foretell(({ seconds, what, done, total }) => {
    if (mine !== state.foretelling) return; // it was stopped
    box.hidden = false;
    words.textContent = [what, total ? `${count(done)} of ${count(total)}` : "", `${seconds.toFixed(0)} s`].filter(Boolean).join(" · ");
    if (total) Object.assign(bar, { max: total, value: done }); else bar.removeAttribute("value");
  });
  mine.then(() => { state.foretold = true; if (box) box.hidden = true; }, () => { if (mine === state.foretelling) forget(); });
  return mine;
}

function forget() {
  state.foretelling = null;
  place("fitting").hidden = true;
}

function stop() {
  forget();
  source.stopForetelling().catch(() => null); // it may have ended by itself
  state.choice.question = "made of";
  return explain();
}

// How stable the samples are comes later than they do: the surrogate is solved on halves for it, once.
async function doubt(why) {
  if (why.question !== "made of" || why.speech !== "class" || why.test === null || why.C !== state.info.C) return;
  const found = await source.doubt(why, state.choice.k).catch(() => null); // a hint, without which all else holds
  if (why !== state.why || !found) return;
  state.doubt = found;
  sumUp();
  for (const item of place("explanation").querySelectorAll(".card")) {
    const line = item.querySelector(".doubt"), index = +item.dataset.pair;
    line.textContent = doubtWords(found, index, true);
    line.title = doubtWords(found, index);
  }
  drawDoubt();
}

function sumUp() {
  replace(place("sentence"), sentence(state.why, state.usual?.reason, state.doubt?.reason));
}

function drawDoubt() {
  const line = place("pair").querySelector(".doubt"), words = doubtWords(state.doubt, state.shown?.index);
  if (line) { line.textContent = words; line.hidden = !words; }
}

// Which question the training samples answer.
function questions(why) {
  if (!source.answersBoth || why.speech !== "class") return null;
  const one = (question, id, words) => h("label", {}, h("input", { type: "radio", name: "question", id, checked: why.question === question,
    onchange: () => { state.choice.question = question; explain(); } }), h("span", {}, words));
  return h("fieldset", { class: "switch" }, h("legend", {}, "Training samples by"),
    one("made of", "made-of", "what the logit is made of"), one("would change", "would-change", "what would change without them"));
}

function controls(why) {
  if (!source.live) return null;
  const change = (changes) => { Object.assign(state.choice, changes); explain(); };
  const target = h("select", { id: "target", onchange: (event) => change({ target: +event.target.value }) },
    names().map((name, c) => h("option", { value: c, title: name.whole, selected: c === why.target }, `${name}${c === why.predicted && why.speech === "class" ? " (predicted)" : ""}`)));
  const k = h("input", { id: "k", type: "number", min: 1, max: 20, value: state.choice.k,
    onchange: (event) => change({ k: Math.max(1, Math.min(20, Math.round(+event.target.value) || 5)) }) });
  const Cs = state.info.Cs;
  const C = h("input", { id: "C", type: "range", min: 0, max: Cs.length - 1, step: 1, value: Cs.indexOf(why.C),
    "aria-valuetext": `C = ${short(why.C)}`, onchange: (event) => change({ C: Cs[+event.target.value] }) });
  return h("div", { class: "controls" }, h("label", {}, "explain ", target), h("label", {}, "pairs per side ", k),
    why.question === "made of" ? h("label", {}, "dense ", C, " sparse ", h("span", { class: "quiet" }, `C = ${short(why.C)}`)) : null);
}

function draw() {
  const { why, whatIf } = state, panel = place("explanation"), focus = document.activeElement?.id;
  const title = why.test === null ? "Your own sample" : `Test sample ${why.test}`, note = source.note(why.test);
  // Only another pair is drawn anew: a button that a click has begun on must still be there when it ends.
  const peek = (pair) => { if (pair !== state.shown) show(pair); };
  const actions = { choose: pin, peek };
  const column = (pairs, word, sign, at) => h("section", { class: "side" },
    h("h3", { class: `${word}-ink` }, `${sign} ${why.words.side[at]} `, names()[why.target]),
    pairs.length ? h("ol", { class: "cards" }, pairs.map((pair) => card(pair, why, names(), whatIf?.of(pair.index), actions)))
      : h("p", { class: "quiet" }, "none"));
  const back = (event) => { if (!event.currentTarget.contains(event.relatedTarget)) peek(pinned()); };
  replace(panel,
    h("div", { class: "titled" }, h("h2", {}, title), controls(why)),
    note ? h("p", { class: "note" }, h("b", {}, `${note.heading}. `), note.text) : null,
    h("p", { id: "sentence" }, sentence(why)),
    h("div", { class: "top" },
      h("figure", {}, sampleView(why.sample, `${title}, ${why.words.predicted} ${new Name(why.verdict.predicted)}`, why.logit_map, why.full.logit, "open"),
        h("figcaption", {}, ...glossed("relevance for "), names()[why.target]), scaleKey(why.full.logit)),
      h("div", {}, verdict(why, names()), balance(why))),
    questions(why),
    h("div", { class: "work" },
      h("div", { class: "sides", onmouseleave: back, onfocusout: back },
        column(why.pairs.filter((pair) => pair.score > 0), "for", "▲", 0),
        column(why.pairs.filter((pair) => pair.score <= 0), "against", "▼", 1)),
      h("aside", {}, h("section", { id: "pair", "aria-label": "Pair" }), whatIf && why.test !== null ? whatIf.basket : null)),
    h("section", { id: "strip" }), charts(why));
  place("sign-for").textContent = why.words.sign[0];
  place("sign-against").textContent = why.words.sign[1];
  whatIf?.draw(why);
  show(pinned());
  if (!source.live && pinned()) concepts(pinned());
  if (focus) place(focus)?.focus({ preventScroll: true });
}

function pinned() {
  return state.why.pairs.find((pair) => pair.index === state.pair) ?? state.why.pairs[0];
}

function pin(pair) {
  state.pair = pair.index;
  writeAddress(state.info, state);
  show(pair);
  const box = place("pair").getBoundingClientRect();
  if (box.bottom < 120 || box.top > innerHeight - 120) place("pair").scrollIntoView({ block: "nearest" });
}

function show(pair) {
  const { why, whatIf } = state, box = place("pair"), focus = box.contains(document.activeElement) ? document.activeElement.id : "";
  state.shown = pair;
  if (!pair) return replace(box, h("p", { class: "quiet" }, why.words.nothing.join(" ")));
  const at = why.pairs.indexOf(pair), kept = pinned() === pair;
  const step = (by, id, sign, words) => h("button", { type: "button", id, "aria-label": words, disabled: !why.pairs[at + by], onclick: () => pin(why.pairs[at + by]) }, sign);
  for (const item of place("explanation").querySelectorAll(".card")) {
    const here = +item.dataset.pair === pair.index;
    item.classList.toggle("chosen", here);
    item.firstElementChild.setAttribute("aria-pressed", here && kept ? "true" : "false");
  }
  if (whatIf && why.test !== null) whatIf.drawTools(pair);
  replace(box, h("div", { class: "titled" }, h("h3", {}, `Pair ${at + 1} of ${why.pairs.length}`), h("span", {}, step(-1, "previous", "←", "Previous pair"), " ", step(1, "next", "→", "Next pair"))),
    pairView(pair, why, names()),
    source.hasConcepts(why, pair) && source.live ? h("p", {}, h("button", { type: "button", id: "concepts", onclick: () => concepts(pair, true) }, "concepts of this pair")) : null,
    whatIf && why.test !== null ? whatIf.tools : null);
  drawDoubt();
  if (focus) place(focus)?.focus({ preventScroll: true });
}

async function concepts(pair, scroll = false) {
  const box = place("strip"), why = state.why;
  if (!source.hasConcepts(why, pair)) return;
  if (scroll) replace(box, h("p", { class: "busy", role: "status" }, "Looking for the concepts that both samples share …"));
  try {
    replace(box, conceptStrip(await source.concepts(why, pair)));
  } catch (error) { fail(box, error); }
  if (scroll) box.scrollIntoView({ block: "nearest" });
}

function tab(name) {
  for (const button of document.querySelectorAll("nav button")) {
    const chosen = button.dataset.tab === name;
    button.setAttribute("aria-selected", chosen ? "true" : "false");
    button.tabIndex = chosen ? 0 : -1;
    place(button.dataset.tab).hidden = !chosen;
  }
  state.tab = name;
  if (name === "audit" && !place("audit").childElementCount) auditView(place("audit"), source, state.info);
  if (name === "classes" && !place("classes").childElementCount) classView(place("classes"), source);
}

function keys(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input:not([type=checkbox]), select, textarea, nav")) return;
  if (place("explore").hidden || !state.why) return;
  const { pairs } = state.why, at = pairs.indexOf(pinned());
  const moves = {
    j: () => state.list.step(1), k: () => state.list.step(-1),
    ArrowRight: () => pairs[at + 1] && pin(pairs[at + 1]), ArrowLeft: () => pairs[at - 1] && pin(pairs[at - 1]),
    "/": () => place("search").focus(),
  };
  if (moves[event.key]) { event.preventDefault(); moves[event.key](); }
}

function pasted(event) {
  const file = [...(event.clipboardData?.files ?? [])].find((each) => each.type.startsWith("image/"));
  if (file && state.info.kind === "image") return chooseOwn(file, file.type);
  const text = event.clipboardData?.getData("text/plain").trim();
  if (!text || state.info.kind !== "text" || event.target.closest?.("input, textarea")) return;
  place("text").value = text;
  chooseOwn(text, "text/plain; charset=utf-8");
}

function listen() {
  const tabs = [...document.querySelectorAll("nav button")];
  const turn = (name) => { tab(name); writeAddress(state.info, state); };
  for (const button of tabs) button.addEventListener("click", () => turn(button.dataset.tab));
  document.querySelector("nav").addEventListener("keydown", (event) => {
    const next = tabs[tabs.indexOf(document.activeElement) + ({ ArrowRight: 1, ArrowLeft: -1 }[event.key] ?? NaN)];
    if (next) { next.focus(); turn(next.dataset.tab); }
  });
  place("overlay")?.addEventListener("change", (event) => document.documentElement.classList.toggle("overlay", event.target.checked));
  document.addEventListener("keydown", keys);
  addEventListener("hashchange", follow);
  if (!source.live) return;
  place("stop").addEventListener("click", stop);
  const upload = place("upload");
  upload.addEventListener("change", () => { if (upload.files[0]) chooseOwn(upload.files[0], upload.files[0].type); upload.value = ""; });
  place("own-text").addEventListener("submit", (event) => { event.preventDefault(); chooseOwn(place("text").value, "text/plain; charset=utf-8"); });
  document.addEventListener("paste", pasted);
}

// Show what the address names: when the page is opened, and when the address changes.
function follow() {
  const { tab: name, test, pair, choice } = readAddress(state.info), first = state.list.rows[0]?.index ?? null;
  Object.assign(state, { test: test !== null && source.has(test) ? test : first, own: null, pair, choice });
  if (!source.answersBoth) choice.question = "made of";
  tab(name);
  state.list.show(state.test);
  if (state.test !== null) return explain();
  replace(place("explanation"), h("p", {}, "There are no test samples."));
}

async function begin() {
  const info = state.info = await source.info();
  state.names = info.classes.map((name) => new Name(name));
  state.solved.add(info.C);
  state.list = new TestList(source, state.names, choose);
  if (source.live && info.speech === "class") state.whatIf = new WhatIf(source, state.names, (index, mark) => {
    for (const item of document.querySelectorAll(`.card[data-pair="${index}"]`)) drawMark(item, mark, state.names);
  });
  place("explanation").classList.add(info.kind);
  place("filters").open = matchMedia("(min-width: 56rem)").matches;
  if (source.live && info.kind !== "values") place(`own-${info.kind}`).hidden = false;
  listen();
  const { test } = readAddress(info), { limit } = state.list.query;
  await state.list.ask({ offset: source.live && test < info.n_tests ? test - (test % limit) : 0 });
  await follow();
}

document.documentElement.classList.add("scripted");
begin().catch((error) => fail(place("explanation"), error));
