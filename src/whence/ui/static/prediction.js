// One prediction: the sample, its class, the evidence by class, and the training samples for and against.

import { Name, fail, glossed, h, place, replace, roving, short } from "./dom.js";
import { sampleView, scaleKey } from "./maps.js";
import { balance, charts, waterfall } from "./charts.js";
import { card, certificate, claim, conceptStrip, drawMark, pairView, stabilityWords, summary, treeView, typicalityView, verdict } from "./panels.js";
import { markTools } from "./marking.js";

const PROMPT = 2000; // characters from the end of a text that a link contains

export class PredictionView {
  // ``actions``: change(choice), pin(pair or null), step(by), maps(how).
  constructor(box, source, info, names, changes, actions) {
    Object.assign(this, { box, source, info, names, changes, actions, why: null, chosen: null, stability: null, typicality: null });
    this.pair = h("section", { id: "pair", "aria-label": "Pair", hidden: true });
    this.strip = h("section", { id: "strip" });
    this.conceptsOf = h("details", { class: "more" }, h("summary", {}, "Concepts of a pair"), this.strip);
    changes?.listen(() => this.drawMarks());
  }

  // Draw an explanation; ``state`` has the chosen pair, class and maps.
  draw(why, state) {
    const { box, info, names, source } = this, focus = document.activeElement?.id, open = new Set([...box.querySelectorAll("details[open][id]")].map(({ id }) => id));
    Object.assign(this, { why, stability: null, typicality: null });
    const title = why.test === null ? "Your own sample" : `Test sample ${why.test}`, note = source.note(why.test), maps = state.maps !== "none";
    const fold = (id, words, ...parts) => h("details", { id, class: "more", open: open.has(id) }, h("summary", {}, words), ...parts);
    replace(box,
      h("div", { class: "titled" }, h("div", { class: "steps" }, h("h2", {}, title), why.test === null ? null : this.steps()), this.controls(state)),
      note ? h("p", { class: "note" }, h("b", {}, `${note.heading}. `), note.text) : null,
      h("div", { class: "top" },
        h("figure", { class: "of-test" }, sampleView(why.sample, `${title}, ${why.words.predicted} ${new Name(why.verdict.predicted)}`, maps ? why.logit_map : null, why.full.logit, "open"),
          maps && why.logit_map ? h("figcaption", {}, ...glossed("relevance for "), ...claim(why, names, 0)) : null, maps && why.logit_map ? scaleKey(why.full.logit) : null),
        h("div", { class: "verdict" }, verdict(why, names), h("div", { id: "sentence" }, summary(why))),
        waterfall(why)),
      info.writes && source.live && why.sample.kind === "text" ? h("p", {}, h("a", { id: "go-on", href: `write?${new URLSearchParams({ prompt: why.sample.tokens.join("").trim().slice(-PROMPT) })}` }, "Continue this text with the model")) : null,
      h("div", { class: "bar-of" }, this.questions(), this.mapsSwitch(state)),
      info.note ? h("p", { class: "quiet reach" }, info.note) : null,
      h("div", { class: maps ? "sides mapped-sides" : "sides" }, this.side(0, "for", "▲", maps), this.side(1, "against", "▼", maps)),
      this.pair, this.conceptsOf,
      fold("details", "Details: certificate, sums, settings", h("div", { class: "two" }, h("div", {}, certificate(why), balance(why)), h("div", {}, this.settings(state), why.n_members || why.facts ? null : h("div", { id: "typicality" }))), why.facts ? null : charts(why)),
      why.tree ? fold("groups", "Groups of similar training samples", treeView(why)) : null);
    roving(box.querySelector(".sides"), ".card button")();
    this.show(why.pairs.find((pair) => pair.index === state.pair) ?? null);
    Object.assign(this.conceptsOf, { hidden: true, open: false });
    if (!source.live && why.pairs[0]) this.concepts(why.pairs[0]);
    if (focus) place(focus)?.focus({ preventScroll: true });
  }

  side(at, word, sign, maps) {
    const { why, names } = this, pairs = why.pairs.filter((pair) => (pair.score > 0) === (at === 0));
    return h("section", { class: "side" }, h("h3", { class: `${word}-ink` }, `${sign} ${why.words.side[at]} `, ...claim(why, names, at)),
      pairs.length ? h("ol", { class: "cards" }, pairs.map((pair) => card(pair, why, names, maps, () => this.actions.pin(pair === this.chosen ? null : pair))))
        : h("p", { class: "quiet" }, "none"));
  }

  // Buttons to the previous and the next test of the list.
  steps() {
    const one = (by, id, sign, words) => h("button", { type: "button", id, "aria-label": words, title: words, onclick: () => this.actions.step(by) }, sign);
    return h("span", {}, one(-1, "previous-test", "←", "Previous test"), " ", one(1, "next-test", "→", "Next test"));
  }

  // The switch between the two questions.
  questions() {
    const { why, info, source, actions } = this;
    if (!source.answersBoth || info.questions.length < 2) return null;
    const one = (question, id, words) => h("label", {}, h("input", { type: "radio", name: "question", id, checked: why.question === question, onchange: () => actions.change({ question }) }), h("span", {}, words));
    return h("fieldset", { class: "switch" }, h("legend", {}, "Training samples by"),
      one("made of", "made-of", why.label_kind === "number" ? "what the prediction is made of" : "what the logit is made of"), one("would change", "would-change", "what would change without them"));
  }

  mapsSwitch(state) {
    if (this.info.scores) return null;
    const image = this.info.kind === "image", options = [["none", "hidden"], ["split", image ? "next to pictures" : "shown"], ...(image ? [["over", "over pictures"]] : [])];
    return h("label", { class: "maps-switch" }, "relevance maps ", h("select", { id: "maps", onchange: (event) => this.actions.maps(event.target.value) },
      options.map(([value, words]) => h("option", { value, selected: value === state.maps }, words))));
  }

  // Which class is explained, and against which.
  controls(state) {
    const { why, info, names, source, actions } = this;
    if (!source.live) return null;
    const target = h("select", { id: "target", onchange: (event) => actions.change({ target: +event.target.value, against: +event.target.value === state.choice.against ? null : state.choice.against }) },
      names.map((name, c) => h("option", { value: c, title: name.whole, selected: c === why.target }, `${name}${c === why.predicted && why.label_kind === "class" ? " (predicted)" : ""}`)));
    const against = () => h("select", { id: "against", onchange: ({ target: { value } }) => actions.change({ against: value === "" || value === "runner-up" ? value || null : +value }) },
      [["", "–"], ["runner-up", state.choice.against === "runner-up" ? `runner-up: ${names[why.against]}` : "runner-up"]].map(([value, words]) => h("option", { value, selected: value === (state.choice.against ?? "") }, words)),
      names.map((name, c) => c === why.target ? null : h("option", { value: c, title: name.whole, selected: c === state.choice.against }, `${name}`)));
    return h("div", { class: "controls" }, info.scores ? null : h("label", {}, "explain ", target), info.contrasts && why.question === "made of" ? h("label", {}, "against ", against()) : null);
  }

  // How many samples, and how sparse the surrogate.
  settings(state) {
    const { why, info, source, actions } = this, Cs = why.question === "made of" ? info.Cs : [];
    if (!source.live) return null;
    const k = h("input", { id: "k", type: "number", min: 1, max: 20, value: state.choice.k, onchange: (event) => actions.change({ k: Math.max(1, Math.min(20, Math.round(+event.target.value) || 5)) }) });
    const C = () => h("label", {}, "dense ", h("input", { id: "C", type: "range", min: 0, max: Cs.length - 1, step: 1, value: Cs.indexOf(why.C),
      "aria-valuetext": `C = ${short(why.C)}`, onchange: (event) => actions.change({ C: Cs[+event.target.value] }) }), " sparse ", h("span", { class: "quiet" }, `C = ${short(why.C)}`));
    return h("div", { class: "controls" }, h("label", {}, "samples per side ", k), Cs.length ? C() : null);
  }

  // Show a pair below the cards, or none.
  show(pair) {
    const { why, changes, pair: box } = this, at = why.pairs.indexOf(pair), focus = box.contains(document.activeElement) ? document.activeElement.id : "";
    this.chosen = pair;
    box.hidden = !pair;
    for (const item of this.box.querySelectorAll(".card")) {
      const here = +item.dataset.pair === pair?.index;
      item.classList.toggle("chosen", here);
      item.firstElementChild.setAttribute("aria-pressed", here ? "true" : "false");
    }
    if (!pair) { replace(box); this.drawMarks(); return; }
    const step = (by, id, sign, words) => h("button", { type: "button", id, "aria-label": words, disabled: !why.pairs[at + by], onclick: () => this.actions.pin(why.pairs[at + by]) }, sign);
    replace(box, h("div", { class: "titled" }, h("h3", {}, `Pair ${at + 1} of ${why.pairs.length}`), h("span", {}, step(-1, "previous", "←", "Previous pair"), " ", step(1, "next", "→", "Next pair"), " ",
      h("button", { type: "button", id: "unpin", "aria-label": "Close the pair", onclick: () => this.actions.pin(null) }, "×"))),
    pairView(pair, why, this.names),
    changes && why.test !== null ? h("p", { class: "tools", id: "marking" }) : null,
    this.source.hasConcepts(why, pair) && this.source.live ? h("p", {}, h("button", { type: "button", id: "pair-concepts", onclick: () => this.concepts(pair, true) }, "concepts of this pair")) : null);
    this.drawMarks();
    this.drawStability();
    if (focus) place(focus)?.focus({ preventScroll: true });
  }

  // Redraw the marks on the cards, and the tools of the chosen pair.
  drawMarks() {
    const { changes, names, chosen } = this, tools = place("marking");
    if (!changes) return;
    for (const item of this.box.querySelectorAll(".card")) drawMark(item, changes.of(+item.dataset.pair), names);
    if (tools && chosen) markTools(tools, changes, names, { index: chosen.index, label: chosen.label });
  }

  scrollToPair() {
    const box = this.pair.getBoundingClientRect();
    if (box.bottom > innerHeight || box.top < 0) this.pair.scrollIntoView({ block: "nearest" });
  }

  // Stability and typicality arrive later than the explanation.
  drawStability(found = this.stability) {
    if (!found) return;
    this.stability = found;
    for (const item of this.box.querySelectorAll(".card")) {
      const line = item.querySelector(".stability"), index = +item.dataset.pair;
      if (line) Object.assign(line, { textContent: stabilityWords(found, index, true), title: stabilityWords(found, index) });
    }
    const line = this.pair.querySelector(".stability"), words = stabilityWords(found, this.chosen?.index);
    if (line) { line.textContent = words; line.hidden = !words; }
    this.drawSummary();
  }

  drawTypicality(found) {
    this.typicality = found;
    if (place("typicality")) replace(place("typicality"), typicalityView(found));
    this.drawSummary();
  }

  drawSummary() {
    replace(place("sentence"), summary(this.why, this.typicality?.check, this.stability?.check));
  }

  // Show the concepts that both samples of a pair share; a report has those of the strongest pair, folded.
  async concepts(pair, open = false) {
    const { why, strip, conceptsOf } = this;
    if (!this.source.hasConcepts(why, pair)) return;
    Object.assign(conceptsOf, { hidden: false, open });
    replace(strip, h("p", { class: "busy", role: "status" }, "Computing the concepts that both samples share …"));
    try {
      replace(strip, conceptStrip(await this.source.concepts(why, pair)));
    } catch (error) { fail(strip, error); }
    if (open) conceptsOf.scrollIntoView({ block: "nearest" });
  }
}
