// Two explainers side by side on the same tests: predictions, outputs, and which training samples both name.

import { Name, PAGE, count, fail, h, pager, percent, progress, replace, roving, short, side, signed } from "./dom.js";
import { sampleView } from "./maps.js";
import { truth } from "./panels.js";

const SHOWN = 4; // training samples per side and explainer
const ORDERS = [["outputs", "other prediction, then output"], ["samples", "other training samples"], ["number", "number"]];

export class SideView {
  constructor(box, source, info, names, go) {
    Object.assign(this, { box, source, info, names, go, about: info.compare, by: "outputs", offset: null, test: null, rows: [], drawn: null });
    const { about } = this, orders = ORDERS.filter(([by]) => by !== "samples" || about.corresponds);
    this.order = h("select", { id: "side-order", onchange: () => { this.by = this.order.value; this.offset = null; this.load(0, true); } }, orders.map(([by, words]) => h("option", { value: by }, words)));
    this.list = h("ol", { class: "side-tests" });
    this.pages = pager((step) => this.go({ from: Math.max(0, this.offset + step * PAGE) }));
    this.shown = h("article", { class: "side-shown", "aria-label": "Comparison" }, h("p", { class: "busy" }, "Loading …"));
    replace(box, h("div", { class: "side-head" }, h("h2", {}, "Compare"),
      h("dl", {}, about.names.map((name, i) => h("div", { class: "AB"[i] }, h("dt", {}, h("span", { class: "which" }, "AB"[i]), " ", name), h("dd", { class: "quiet" }, about.about[i]))))),
    h("p", {}, h("b", {}, about.n_differing ? `${count(about.n_differing)} of ${count(about.n_tests)} predictions${about.of === "model" ? "" : " of the surrogates"} differ. ` : info.label_kind === "number" ? "" : `All ${count(about.n_tests)} predictions are the same. `),
      about.of === "model" ? null : h("span", { class: "quiet" }, "Both explain the same model: what is compared are their surrogates. "),
      about.corresponds ? null : h("span", { class: "quiet" }, "The training sets differ: samples cannot be matched by their numbers.")),
    h("div", { class: "side-page" }, h("section", { class: "side-list", "aria-label": "Tests" }, h("label", {}, "largest difference first: ", this.order), this.list, this.pages.box), this.shown));
    this.settle = roving(this.list, "button");
  }

  async show(offset, test) {
    await this.load(offset);
    const chosen = test ?? this.rows[0]?.index;
    if (chosen !== undefined && chosen !== this.drawn) await this.compare(chosen);
  }

  async load(offset, first = false) {
    if (offset === this.offset) return;
    this.offset = offset;
    const { by } = this;
    try {
      if (by === "samples") await this.source.sideOverlap(progress(this.list, "Comparing training samples"));
      const { rows, total } = await this.source.sideRows({ by, offset, limit: PAGE });
      if (by !== this.by || offset !== this.offset) return;
      this.rows = rows;
      replace(this.list, rows.map((row) => this.row(row)));
      this.pages.draw(offset, rows.length, total);
      this.pages.box.hidden = total <= PAGE;
      this.mark();
      if (first && rows.length) this.pick(rows[0].index);
    } catch (error) { this.offset = null; fail(this.list, error); }
  }

  row(row) {
    const value = this.about.kind === "probability" ? percent : short, [a, b] = row.predicted.map((text) => new Name(text));
    const words = row.differs ? [h("b", {}, a), " → ", h("b", {}, b)] : [h("b", {}, a)];
    return h("li", {}, h("button", { type: "button", class: row.differs ? "differs" : "", "data-test": row.index, onclick: () => this.pick(row.index) },
      sampleView(row.sample, `Test sample ${row.index}`),
      h("span", { class: "words" }, h("span", {}, words), h("span", { class: "quiet" }, `${new Name(row.shown)}: ${value(row.values[0])} → ${value(row.values[1])}`),
        row.overlap === null ? null : h("span", { class: "quiet" }, `${percent(row.overlap)} of samples shared`), h("span", { class: "quiet" }, `#${row.index}`))));
  }

  mark() {
    const buttons = [...this.list.querySelectorAll("button")], here = buttons.find((button) => +button.dataset.test === this.test);
    for (const button of buttons) button.setAttribute("aria-current", button === here ? "true" : "false");
    this.settle(here);
  }

  pick(test) {
    this.go({ tab: "compare", test, own: null, pair: null });
  }

  step(by) {
    const at = this.rows.findIndex((row) => row.index === this.test) + by;
    if (this.rows[at]) this.pick(this.rows[at].index);
  }

  keys() {
    return { j: () => this.step(1), k: () => this.step(-1), ArrowRight: () => this.step(1), ArrowLeft: () => this.step(-1) };
  }

  async compare(test) {
    this.test = test;
    this.mark();
    this.shown.setAttribute("aria-busy", "true");
    const choice = (questions) => ({ k: SHOWN, target: null, against: null, C: null, question: questions[0] });
    try {
      const [one, other, outputs] = await Promise.all([this.source.explain(test, choice(this.info.questions)), this.source.explainOther(test, choice(this.about.questions)), this.source.sideOutputs(test)]);
      if (test !== this.test) return;
      this.drawn = test;
      this.draw([one, other], outputs);
    } catch (error) { if (test === this.test) { this.drawn = null; fail(this.shown, error); } }
    if (test === this.test) this.shown.removeAttribute("aria-busy");
  }

  draw(both, outputs) {
    const [one, other] = both, title = `Test sample ${one.test}`, step = (by, sign, words) => h("button", { type: "button", "aria-label": words, onclick: () => this.step(by) }, sign);
    const shared = one.pairs.filter((pair) => other.pairs.some(({ index }) => index === pair.index)).length, most = Math.max(one.pairs.length, other.pairs.length);
    const chance = this.about.kind === "probability", names = outputs.predicted.map((text) => new Name(text)), same = names[0].whole === names[1].whole && this.info.label_kind !== "number";
    const sure = both.map((why) => chance ? ` (${percent(why.verdict.probability)})` : ""), who = this.about.of === "model" ? "" : "’s surrogate";
    const claim = same ? [this.about.of === "model" ? "Both predict " : "Both surrogates predict ", h("b", {}, names[0]), chance ? `, A with ${percent(both[0].verdict.probability)}, B with ${percent(both[1].verdict.probability)}. ` : ". "]
      : [`A${who} predicts `, h("b", {}, names[0]), `${sure[0]}, B${who} `, h("b", {}, names[1]), `${sure[1]}. `];
    replace(this.shown,
      h("div", { class: "steps" }, h("h3", {}, title), h("span", {}, step(-1, "←", "Previous test"), " ", step(1, "→", "Next test")), one.verdict.truth === null ? null : h("span", { class: "quiet" }, "labelled ", new Name(one.verdict.truth))),
      h("p", { class: "claim", id: "side-claim" }, ...claim, this.about.corresponds ? shared ? `${shared} of ${most} training samples ${shared === 1 ? "is" : "are"} in both lists.` : "No training sample is in both lists." : null),
      h("div", { class: "side-top" }, h("figure", {}, sampleView(one.sample, title)), outputsView(outputs, this.about.kind)),
      h("div", { class: "side-both" }, both.map((why, i) => this.column(why, both[1 - i], i, one.verdict.truth))));
    this.link();
  }

  // The names of the classes are A's: B may have none.
  column(why, other, i, known) {
    const cards = (sign) => why.pairs.filter((pair) => sign * pair.score > 0);
    const group = (sign, at) => [h("h4", { class: `${sign > 0 ? "for" : "against"}-ink` }, `${sign > 0 ? "▲" : "▼"} ${why.words.side[at]} `, this.names[why.target]),
      cards(sign).length ? h("ol", { class: "side-cards" }, cards(sign).map((pair) => this.card(pair, other, i))) : h("p", { class: "quiet" }, "none")];
    return h("section", { class: "AB"[i] }, h("h3", {}, h("span", { class: "which" }, "AB"[i]), " ", this.about.names[i]),
      h("p", { class: "prediction" }, h("b", {}, why.label_kind === "class" ? this.names[why.predicted] : new Name(why.verdict.predicted)), " ", why.verdict.probability === null || why.label_kind !== "class" ? "" : `${percent(why.verdict.probability)} `, truth(why.verdict.right, known, why.label_kind === "class" ? "labelled" : why.words.true)),
      group(1, 0), group(-1, 1));
  }

  // A training sample, and where it stands in the other list.
  card(pair, other, i) {
    const label = this.info.label_kind === "class" ? this.names[pair.label] : new Name(pair.label_text), twin = this.about.corresponds ? other.pairs.find(({ index }) => index === pair.index) : undefined;
    const turned = twin && Math.sign(twin.score) !== Math.sign(pair.score), them = "AB"[1 - i];
    const words = !this.about.corresponds ? null : !twin ? `only in ${"AB"[i]}` : turned ? `${side(twin.score)} in ${them}` : `also in ${them}`;
    return h("li", { class: `${side(pair.score)} ${!twin ? "alone" : turned ? "twin turned" : "twin"}`, "data-sample": pair.index },
      sampleView(pair.sample, `Training sample ${pair.index}, labelled ${label}, ${words ?? ""}`),
      h("span", { class: "facts" }, h("span", {}, pair.differs ? h("span", { title: "another label" }, "≠ ") : null, label), h("span", { class: `score ${side(pair.score)}-ink` }, signed(pair.score)),
        h("span", { class: "quiet" }, `#${pair.index}`), words ? h("span", { class: "badge" }, words) : null));
  }

  // Pointing at a sample marks it in both lists.
  link() {
    const items = [...this.shown.querySelectorAll("[data-sample]")];
    for (const item of items) {
      const light = (on) => () => { for (const each of items) each.classList.toggle("lit", on && item.classList.contains("twin") && each.dataset.sample === item.dataset.sample); };
      item.addEventListener("mouseenter", light(true));
      item.addEventListener("mouseleave", light(false));
    }
  }
}

// A difference of probabilities, in percentage points.
const points = (change) => Math.abs(change) < 0.0005 ? "0.0" : `${change < 0 ? "−" : "+"}${(100 * Math.abs(change)).toFixed(1)}`;

// The outputs of both, one line per class: two dots, and the way between them.
function outputsView({ names, values, others }, kind) {
  const [a, b] = values, chance = kind === "probability", all = [...a, ...b], low = chance ? 0 : Math.min(0, ...all), high = chance ? 1 : Math.max(0, ...all), at = (value) => (value - low) / (high - low || 1);
  const say = chance ? percent : short;
  const line = (name, i) => h("tr", {}, h("th", { scope: "row" }, new Name(name)),
    h("td", { class: "dots" }, h("span", { class: "track", "aria-hidden": "true" }, h("span", { class: "way", "--from": Math.min(at(a[i]), at(b[i])), "--to": Math.max(at(a[i]), at(b[i])) }), h("span", { class: "dot B", "--at": at(b[i]) }), h("span", { class: "dot A", "--at": at(a[i]) }))),
    h("td", {}, say(a[i])), h("td", {}, say(b[i])), h("td", { class: Math.abs(at(b[i]) - at(a[i])) >= 0.1 ? "much" : "quiet" }, chance ? points(b[i] - a[i]) : signed(b[i] - a[i])));
  return h("div", { class: "wide" }, h("table", { class: "side-outputs" }, h("thead", {}, h("tr", {}, h("th", { scope: "col", colspan: 2 }, kind), ["A", "B"].map((word) => h("th", { scope: "col" }, h("span", { class: `which ${word}` }, word))), h("th", { scope: "col" }, chance ? "B − A, points" : "B − A"))),
    h("tbody", {}, names.map(line))), others ? h("p", { class: "quiet" }, `and ${count(others)} more`) : null);
}
