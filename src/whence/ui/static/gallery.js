// The gallery of concepts: which training samples show each, and which classes use it.

import { addressOf } from "./address.js";
import { fail, h, pager, percent, progress, replace, side } from "./dom.js";
import { sampleView } from "./maps.js";

const SHELF = 12; // concepts per page

export class GalleryView {
  constructor(box, source, info, names, go) {
    Object.assign(this, { box, source, info, names, offset: null });
    this.list = h("div", { class: "gallery" });
    this.pages = pager((step) => go(Math.max(0, this.offset + step * SHELF)));
    replace(box, h("h2", {}, "Concepts"),
      h("p", {}, "Directions of the model’s features, the principal components of the support vectors. Every sample shows each of them to a degree, and a class’s logit is the sum of its parts through them. ",
        "Those that the classes use most come first. Bars are the share of a class’s logit, over its tests, that goes through a concept: by showing it, or by showing its opposite."),
      this.list, this.pages.box);
  }

  async show(offset) {
    if (offset === this.offset) return;
    this.offset = offset;
    try {
      const found = await this.source.gallery(offset, SHELF, progress(this.list, "Computing the concepts"));
      if (offset !== this.offset) return;
      replace(this.list, found.rows.map((concept) => this.concept(concept)));
      this.pages.draw(offset, found.rows.length, found.total);
    } catch (error) { this.offset = null; fail(this.list, error); }
  }

  concept(concept) {
    const use = (one) => h("li", {}, h("a", { href: addressOf(this.info, { tab: "classes", one: one.label }) }, this.names[one.label]),
      h("span", { class: `use ${side(one.part)}`, "--share": Math.min(1, Math.abs(one.share)) }), h("span", { class: `${side(one.part)}-ink` }, `${one.part < 0 ? "−" : ""}${percent(Math.abs(one.share))}`));
    const end = (words, shows, indices, labels, samples) => h("div", {}, h("h4", {}, words),
      h("ul", { class: "uses" }, concept.uses.filter((one) => one.shows === shows).map(use)),
      h("div", { class: "thumbs" }, samples.map((sample, i) => h("figure", {}, sampleView(sample, `Training sample ${indices[i]}, labelled ${this.names[labels[i]]}, which shows ${concept.name}`),
        h("figcaption", {}, this.names[labels[i]])))));
    return h("section", { class: "concept" }, h("h3", {}, concept.name, " ", h("span", { class: "quiet" }, `${percent(concept.used)} of what the classes use`)),
      h("div", { class: "ends-of" }, end("Shown most", true, concept.most, concept.most_labels, concept.most_samples), end("Its opposite", false, concept.least, concept.least_labels, concept.least_samples)));
  }
}
