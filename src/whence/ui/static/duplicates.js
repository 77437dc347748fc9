// Near-duplicates: groups of samples that are nearly the same, leaks first.

import { Name, PAGE, count, fail, h, pager, percent, progress, replace, some } from "./dom.js";
import { addressOf } from "./address.js";
import { sampleView } from "./maps.js";

const WHY = "repeats another sample";

export class DuplicatesView {
  constructor(box, source, info, names, changes, go) {
    Object.assign(this, { box, source, info, names, changes, offset: null, rows: [] });
    this.words = h("p", {});
    this.all = h("p", { class: "tools" });
    this.list = h("div", { class: "dups" });
    this.pages = pager((step) => go({ from: Math.max(0, this.offset + step * PAGE) }));
    replace(box, h("h2", {}, "Duplicates"), this.words, this.all, this.list, this.pages.box);
    changes?.listen(() => this.drawAll());
  }

  async show(offset) {
    if (offset === this.offset) return;
    const step = this.offset !== null;
    this.offset = offset;
    try {
      await this.source.findDuplicates(progress(this.list, "Comparing all samples"));
      const found = await this.source.duplicates(offset, PAGE);
      if (offset !== this.offset) return;
      this.found = found;
      this.words.textContent = found.total ? `${some(found.total, "group")} of samples that are nearly the same: ${found.with_tests ? `${count(found.leaks)} with tests (leaks: the accuracy on these tests says little), ` : ""}${count(found.different)} with different labels.`
        : "No two samples are nearly the same.";
      replace(this.list, found.rows.map((group) => this.group(group)));
      this.drawAll();
      this.pages.draw(offset, found.rows.length, found.total, `, nearer than ${percent(found.radius)} of the distance to the tenth neighbour`);
      this.pages.box.hidden = !found.total;
      if (step) this.box.scrollIntoView();
    } catch (error) { this.offset = null; fail(this.list, error); }
  }

  drawAll() {
    if (!this.found) return;
    const { extra, unclear } = this.found, marked = this.changes ? extra.filter((index) => this.changes.of(index)?.action === "remove").length : 0;
    replace(this.all, this.changes && extra.length ? [h("button", { type: "button", id: "mark-copies", class: "primary", disabled: marked === extra.length, onclick: () => this.mark(extra) }, `mark ${some(extra.length, "copy").replace("copys", "copies")} for removal`),
      h("span", { class: "quiet" }, marked ? `${count(marked)} of ${count(extra.length)} marked. ` : "", "Of each group the test or the first sample stays.", unclear ? ` Groups with different labels are left to you.` : "")] : []);
    for (const item of this.list.querySelectorAll("[data-training]")) item.classList.toggle("marked", this.changes?.of(+item.dataset.training)?.action === "remove");
  }

  async mark(samples) {
    try { await this.changes.add({ action: "remove", samples, why: WHY }); } catch (error) { fail(this.all, error); }
  }

  group(group) {
    const labels = [...new Set(group.members.map((one) => one.label).filter(Boolean))].map((label) => `${new Name(label)}`), rest = group.size - group.members.length;
    return h("details", { class: "dup", open: true },
      h("summary", {}, h("b", {}, group.leak ? "⚠ Leak" : some(group.size, "sample")), group.leak ? ` · ${some(group.size, "sample")}` : "", group.different ? [" · ", h("span", { class: "wrong" }, `≠ ${labels.join(", ")}`)] : ` · ${labels.join(", ")}`),
      h("ul", {}, group.members.map((one) => this.member(one)), rest > 0 ? h("li", { class: "quiet" }, `and ${count(rest)} more`) : null),
      this.changes && group.extra.length ? h("p", { class: "tools" }, h("button", { type: "button", onclick: () => this.mark(group.extra) }, group.extra.length === group.training.length ? `remove ${group.extra.length === 1 ? "it" : "all"} from the training set` : "remove all but the first"),
        group.different && group.extra.length < group.training.length ? h("button", { type: "button", onclick: () => this.mark(group.training) }, "remove all") : null) : null);
  }

  member(one) {
    const words = `${one.test ? "Test" : "Training sample"} ${one.index}`, title = `${words}${one.label ? `, labelled ${new Name(one.label)}` : ""}`;
    return h("li", { "data-training": one.test ? null : one.index, title: `${title}; its nearest copy is at ${percent(one.nearest)} of the distance to the tenth neighbour` }, sampleView(one.sample, title),
      one.test ? h("a", { href: addressOf(this.info, { tab: "explore", test: one.index }) }, `test ${one.index}`) : h("span", {}, `#${one.index}`), h("span", { class: "quiet" }, one.label ? new Name(one.label) : "no label"));
  }
}
