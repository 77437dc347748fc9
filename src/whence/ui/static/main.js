// The page's state, and how keys and clicks change it.

import { Name, announce, count, fail, h, percent, place, replace, short } from "./dom.js";
import { plain, readAddress, tabOf, writeAddress } from "./address.js";
import { source } from "./source.js";
import { Changes } from "./changelist.js";
import { AuditView } from "./audit.js";
import { ClassesView } from "./classes.js";
import { GalleryView } from "./gallery.js";
import { StartView } from "./start.js";
import { TestList } from "./list.js";
import { Tray } from "./marking.js";
import { PredictionView } from "./prediction.js";
import { SlicesView } from "./slices.js";
import { ChangesView } from "./changes.js";
import { SideView } from "./side.js";
import { MapView } from "./landscape.js";
import { DuplicatesView } from "./duplicates.js";
import { listenToKeys } from "./keys.js";
import { Uploads } from "./upload.js";

const state = { ...plain(), info: null, names: [], list: null, changes: null, tray: null, prediction: null, views: {}, own: null, why: null, wanted: "", asked: 0,
  solved: new Set(), fitting: null, fitted: !source.live };

function choose(test) {
  Object.assign(state, { test, own: null, pair: null });
  forgetClasses();
  state.list.show(test);
  return explain();
}

// Explain the visitor's own sample; the page changes when that has worked.
async function chooseOwn(body, type) {
  const { C, question } = state.choice, known = state.solved.has(C) ? C : null;
  const choice = { ...freed(), C: known, question: question === "would change" && !state.fitted ? state.info.questions[0] : question };
  const before = state.asked, why = await source.own(body, type, choice);
  if (before !== state.asked) return; // a later choice came in between
  Object.assign(state, { own: { body, type, number: state.asked, why, key: JSON.stringify(choice) }, test: null, pair: null });
  forgetClasses();
  go({ tab: "explore" });
}

// Chosen classes hold for one test; the runner-up holds for all.
const freed = () => ({ ...state.choice, target: null, against: state.choice.against === "runner-up" ? "runner-up" : null });

function forgetClasses() {
  Object.assign(state.choice, freed());
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
      announce(`Solving at C = ${short(C)} …`, true);
      await source.solveAt(C, ({ seconds }) => announce(`Solving at C = ${short(C)} … ${seconds.toFixed(1)} s`, true));
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

const answer = (choice) => !state.own ? source.explain(state.test, choice)
  : state.own.key === JSON.stringify(choice) ? state.own.why : source.own(state.own.body, state.own.type, choice);

function drawn(why) {
  state.why = why;
  state.prediction.draw(why, state);
  place("sign-for").textContent = why.words.sign[0];
  place("sign-against").textContent = why.words.sign[1];
  state.tray?.follow(state.tab, why);
  stability(why);
  typicality(why);
}

// Typicality arrives later: it needs the features of the training set, which are computed once.
async function typicality(why) {
  if (!state.info.compares) return;
  const found = await source.typicality(why, state.own).catch(() => null); // optional
  if (why === state.why && found) state.prediction.drawTypicality(found);
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
  if (why === state.why && found) state.prediction.drawStability(found);
}

function change(choice) {
  Object.assign(state.choice, choice);
  return explain();
}

function showMaps(how) {
  state.maps = how;
  document.documentElement.classList.toggle("overlay", how === "over");
  writeAddress(state.info, state);
  if (state.why) redraw();
}

// Draw the same explanation in another way; what arrived later is kept.
function redraw() {
  const { prediction, why } = state, { stability: stable, typicality: typical } = prediction;
  prediction.draw(why, state);
  if (typical) prediction.drawTypicality(typical);
  if (stable) prediction.drawStability(stable);
}

function pin(pair) {
  state.pair = pair?.index ?? null;
  writeAddress(state.info, state);
  state.prediction.show(pair);
  if (pair) state.prediction.scrollToPair();
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
  const { one, other, from, by, test, slice, views } = state;
  const shown = { classes: [one, other, from], compare: [from, test], map: [by, test], whatif: [slice] };
  views[state.tab]?.show(...(shown[state.tab] ?? [from]));
  if (state.tab === "map") views.slices?.show();
  state.tray?.follow(state.tab, state.why);
  if (state.tab === "explore") ensure(over);
}

// Explain the chosen test, or the first of the list, unless it is shown already.
function ensure(over) {
  if (state.test === null && !state.own) { state.test = state.list.rows[0]?.index ?? null; over = true; }
  state.list.show(state.test);
  if (state.test === null && !state.own) return replace(place("explanation"), h("p", {}, "No test sample matches."));
  if (state.wanted !== wanted()) return explain(over);
  if (state.why) state.prediction.show(state.why.pairs.find(({ index }) => index === state.pair) ?? null);
  return writeAddress(state.info, state, over);
}

function go(changes) {
  Object.assign(state, changes);
  writeAddress(state.info, state);
  turn(state.tab);
}

// The keys' actions in a view.
function acts(view) {
  if (view !== "explore") return ["audit", "compare"].includes(view) ? state.views[view]?.keys() ?? {} : {};
  if (!state.why) return {};
  const { pairs } = state.why, at = pairs.indexOf(state.prediction.chosen), press = (id) => () => place(id)?.click();
  const marking = { y: press("keep"), x: press("remove"), r: () => place("relabel")?.focus(), u: press("undo"), s: press("solve") };
  return {
    j: () => state.list.step(1), k: () => state.list.step(-1), ArrowRight: () => state.list.step(1), ArrowLeft: () => state.list.step(-1),
    n: () => pairs[at + 1] && pin(pairs[at + 1]), p: () => pairs[at - 1] && pin(pairs[at - 1]),
    m: () => showMaps(state.maps === "none" ? "split" : "none"),
    "/": () => { place("filters").open = true; place("search").focus(); },
    ...state.tray ? marking : {},
  };
}

function listen() {
  const tabs = [...document.querySelectorAll("nav button")];
  for (const button of tabs) button.addEventListener("click", () => go({ tab: button.dataset.tab, from: 0 }));
  document.querySelector("nav").addEventListener("keydown", (event) => {
    const next = tabs[tabs.indexOf(document.activeElement) + ({ ArrowRight: 1, ArrowLeft: -1 }[event.key] ?? NaN)];
    if (next) { next.focus(); go({ tab: next.dataset.tab, from: 0 }); }
  });
  listenToKeys(() => state.tab, acts);
  addEventListener("hashchange", () => follow());
  if (!source.live) return;
  place("stop").addEventListener("click", stop);
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
  state.maps ??= state.info.kind === "image" ? "none" : "split";
  document.documentElement.classList.toggle("overlay", state.maps === "over");
  turn(found.tab, true);
}

function makeViews(info) {
  const { names: classNames, views, changes } = state, page = (from) => go({ from });
  if (source.live) views.start = new StartView(place("start"), source, info);
  if (info.compare) views.compare = new SideView(place("compare"), source, info, classNames, go);
  if (info.label_kind !== "class") return;
  for (const [name, words] of Object.entries(info.withheld)) if (place(name)) replace(place(name), h("h2", {}, place(`tab-${name}`).textContent), h("p", { class: "withheld" }, words));
  if (Object.keys(info.withheld).length) return;
  views.audit = new AuditView(place("audit"), source, info, classNames, changes, page);
  views.classes = new ClassesView(place("classes"), source, info, classNames, go);
  if (!source.live) return;
  views.map = new MapView(place("map"), source, info, classNames, changes, go, () => state.why);
  place("map").append(h("section", { id: "slices" }));
  views.slices = new SlicesView(place("slices"), source, info, classNames, changes);
  views.duplicates = new DuplicatesView(place("duplicates"), source, info, classNames, changes, go);
  views.concepts = new GalleryView(place("concepts"), source, info, classNames, page);
  views.whatif = new ChangesView(place("whatif"), source, info, classNames, changes, (report) => source.fitEffects(report).then(() => { state.fitted = true; }));
}

async function begin() {
  const info = state.info = await source.info();
  state.names = info.classes.map((name) => new Name(name));
  state.solved.add(info.C);
  state.list = new TestList(source, state.names, choose, () => writeAddress(state.info, state));
  if (info.label_kind === "class" && !Object.keys(info.withheld).length) {
    state.changes = new Changes(source);
    if (source.live) state.tray = new Tray(place("tray"), source, info, state.names, state.changes);
    await state.changes.load();
  }
  state.prediction = new PredictionView(place("explanation"), source, info, state.names, source.live ? state.changes : null, { change, pin, step: (by) => state.list.step(by), maps: showMaps });
  place("explanation").classList.add(info.kind);
  if (source.live && info.kind !== "values" && !info.scores) new Uploads(info.kind, chooseOwn);
  makeViews(info);
  listen();
  await follow();
}

document.documentElement.classList.add("scripted");
openView(tabOf());
begin().catch((error) => fail(document.querySelector("main"), error));
