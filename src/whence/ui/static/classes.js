// The classes: the evidence for each, confusions, and two classes compared.

import { addressOf } from "./address.js";
import { Name, PAGE, count, fail, h, pager, part, percent, progress, replace, short, signed, some } from "./dom.js";
import { sampleView } from "./maps.js";

export class ClassesView {
  constructor(box, source, info, names, go) {
    Object.assign(this, { box, source, info, names, offset: null, compared: null });
    const choice = (id, words, none) => h("select", { id, "aria-label": words, onchange: () => go({ one: value(this.one), other: value(this.one) === value(this.other) ? null : value(this.other) }) },
      h("option", { value: "" }, none), names.map((name, c) => h("option", { value: c, title: name.whole }, `${name}`)));
    const value = (select) => select.value === "" ? null : +select.value;
    this.one = choice("compare-one", "A class to compare", "a class …");
    this.other = choice("compare-other", "The class that it is compared with", "all others");
    this.comparison = h("div", { id: "comparison" });
    this.confused = h("div", {});
    this.list = h("div", { class: "classes" });
    this.pages = pager((step) => go({ from: Math.max(0, this.offset + step * PAGE) }));
    replace(box, h("h2", {}, "Classes"),
      source.live ? h("p", { class: "tools compare" }, "Compare ", this.one, " with ", this.other) : null, this.comparison, this.confused,
      h("p", {}, "The support vectors of each class, and how many of them are at the bound λ = C, the largest weight. The strongest are shown."),
      this.list, this.pages.box);
  }

  show(one, other, offset) {
    this.one.value = one ?? "";
    this.other.value = other ?? "";
    this.other.disabled = one === null;
    return Promise.all([this.compare(one, other), this.load(offset)]);
  }

  async load(offset) {
    if (offset === this.offset) return;
    this.offset = offset;
    replace(this.list, h("p", { class: "busy", role: "status" }, "Loading …"));
    try {
      const found = await this.source.classes(offset, PAGE);
      if (offset !== this.offset) return;
      this.drawConfused(found.confused);
      replace(this.list, found.rows.map((one, i) => this.card(one, offset + i)));
      this.pages.draw(offset, found.rows.length, found.total);
      this.pages.box.hidden = found.total <= PAGE;
    } catch (error) { this.offset = null; fail(this.list, error); }
  }

  drawConfused(confused) {
    replace(this.confused, confused.length ? h("p", {}, "Confused most often, true → predicted: ", confused.map((kind, i) => [i ? ", " : null,
      this.link(kind.truth, kind.predicted, this.names[kind.truth], " → ", this.names[kind.predicted]), ` (${count(kind.count)})`]).flat()) : null);
  }

  link(one, other, ...words) {
    return this.source.live ? h("a", { href: addressOf(this.info, { tab: "classes", one, other }) }, ...words) : h("span", {}, ...words);
  }

  card(one, c) {
    return h("section", {}, h("h3", {}, this.link(c, null, new Name(one.name))),
      h("p", { class: "quiet" }, `${count(one.n_support)} of ${count(one.n_train)} samples are support vectors, ${percent(one.bounded)} of these at the bound`),
      h("div", { class: "thumbs" }, one.samples.map((sample, i) => sampleView(sample, `Training sample ${one.top[i]}, a strong proponent of ${new Name(one.name)}`))));
  }

  async compare(one, other) {
    const key = `${one} ${other}`;
    if (!this.source.live || key === this.compared) return;
    this.compared = key;
    if (one === null) { replace(this.comparison); return; }
    try {
      const found = await this.source.compare(one, other, progress(this.comparison, "Comparing"));
      if (key === this.compared) replace(this.comparison, this.drawn(found));
    } catch (error) { this.compared = null; fail(this.comparison, error); }
  }

  drawn(found) {
    const evidence = (name, rest) => `Evidence for ${name} against ${rest}, with its share of what separates the two:`;
    const [a, b] = [this.names[found.one], found.other === null ? "other classes" : this.names[found.other]];
    const column = (side, name, rest, words) => h("section", {}, h("h4", {}, name),
      h("p", {}, this.mistaken(side, name, rest), " ", `${some(side.n_border, "training sample")} of ${name} ${side.n_border === 1 ? "is" : "are"} held apart from ${rest}.`),
      h("p", { class: "quiet" }, words), this.thumbs(side.separating, (one) => part(one.share)),
      h("p", { class: "quiet" }, `Samples of ${name} that are nearest to ${rest}, with their margin (1 is far enough, below 0 is the other side):`), this.thumbs(side.border, (one) => signed(one.margin)));
    return h("section", { class: "comparison", "aria-label": `${a} and ${b}` }, h("h3", {}, a, " and ", b),
      found.similarity === null ? null : h("p", {}, `Their weights have a cosine of ${signed(found.similarity)}${found.similarity > 0 ? ": much of their evidence is the same." : "."}`,
        found.shared.length ? [" ", h("a", { href: addressOf(this.info, { tab: "concepts" }) }, "Concepts"), " that raise both: ", h("span", {}, found.shared.map((one) => `${one.name} (${signed(one.parts[0])}, ${signed(one.parts[1])})`).join(", ")), "."] : " No concept raises both."),
      h("div", { class: "two" }, column(found.sides[0], a, b, found.other === null ? `Evidence for ${a}, with its share:` : evidence(a, b)),
        column(found.sides[1], b, a, found.other === null ? `Strongest evidence against ${a}, with its share:` : evidence(b, a))),
      found.other === null && found.rivals.length ? this.rivals(found) : null);
  }

  mistaken(side, name, rest) {
    return `${count(side.mistaken)} of ${some(side.n_tests, "test")} of ${name} ${side.mistaken === 1 ? "is" : "are"} taken for ${rest}.`;
  }

  thumbs(rows, caption) {
    return h("div", { class: "thumbs" }, rows.map((one) => h("figure", {}, sampleView(one.sample, `Training sample ${one.index}, labelled ${this.names[one.label]}`),
      h("figcaption", {}, `#${one.index} `, this.names[one.label], h("br"), caption(one)))));
  }

  rivals(found) {
    const name = this.names[found.one];
    return h("div", { class: "wide" }, h("table", {}, h("thead", {}, h("tr", {}, ["compared with", "training samples that hold them apart", `tests of ${name} taken for it`, `its tests taken for ${name}`, "cosine of weights"].map((words) => h("th", { scope: "col" }, words)))),
      h("tbody", {}, found.rivals.map((one) => h("tr", {}, h("th", { scope: "row" }, this.link(found.one, one.other, this.names[one.other])),
        h("td", {}, count(one.n_border)), h("td", {}, count(one.taken_for)), h("td", {}, count(one.taken_from)), h("td", {}, short(one.similarity)))))));
  }
}
