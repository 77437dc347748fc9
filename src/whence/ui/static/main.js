// The page's state, and how keys and clicks change it.

import { Name, announce, count, fail, glossed, h, percent, place, replace, roving, short } from "./dom.js";
import { readAsked } from "./asked.js";
import { plain, readAddress, tabOf, writeAddress } from "./address.js";
import { sampleView, scaleKey } from "./maps.js";
import { source } from "./source.js";
import { balance, charts } from "./charts.js";
import { card, claim, conceptStrip, stabilityWords, drawMark, pairView, summary, treeView, typicalityView, verdict } from "./panels.js";
import { AuditView } from "./audit.js";
import { ClassesView } from "./classes.js";
import { GalleryView } from "./gallery.js";
import { StartView } from "./start.js";
import { TestList } from "./list.js";
import { WhatIf } from "./whatif.js";
import { ChangesView } from "./changes.js";
import { Changes } from "./changelist.js";
import { MapView } from "./landscape.js";
import { DuplicatesView } from "./duplicates.js";
import { listenToKeys } from "./keys.js";

const state = { ...plain(), info: null, names: [], list: null, whatIf: null, views: {}, own: null, why: null, wanted: "", shown: null, asked: 0,
  solved: new Set(), fitting: null, fitted: !source.live, stability: null, typicality: null };
const names = () => state.names;
const PROMPT = 2000; // characters from the end of a text that a link contains

function choose(test) {
  Object.assign(state, { test, own: null, pair: null });
  forgetClasses();
  state.list.show(test);
  return explain();
}

function chooseOwn(body, type) {
  Object.assign(state, { own: { body, type, number: state.asked }, test: null, pair: null });
  forgetClasses();
  return go({ tab: "explore" });
}

// Chosen classes hold for one test; the runner-up holds for all.
function forgetClasses() {
  state.choice.target = null;
  if (state.choice.against !== "runner-up") state.choice.against = null;
}

// ``over`` replaces the address instead of adding a step to the history.
async function explain(over = false) {
  const panel = place("explanation"), mine = ++state.asked, { C, question } = state.choice;
  panel.setAttribute("aria-busy", "true");
  state.wanted = wanted();
  writeAddress(state.info, state, over);
  try {
    if (question === "would change" && state.info.questions.length > 1) {
      await Promise.race([fitEffects(), new Promise((go) => { setTimeout(go, 300); })]);
      if (mine !== state.asked) return;
      if (!state.fitted) await meanwhile(mine);
      await fitEffects();
    } else if (question === "made of" && C !== null && !state.solved.has(C)) {
      announce(`Solving at C = ${short(C)} …`);
      await source.solveAt(C, ({ seconds }) => announce(`Solving at C = ${short(C)} … ${seconds.toFixed(1)} s`));
      state.solved.add(C);
    }
    if (mine !== state.asked) return; // a later choice came in between
    const why = await answer(state.choice);
    if (mine !== state.asked) return;
    drawn(why);
    announce(`${why.test === null ? "Your sample" : `Test sample ${why.test}`}: ${new Name(why.verdict.predicted)}${why.label_kind !== "class" ? "" : `, ${percent(why.probability)}`}`);
  } catch (error) {
    if (mine !== state.asked) return;
    [state.choice.question] = state.info.questions;
    state.choice.against = null;
    fail(panel, error);
    announce("");
  } finally {
    if (mine === state.asked) panel.removeAttribute("aria-busy");
  }
}

// The key of the explanation that is wanted.
const wanted = () => state.own ? `own ${state.own.number}` : JSON.stringify([state.test, state.choice]);

const answer = (choice) => state.own ? source.own(state.own.body, state.own.type, choice) : source.explain(state.test, choice);

function drawn(why) {
  Object.assign(state, { why, stability: null, typicality: null });
  draw();
  stability(why);
  typicality(why);
}

// Typicality arrives later: it needs the features of the training set, which are computed once.
async function typicality(why) {
  if (!state.info.compares) return;
  const found = await source.typicality(why, state.own).catch(() => null); // optional
  if (why !== state.why || !found) return;
  state.typicality = found;
  replace(place("typicality"), typicalityView(found));
  sumUp();
}

// While effects are fitted, the page shows what the logit is made of.
const meantime = () => state.why?.question === "made of" && state.why.test === state.test && !state.own;

async function meanwhile(mine) {
  if (meantime()) { place("explanation").removeAttribute("aria-busy"); return; }
  const why = await answer({ ...state.choice, question: "made of" });
  if (mine !== state.asked) return;
  drawn(why);
  place("explanation").removeAttribute("aria-busy");
}

// Effects are fitted once, in the background; all requests follow the same fit.
function fitEffects() {
  if (state.fitting) return state.fitting;
  const box = place("fitting"), bar = place("fitting-bar"), words = place("fitting-words");
  const mine = state.fitting = source.fitEffects(({ seconds, what, done, total }) => {
    if (mine !== state.fitting) return; // it was stopped
    box.hidden = false;
    words.textContent = [what, total ? `${count(done)} of ${count(total)}` : "", `${seconds.toFixed(0)} s`].filter(Boolean).join(" · ");
    if (total) Object.assign(bar, { max: total, value: done }); else bar.removeAttribute("value");
  });
  mine.then(() => { state.fitted = true; if (box) box.hidden = true; }, () => { if (mine === state.fitting) forget(); });
  return mine;
}

function forget() {
  state.fitting = null;
  place("fitting").hidden = true;
}

function stop() {
  forget();
  source.stopEffects().catch(() => null); // it may have ended by itself
  state.choice.question = "made of";
  if (!meantime()) return explain();
  state.asked += 1; // nobody waits for effects any more
  state.wanted = wanted();
  return writeAddress(state.info, state);
}

// Stability arrives later: it needs the surrogate solved on halves of the training set, once.
async function stability(why) {
  if (why.question !== "made of" || why.label_kind !== "class" || why.against !== null || why.n_members || why.test === null || why.C !== state.info.C) return;
  const found = await source.stability(why, state.choice.k).catch(() => null); // optional
  if (why !== state.why || !found) return;
  state.stability = found;
  sumUp();
  for (const item of place("explanation").querySelectorAll(".card")) {
    const line = item.querySelector(".stability"), index = +item.dataset.pair;
    line.textContent = stabilityWords(found, index, true);
    line.title = stabilityWords(found, index);
  }
  drawStability();
}

function sumUp() {
  replace(place("sentence"), summary(state.why, state.typicality?.check, state.stability?.check));
}

function drawStability() {
  const line = place("pair").querySelector(".stability"), words = stabilityWords(state.stability, state.shown?.index);
  if (line) { line.textContent = words; line.hidden = !words; }
}

// The switch between the two questions.
function questions(why) {
  if (!source.answersBoth || state.info.questions.length < 2) return null;
  const one = (question, id, words) => h("label", {}, h("input", { type: "radio", name: "question", id, checked: why.question === question,
    onchange: () => { state.choice.question = question; explain(); } }), h("span", {}, words));
  return h("fieldset", { class: "switch" }, h("legend", {}, "Training samples by"),
    one("made of", "made-of", why.label_kind === "number" ? "what the prediction is made of" : "what the logit is made of"), one("would change", "would-change", "what would change without them"));
}

function controls(why) {
  if (!source.live) return null;
  const change = (changes) => { Object.assign(state.choice, changes); explain(); };
  const target = h("select", { id: "target", onchange: (event) => change({ target: +event.target.value, against: +event.target.value === state.choice.against ? null : state.choice.against }) },
    names().map((name, c) => h("option", { value: c, title: name.whole, selected: c === why.target }, `${name}${c === why.predicted && why.label_kind === "class" ? " (predicted)" : ""}`)));
  const against = () => h("select", { id: "against", onchange: ({ target: { value } }) => change({ against: value === "" || value === "runner-up" ? value || null : +value }) },
    [["", "–"], ["runner-up", state.choice.against === "runner-up" ? `runner-up: ${names()[why.against]}` : "runner-up"]].map(([value, words]) => h("option", { value, selected: value === (state.choice.against ?? "") }, words)),
    names().map((name, c) => c === why.target ? null : h("option", { value: c, title: name.whole, selected: c === state.choice.against }, `${name}`)));
  const k = h("input", { id: "k", type: "number", min: 1, max: 20, value: state.choice.k,
    onchange: (event) => change({ k: Math.max(1, Math.min(20, Math.round(+event.target.value) || 5)) }) });
  const Cs = why.question === "made of" ? state.info.Cs : [];
  const C = () => h("label", {}, "dense ", h("input", { id: "C", type: "range", min: 0, max: Cs.length - 1, step: 1, value: Cs.indexOf(why.C),
    "aria-valuetext": `C = ${short(why.C)}`, onchange: (event) => change({ C: Cs[+event.target.value] }) }), " sparse ", h("span", { class: "quiet" }, `C = ${short(why.C)}`));
  return h("div", { class: "controls" }, h("label", {}, "explain ", target), state.info.contrasts && why.question === "made of" ? h("label", {}, "against ", against()) : null, h("label", {}, "pairs per side ", k), Cs.length ? C() : null);
}

// Buttons to the previous and the next test of the list.
function steps() {
  const one = (by, id, sign, words) => h("button", { type: "button", id, "aria-label": words, title: words, onclick: () => state.list.step(by) }, sign);
  return h("span", {}, one(-1, "previous-test", "←", "Previous test"), " ", one(1, "next-test", "→", "Next test"));
}

function draw() {
  const { why, whatIf } = state, panel = place("explanation"), focus = document.activeElement?.id;
  const title = why.test === null ? "Your own sample" : `Test sample ${why.test}`, note = source.note(why.test);
  // Redraw only for another pair: a button must exist from the begin of a click to its end.
  const peek = (pair) => { if (pair !== state.shown) show(pair); };
  const actions = { choose: pin, peek };
  const column = (pairs, word, sign, at) => h("section", { class: "side" },
    h("h3", { class: `${word}-ink` }, `${sign} ${why.words.side[at]} `, ...claim(why, names(), at)),
    pairs.length ? h("ol", { class: "cards" }, pairs.map((pair) => card(pair, why, names(), whatIf?.of(pair.index), actions)))
      : h("p", { class: "quiet" }, "none"));
  const back = (event) => { if (!event.currentTarget.contains(event.relatedTarget)) peek(pinned()); };
  replace(panel,
    h("div", { class: "titled" }, h("div", { class: "steps" }, h("h2", {}, title), why.test === null ? null : steps()), controls(why)),
    state.info.writes && source.live && why.sample.kind === "text" ? h("p", {}, h("a", { id: "go-on", href: `write?${new URLSearchParams({ prompt: why.sample.tokens.join("").trim().slice(-PROMPT) })}` }, "Continue this text with the model")) : null,
    note ? h("p", { class: "note" }, h("b", {}, `${note.heading}. `), note.text) : null,
    h("div", { id: "sentence" }, summary(why)),
    h("div", { class: "top" },
      h("figure", {}, sampleView(why.sample, `${title}, ${why.words.predicted} ${new Name(why.verdict.predicted)}`, why.logit_map, why.full.logit, "open"),
        h("figcaption", {}, ...glossed("relevance for "), ...claim(why, names(), 0)), scaleKey(why.full.logit)),
      h("div", {}, verdict(why, names()), balance(why))),
    questions(why),
    state.info.note ? h("p", { class: "quiet reach" }, state.info.note) : null,
    h("div", { class: "work" }, h("div", {},
      h("div", { class: "sides", onmouseleave: back, onfocusout: back },
        column(why.pairs.filter((pair) => pair.score > 0), "for", "▲", 0),
        column(why.pairs.filter((pair) => pair.score <= 0), "against", "▼", 1)), h("section", { id: "strip" }), treeView(why), charts(why)),
      h("aside", {}, h("section", { id: "pair", "aria-label": "Pair" }), whatIf && why.test !== null ? whatIf.basket : null)));
  roving(panel.querySelector(".sides"), ".card button")();
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
    source.hasConcepts(why, pair) && source.live ? h("p", {}, h("button", { type: "button", id: "pair-concepts", onclick: () => concepts(pair, true) }, "concepts of this pair")) : null,
    whatIf && why.test !== null ? whatIf.tools : null);
  drawStability();
  if (focus) place(focus)?.focus({ preventScroll: true });
}

async function concepts(pair, scroll = false) {
  const box = place("strip"), why = state.why;
  if (!source.hasConcepts(why, pair)) return;
  if (scroll) replace(box, h("p", { class: "busy", role: "status" }, "Computing the concepts that both samples share …"));
  try {
    replace(box, conceptStrip(await source.concepts(why, pair)));
  } catch (error) { fail(box, error); }
  if (scroll) box.scrollIntoView({ block: "nearest" });
}

// Show a view.
function openView(name) {
  state.tab = place(name) ? name : "explore";
  for (const button of document.querySelectorAll("nav button")) {
    const chosen = button.dataset.tab === state.tab;
    button.setAttribute("aria-selected", chosen ? "true" : "false");
    button.tabIndex = chosen ? 0 : -1;
    place(button.dataset.tab).hidden = !chosen;
  }
  document.documentElement.dataset.view = state.tab;
  const nav = document.querySelector("nav"), here = place(`tab-${state.tab}`);
  nav.scrollLeft = Math.max(0, here.offsetLeft - nav.offsetLeft - 40);
}

// Show a view with the current state.
function turn(name, over = false) {
  openView(name);
  const { one, other, from, by, test, views } = state;
  if (state.tab === "classes") views.classes?.show(one, other, from); else if (state.tab === "map") views.map?.show(by, test); else views[state.tab]?.show(from);
  if (state.tab === "explore") ensure(over);
}

// Explain the chosen test, or the first of the list, unless it is shown already.
function ensure(over) {
  if (state.test === null && !state.own) { state.test = state.list.rows[0]?.index ?? null; over = true; }
  state.list.show(state.test);
  if (state.test === null && !state.own) return replace(place("explanation"), h("p", {}, "No test sample matches."));
  if (state.wanted !== wanted()) return explain(over);
  if (state.why) show(pinned());
  return writeAddress(state.info, state, over);
}

function go(changes) {
  Object.assign(state, changes);
  writeAddress(state.info, state);
  turn(state.tab);
}

// The keys' actions in a view.
function acts(view) {
  if (view !== "explore") return view === "audit" ? state.views.audit?.keys() ?? {} : {};
  if (!state.why) return {};
  const { pairs } = state.why, at = pairs.indexOf(pinned()), press = (id) => () => place(id)?.click();
  return {
    j: () => state.list.step(1), k: () => state.list.step(-1), ArrowRight: () => state.list.step(1), ArrowLeft: () => state.list.step(-1),
    n: () => pairs[at + 1] && pin(pairs[at + 1]), p: () => pairs[at - 1] && pin(pairs[at - 1]),
    "/": () => { place("filters").open = true; place("search").focus(); },
    ...state.whatIf ? { x: press("remove"), r: () => place("relabel")?.focus(), s: press("solve") } : {},
  };
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
  for (const button of tabs) button.addEventListener("click", () => go({ tab: button.dataset.tab, from: 0 }));
  document.querySelector("nav").addEventListener("keydown", (event) => {
    const next = tabs[tabs.indexOf(document.activeElement) + ({ ArrowRight: 1, ArrowLeft: -1 }[event.key] ?? NaN)];
    if (next) { next.focus(); go({ tab: next.dataset.tab, from: 0 }); }
  });
  place("overlay")?.addEventListener("change", (event) => document.documentElement.classList.toggle("overlay", event.target.checked));
  listenToKeys(() => state.tab, acts);
  addEventListener("hashchange", () => follow());
  if (!source.live) return;
  place("stop").addEventListener("click", stop);
  const upload = place("upload");
  upload.addEventListener("change", () => { if (upload.files[0]) chooseOwn(upload.files[0], upload.files[0].type); upload.value = ""; });
  place("own-text").addEventListener("submit", (event) => { event.preventDefault(); chooseOwn(place("text").value, "text/plain; charset=utf-8"); });
  document.addEventListener("paste", pasted);
}

// Show the state of the address, when the page opens and when the address changes.
async function follow() {
  const { hash } = location, found = readAddress(state.info, hash), { query } = found;
  if (found.test !== null && !source.has(found.test)) found.test = null;
  if (!source.answersBoth || state.info.questions.length < 2) [found.choice.question] = state.info.questions;
  if (!source.live) found.choice.against = null;
  Object.assign(state, { ...found, own: null, query: null });
  const listed = state.list.follow(query);
  if (found.tab === "explore" || !place(found.tab)) await listed;
  if (hash !== location.hash) return; // another address came in between
  const asked = state.whatIf ? readAsked(state.names.length - 1, hash) : null, other = asked !== null && state.whatIf.take(asked);
  turn(found.tab, true);
  if (state.whatIf?.size) writeAddress(state.info, state, true); // an address without a question keeps the present one
  if (other && state.tab === "whatif") state.views.whatif.solve(false);
}

// Show what the marks of the audit would change.
function askMarks(marks) {
  state.whatIf.markAll(marks);
  go({ tab: "whatif", from: 0 });
}

function makeViews(info) {
  const { names: classNames, views, whatIf } = state, page = (from) => go({ from });
  if (source.live) views.start = new StartView(place("start"), source, info);
  if (info.label_kind !== "class") return;
  for (const [name, words] of Object.entries(info.withheld)) if (place(name)) replace(place(name), h("h2", {}, place(`tab-${name}`).textContent), h("p", { class: "withheld" }, words));
  if (Object.keys(info.withheld).length) return;
  views.audit = new AuditView(place("audit"), source, info, classNames, page, whatIf ? askMarks : null);
  views.classes = new ClassesView(place("classes"), source, info, classNames, go);
  if (!source.live) return;
  const changes = new Changes();
  views.map = new MapView(place("map"), source, info, classNames, changes, go, () => state.why);
  views.duplicates = new DuplicatesView(place("duplicates"), source, info, classNames, changes, go);
  views.concepts = new GalleryView(place("concepts"), source, info, classNames, page);
  views.whatif = new ChangesView(place("whatif"), source, info, classNames, whatIf, (report) => source.fitEffects(report).then(() => { state.fitted = true; }));
}

async function begin() {
  const info = state.info = await source.info();
  state.names = info.classes.map((name) => new Name(name));
  state.solved.add(info.C);
  state.list = new TestList(source, state.names, choose, () => writeAddress(state.info, state));
  if (source.live && info.label_kind === "class" && !info.withheld.whatif) state.whatIf = new WhatIf(source, state.names, (index, mark) => {
    for (const item of document.querySelectorAll(`.card[data-pair="${index}"]`)) drawMark(item, mark, state.names);
  }, () => writeAddress(state.info, state));
  place("explanation").classList.add(info.kind);
  if (source.live && info.kind !== "values") place(`own-${info.kind}`).hidden = false;
  makeViews(info);
  listen();
  await follow();
}

document.documentElement.classList.add("scripted");
openView(tabOf());
begin().catch((error) => fail(document.querySelector("main"), error));
