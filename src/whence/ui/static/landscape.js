// The map: training samples and tests in the plane, their colours, and what is selected of them.

import { Name, count, fail, h, percent, progress, replace, short, signed, some } from "./dom.js";
import { addressOf } from "./address.js";
import { sampleView } from "./maps.js";
import { MOST_HUES, edgeInk, hueOf, paint, rampStops, rangeOf } from "./mapcolours.js";
import { PointCanvas } from "./mapcanvas.js";
import { selection } from "./selection.js";

const THUMBS = 24;
const COLOURS = { label: "label", predicted: "prediction of the model", "label doubt": "doubt about the label", "self-influence": "self-influence", score: "score", effect: "effect" };
const UNKNOWN = { "label doubt": "Grey: not among the labels to check, and tests.", "self-influence": "Grey: tests.", score: "Diamonds in grey: other tests.", effect: "Diamonds in grey: other tests." };

export class MapView {
  // ``go(state)`` shows another state of the page, ``linked()`` is the explanation that is shown in Predictions.
  constructor(box, source, info, names, changes, go, linked) {
    Object.assign(this, { box, source, info, names, changes, go, linked, by: null, test: null, asked: 0, samples: new Map(), chosen: new Map() });
    const button = (words, act, more = {}) => h("button", { type: "button", onclick: act, ...more }, words);
    this.colouring = h("select", { id: "map-by", onchange: () => this.choose() });
    this.method = h("select", { id: "map-method", onchange: () => this.load(true) });
    this.lasso = button("Lasso", () => this.lassoes(!this.plot.lassoing), { id: "map-lasso", "aria-pressed": "false", title: "Draw around samples to select them. Or drag with Shift held down" });
    this.plot = new PointCanvas("Map of training samples and tests", { hover: (i) => this.hover(i), open: (i) => this.open(i), focus: (i) => this.focused(i), toggle: (i) => selection.toggle(...this.named(i)), lasso: (points) => this.picked(points), moved: () => this.hide() });
    this.tip = h("div", { class: "map-tip", hidden: true });
    this.status = h("p", { class: "quiet map-status", role: "status" });
    this.stage = h("div", { class: "map-stage" }, this.plot.canvas, this.plot.over, this.tip);
    [this.legend, this.detail, this.bar] = ["Colours", "Sample", "Selection"].map((words) => h("section", { "aria-label": words }));
    this.detail.hidden = true;
    const kinds = ["training", "tests"].map((kind) => h("label", { class: "tick" }, h("input", { type: "checkbox", checked: true, onchange: (event) => { this.plot.shown[kind] = event.target.checked; this.plot.draw(); } }), kind === "training" ? "● training samples" : "◆ tests"));
    this.wait = h("div", {});
    this.whole = h("div", { class: "map", hidden: true },
      h("div", {}, h("div", { class: "tools map-tools" }, h("label", {}, "colour by ", this.colouring), this.methods = h("label", { hidden: true }, "layout ", this.method), this.lasso,
        h("span", { class: "map-zoom" }, button("−", () => this.plot.zoom(1 / 1.4), { "aria-label": "Zoom out" }), button("+", () => this.plot.zoom(1.4), { "aria-label": "Zoom in" }), button("whole map", () => this.plot.fit())), kinds), this.stage, this.status),
      h("aside", {}, this.bar, this.detail, this.legend));
    this.words = h("p", { class: "map-words" });
    replace(box, h("div", { class: "titled" }, h("h2", {}, "Map"), this.words), this.wait, this.whole,
      h("p", { class: "quiet", id: "map-keys" }, "Keys on the map: arrows go to the nearest sample in that direction, Enter opens it, Space selects it, + and − zoom, 0 shows the whole map. Drag moves the map, Shift and drag selects."));
    selection.listen(() => this.drawSelection());
    changes?.listen(() => this.drawSelection());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.paint());
    this.drawSelection();
  }

  // Show the map in a colouring; ``test`` is the chosen test, whose scores may colour it.
  async show(by, test) {
    Object.assign(this, { wantedBy: by, test });
    if (!this.header) return this.load();
    this.fillColourings();
    return this.recolour();
  }

  async load(again = false) {
    if (this.loading && !again) return;
    const method = this.method.value || "pca", mine = this.loading = ++this.asked;
    try {
      const header = await this.source.map(method, progress(this.wait, "Making the map: features of the training set"));
      const [points, labels] = await Promise.all([this.source.mapPoints(method), this.labels ?? this.source.mapColours("label")]);
      if (mine !== this.asked) return;
      Object.assign(this, { header, labels, by: null });
      replace(this.wait);
      this.whole.hidden = false;
      replace(this.method, header.methods.map((one) => h("option", { value: one, selected: one === method }, one === "pca" ? "principal components" : "UMAP")));
      this.methods.hidden = header.methods.length < 2;
      this.words.textContent = `${some(header.n_train, "training sample")} and ${some(header.n_tests, "test")}, near where their features are alike. ${header.share === null ? "" : `The two directions of largest variance, with ${percent(header.share)} of it.`}`;
      this.plot.load(points, header.n_train);
      if (!this.chosen.size) this.chooseClasses();
      this.fillColourings();
      this.drawSelection();
      await this.recolour();
    } catch (error) { this.header = null; fail(this.wait, error); } finally { if (mine === this.loading) this.loading = 0; }
  }

  fillColourings() {
    replace(this.colouring, this.header.colourings.map(({ name, of_test }) => h("option", { value: name, disabled: of_test && this.test === null, selected: name === this.wantedBy },
      of_test ? `${COLOURS[name]} for test ${this.test ?? "…"}` : COLOURS[name])));
  }

  // The largest classes have colours to begin with, as many as there are hues.
  chooseClasses() {
    const sizes = new Map();
    for (const label of this.labels.subarray(0, this.header.n_train)) sizes.set(label, (sizes.get(label) ?? 0) + 1);
    this.sizes = sizes;
    const most = this.names.map((_, c) => c).sort((a, b) => (sizes.get(b) ?? 0) - (sizes.get(a) ?? 0)).slice(0, MOST_HUES).sort((a, b) => a - b);
    this.chosen = new Map(most.map((label, place) => [label, place]));
  }

  choose() {
    const by = this.colouring.value;
    this.go({ by, ...["score", "effect"].includes(by) ? { test: this.test } : {} });
  }

  async recolour() {
    const known = this.header.colourings.find(({ name }) => name === this.wantedBy) ?? this.header.colourings[0];
    const one = known.of_test && this.test === null ? this.header.colourings[0] : known, key = one.of_test ? `${one.name} ${this.test}` : one.name;
    this.colouring.value = one.name;
    this.ring();
    if (this.by === key) return this.plot.draw();
    const mine = ++this.asked;
    try {
      if (one.name === "label doubt") await this.source.rank(progress(this.wait, "Ranking labels"));
      const values = one.name === "label" ? this.labels : await this.source.mapColours(one.name, one.of_test ? this.test : null);
      if (mine !== this.asked) return;
      replace(this.wait);
      Object.assign(this, { by: key, one, values });
      this.paint();
    } catch (error) { this.by = null; fail(this.wait, error); }
  }

  paint() {
    if (!this.values) return;
    this.plot.rim = edgeInk();
    this.plot.names = this.one.kind === "class" ? this.centres() : [];
    this.plot.colour(paint({ values: this.values, kind: this.one.kind, chosen: this.chosen }));
    this.drawLegend();
  }

  // Where the names of the coloured classes go: the medians of their training samples.
  centres() {
    const middle = (rows, axis) => Float32Array.from(rows, (i) => this.plot.points[2 * i + axis]).sort()[rows.length >> 1];
    const rows = new Map([...this.chosen.keys()].map((label) => [label, []]));
    for (let i = 0; i < this.header.n_train; i += 1) if (this.plot.visible(i)) rows.get(this.values[i])?.push(i);
    return [...rows].filter(([, all]) => all.length).map(([label, all]) => ({ text: `${this.names[label]}`.slice(0, 30), place: [middle(all, 0), middle(all, 1)] }));
  }

  // Ring the chosen test, and the training samples that Predictions shows for it.
  ring() {
    const why = this.linked(), rings = [], n = this.header.n_train;
    if (why?.test === this.test && why?.test !== null && why) for (const pair of why.pairs) rings.push({ point: pair.index, colour: pair.score > 0 ? "--for" : "--against", line: 2 });
    if (this.test !== null && this.test < this.header.n_tests) rings.push({ point: n + this.test, colour: "--ink", line: 3 });
    this.plot.rings = rings;
  }

  drawLegend() {
    const { one } = this, ringed = this.plot.rings.length ? h("p", { class: "quiet" }, `Ringed: test ${this.test}${this.plot.rings.length > 1 ? " and the training samples that Predictions shows for it, in blue for, in orange against" : ""}.`) : null;
    if (one.kind !== "class") {
      const [low, high] = rangeOf(this.values, one.kind), stops = rampStops(one.kind);
      const ends = one.kind === "signed" ? [["▼ against", signed(low)], ["▲ for", signed(high)]] : [["", short(low)], [one.name === "label doubt" ? "more likely wrong" : "", short(high)]];
      return replace(this.legend, h("h3", {}, COLOURS[one.name], one.kind === "signed" ? ` for test ${this.test}` : ""),
        h("div", { class: "map-ramp", role: "img", "aria-label": `from ${short(low)} to ${short(high)}`, ...Object.fromEntries(stops.map((stop, i) => [`--stop${i}`, stop])), "data-stops": stops.length }),
        h("p", { class: "map-ends" }, ends.map(([words, value]) => h("span", {}, h("b", {}, value), ` ${words}`))),
        one.kind === "signed" ? h("p", { class: "quiet" }, one.name === "score" ? "Blue, positive: evidence for the predicted class. Orange, negative: evidence against it." : "Blue, positive: without the sample the logit falls. Orange, negative: it rises.") : null,
        h("p", { class: "quiet" }, UNKNOWN[one.name]), ringed);
    }
    const entry = (name, label) => h("li", {}, h("button", { type: "button", "data-label": label, "aria-pressed": this.chosen.has(label) ? "true" : "false", "--hue": this.chosen.has(label) ? hueOf(this.chosen.get(label)) : null, onclick: () => this.toggle(label) },
      h("span", { class: "map-hue", "aria-hidden": "true" }), h("span", { class: "map-name" }, name), h("span", { class: "quiet" }, count(this.sizes.get(label) ?? 0))));
    const few = this.names.length > MOST_HUES ? h("p", { class: "quiet" }, `${MOST_HUES} hues for ${count(this.names.length)} classes: choose those to tell apart.`) : null;
    return replace(this.legend, h("h3", {}, COLOURS[one.name]), few, h("ul", { class: "map-legend" }, this.names.map(entry)),
      h("p", { class: "tools" }, h("button", { type: "button", onclick: () => this.toggleAll(true) }, this.names.length > MOST_HUES ? "the largest" : "all"), h("button", { type: "button", onclick: () => this.toggleAll(false) }, "none")), ringed);
  }

  toggleAll(on) {
    this.chosen = new Map();
    if (on) this.chooseClasses();
    this.repaint();
  }

  toggle(label) {
    if (!this.chosen.delete(label)) {
      const used = new Set(this.chosen.values()), free = [...Array(MOST_HUES).keys()].find((place) => !used.has(place)), own = this.names.length <= MOST_HUES ? label : free;
      this.chosen.set(label, own ?? label % MOST_HUES);
    }
    this.repaint(label);
  }

  repaint(label = null) {
    this.paint();
    if (label !== null) this.legend.querySelector(`[data-label="${label}"]`)?.focus();
  }

  lassoes(on) {
    this.plot.lassoing = on;
    this.lasso.setAttribute("aria-pressed", on ? "true" : "false");
    this.stage.classList.toggle("lassoing", on);
  }

  // The kind and the index of a point.
  named(i) {
    return this.plot.isTest(i) ? ["tests", i - this.header.n_train] : ["training", i];
  }

  title(i) {
    const [kind, index] = this.named(i), label = this.labels[i];
    return `${kind === "tests" ? "Test" : "Training sample"} ${index}${Number.isNaN(label) ? "" : `, labelled ${this.names[label]}`}`;
  }

  picked(points) {
    const sets = { training: [], tests: [] };
    for (const i of points) { const [kind, index] = this.named(i); sets[kind].push(index); }
    selection.set(sets);
    this.lassoes(false);
  }

  focused(i) {
    if (i < 0) return;
    const [kind, index] = this.named(i), value = !this.values || this.one.kind === "class" || Number.isNaN(this.values[i]) ? "" : `, ${COLOURS[this.one.name]} ${short(this.values[i])}`;
    this.status.textContent = `${this.title(i)}${value}${selection[kind].has(index) ? ", selected" : ""}`;
    this.tipFor(i);
  }

  // One request per sample, when the pointer rests on it.
  hover(i) {
    clearTimeout(this.resting);
    if (i < 0) return this.hide();
    this.resting = setTimeout(() => this.tipFor(i), 60);
  }

  hide() {
    this.tip.hidden = true;
  }

  async sample(i) {
    if (!this.samples.has(i)) {
      const [kind, index] = this.named(i), found = await this.source.mapSamples({ [kind]: [index] });
      this.samples.set(i, found[kind][0]);
    }
    return this.samples.get(i);
  }

  async tipFor(i) {
    const [x, y] = this.plot.at(i), { width, height } = this.plot.size();
    if (x < 0 || y < 0 || x > width || y > height) return this.hide();
    this.tipped = i;
    const row = await this.sample(i).catch(() => null); // a tip is optional
    if (!row || this.tipped !== i || (this.plot.hovered !== i && this.plot.focused !== i)) return;
    const said = row.verdict ? row.verdict.predicted : this.names[row.predicted].whole;
    replace(this.tip, sampleView(row.sample, this.title(i)), h("p", {}, h("b", {}, this.title(i)), h("br"), "predicted ", new Name(said)));
    this.tip.hidden = false;
    this.tip.style.setProperty("--x", `${Math.min(Math.max(x, 90), width - 90)}px`);
    this.tip.style.setProperty("--y", `${y}px`);
    this.tip.classList.toggle("below", y < height / 2);
  }

  open(i) {
    const [kind, index] = this.named(i);
    if (kind === "tests") return this.go({ tab: "explore", test: index, own: null, pair: null });
    return this.showSample(i, index);
  }

  // A training sample: its label, what the model says of it, and the tests that it supports.
  async showSample(i, index) {
    this.detail.hidden = false;
    replace(this.detail, h("h3", {}, `Training sample ${index}`), h("p", { class: "busy", role: "status" }, "Loading …"));
    const mine = this.detailed = {};
    try {
      const [row, support] = await Promise.all([this.sample(i), this.source.mapSupported(index)]);
      if (mine !== this.detailed) return;
      const differs = row.label !== row.predicted, mark = (action, words, label = null) => h("button", { type: "button", onclick: () => this.mark([index], action, label) }, words);
      replace(this.detail, h("div", { class: "titled" }, h("h3", {}, `Training sample ${index}`), h("button", { type: "button", "aria-label": "Close the sample", onclick: () => { this.detail.hidden = true; this.plot.canvas.focus(); } }, "×")),
        h("div", { class: "suspect" }, sampleView(row.sample, this.title(i)), h("div", {}, h("p", {}, "labelled ", h("b", {}, this.names[row.label])),
          h("p", { class: differs ? "wrong" : "quiet" }, "predicted ", this.names[row.predicted]), row.doubt === null ? null : h("p", { class: "quiet" }, `doubt ${signed(row.doubt)}`),
          h("p", { class: "quiet" }, row.support ? "a support vector" : "no support vector: no prediction needs it"))),
        this.changes ? h("p", { class: "tools" }, mark("remove", "remove"), mark("keep", "keep"), differs ? mark("relabel", `is ${this.names[row.predicted]}`, row.predicted) : null) : null,
        h("h4", {}, support.total ? `Supports ${some(support.total, "test")}${support.total > support.tests.length ? ", these most" : ""}` : "Supports no test"),
        h("div", { class: "thumbs" }, support.tests.map((one) => h("a", { href: addressOf(this.info, { tab: "explore", test: one.index }), title: `Test ${one.index}, score ${signed(one.score)}` }, sampleView(one.sample, `Test ${one.index}, score ${signed(one.score)}`)))));
    } catch (error) { fail(this.detail, error); }
  }

  drawSelection() {
    const { training, tests } = selection, both = [some(training.size, "training sample"), some(tests.size, "test")], mine = this.drawnFor = {};
    if (this.header) {
      const marks = selection.size ? new Uint8Array(this.plot.n) : null;
      for (const index of training) marks[index] = 1;
      for (const index of tests) marks[this.header.n_train + index] = 1;
      this.plot.pick(marks);
    }
    if (!selection.size || !this.header) return replace(this.bar, h("h3", {}, "Selection"), h("p", { class: "quiet" }, "Nothing is selected. Choose Lasso and draw around samples, or hold Shift and drag."));
    const thumbs = h("div", { class: "thumbs map-thumbs" }), shown = { training: [...training].slice(0, THUMBS), tests: [...tests].slice(0, Math.max(0, THUMBS - training.size)) };
    this.source.mapSamples(shown).then((found) => {
      if (mine === this.drawnFor) replace(thumbs, [...found.training.map((row) => [row, "Training sample"]), ...found.tests.map((row) => [row, "Test"])].map(([row, words]) => sampleView(row.sample, `${words} ${row.index}`)));
    }).catch((error) => fail(thumbs, error));
    replace(this.bar, h("div", { class: "titled" }, h("h3", {}, `${training.size ? both[0] : ""}${training.size && tests.size ? ", " : ""}${tests.size ? both[1] : ""} selected`), h("button", { type: "button", onclick: () => selection.clear() }, "clear")),
      this.marking(training), this.composition(), thumbs, this.slicing(training, tests));
    return this.bar;
  }

  // The labels of the selection as bars.
  composition() {
    const counts = new Map(), add = (i) => counts.set(this.labels[i], (counts.get(this.labels[i]) ?? 0) + 1);
    for (const index of selection.training) add(index);
    for (const index of selection.tests) add(this.header.n_train + index);
    const rows = [...counts].filter(([label]) => !Number.isNaN(label)).sort((a, b) => b[1] - a[1]), most = rows[0]?.[1] ?? 1;
    return h("ul", { class: "map-bars", "aria-label": "Labels of the selection" }, rows.slice(0, 8).map(([label, n]) => h("li", { "--share": n / most, "--hue": this.chosen.has(label) ? hueOf(this.chosen.get(label)) : null }, h("span", { class: "map-name" }, this.names[label]), h("span", { class: "map-length" }), h("span", {}, count(n)))),
      rows.length > 8 ? h("li", { class: "quiet" }, `and ${rows.length - 8} more labels`) : null);
  }

  marking(training) {
    if (!this.changes || !training.size) return null;
    const action = h("select", { id: "map-mark", "aria-label": "What to do with them" }, h("option", { value: "remove" }, "remove"), h("option", { value: "keep" }, "keep"), h("option", { value: "flag" }, "flag"), this.names.map((name, c) => h("option", { value: c }, `relabel to ${name}`)));
    const marked = [...training].filter((index) => this.changes.of(index)).length;
    return h("p", { class: "tools" }, action, h("button", { type: "button", id: "map-do", class: "primary", onclick: () => (/^\d+$/.test(action.value) ? this.mark([...training], "relabel", +action.value) : this.mark([...training], action.value)) }, `mark ${some(training.size, "training sample")}`),
      marked ? h("span", { class: "quiet" }, `${count(marked)} marked`) : null);
  }

  async mark(samples, action, label = null) {
    try { await this.changes.add({ action, label, samples, why: "selected on the map" }); } catch (error) { this.say(error); }
  }

  slicing(training, tests) {
    const name = h("input", { type: "text", id: "map-slice", maxlength: 60, placeholder: "name", "aria-label": "Name of the slice" });
    const save = async (of, samples) => {
      await this.source.saveSlice({ name: name.value.trim(), of, samples: [...samples] });
      this.status.textContent = `Saved ${some(samples.size, of === "tests" ? "test" : "training sample")} as “${name.value.trim()}”.`;
    };
    const act = (work) => async (event) => { event.preventDefault(); try { if (name.value.trim()) await work(); else name.focus(); } catch (error) { this.say(error); } };
    return h("form", { class: "tools", onsubmit: act(async () => { await save(training.size ? "training" : "tests", training.size ? training : tests); }) }, name,
      h("button", { type: "submit" }, `save ${training.size ? "training samples" : "tests"} as slice`),
      tests.size ? h("button", { type: "button", id: "map-list", onclick: act(async () => { await save("tests", tests); location.hash = `#tab=explore&slice=${encodeURIComponent(name.value.trim())}`; }) }, "save tests and list them") : null);
  }

  say(error) {
    this.status.textContent = error.message;
  }
}
