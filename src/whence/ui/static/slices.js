// Slices: named sets of samples, side by side, with what to do with each.

import { addressOf } from "./address.js";
import { count, fail, h, percent, replace, signed } from "./dom.js";

export class SlicesView {
  constructor(box, source, info, names, changes) {
    Object.assign(this, { box, source, info, names, changes });
    this.table = h("div", {});
    this.wrong = h("div", {});
    replace(box, h("h2", {}, "Slices"), this.wrong, this.table);
    document.addEventListener("slices", () => this.show());
  }

  async show() {
    try {
      const { slices } = await this.source.slices();
      if (!slices.length) return replace(this.table, h("p", { class: "quiet" }, "No slices yet. Select samples on the map, or filter the list of tests, and save them under a name."));
      const compared = await this.source.compareSlices(slices.slice(-20).map(({ name }) => name));
      return this.draw(compared.slices);
    } catch (error) { return fail(this.table, error); }
  }

  draw(slices) {
    const figure = (value, write) => h("td", {}, value === null || value === undefined ? "–" : write(value));
    const columns = ["", "samples", "right", "label doubt", "labels to check", "evidence for", "against", "most frequent labels", ""];
    replace(this.table, h("div", { class: "wide" }, h("table", { class: "slices" }, h("thead", {}, h("tr", {}, columns.map((words) => h(words ? "th" : "td", words ? { scope: "col" } : {}, words)))),
      h("tbody", {}, slices.map((one) => h("tr", { "data-slice": one.name }, h("th", { scope: "row" }, this.link(one)), h("td", {}, `${count(one.n)} ${one.of === "tests" ? "tests" : "training"}`),
        figure(one.accuracy, percent), figure(one.doubt, percent), figure(one.likely_wrong, count), figure(one.evidence_for, signed), figure(one.evidence_against, signed), h("td", {}, this.labels(one)), h("td", {}, this.tools(one))))))),
    h("p", { class: "quiet" }, "Right: share of samples whose predicted class is their label. Label doubt: mean of 1 − the model’s probability of the label. Evidence: mean per test, for the predicted class."));
  }

  link(one) {
    const address = one.of === "tests" ? addressOf(this.info, { query: { slice: one.name } }) : addressOf(this.info, { tab: "whatif", slice: one.name });
    return h("a", { href: address }, one.name);
  }

  labels({ labels, n }) {
    if (!labels || !n) return "–";
    return labels.map((k, c) => [k, c]).filter(([k]) => k).sort((a, b) => b[0] - a[0]).slice(0, 3).map(([k, c]) => `${this.names[c]} ${percent(k / n)}`).join(", ");
  }

  tools(one) {
    const act = (work) => { replace(this.wrong); return work.then(() => this.show(), (error) => fail(this.wrong, error)); };
    const group = { by: "samples", slice: one.name };
    const to = h("select", { "aria-label": `Mark all of ${one.name}`, onchange: ({ target: { value } }) => act(this.changes.add(value === "remove" || value === "keep" ? { action: value, group, why: `slice ${one.name}` }
      : { action: "relabel", label: value === "suggested" ? value : +value, group, why: `slice ${one.name}` })) },
    h("option", { value: "" }, "mark all as …"), h("option", { value: "remove" }, "removed"), h("option", { value: "keep" }, "right"), h("option", { value: "suggested" }, "labelled as suggested"), this.names.map((name, c) => h("option", { value: c, title: name.whole }, `labelled ${name}`)));
    return h("span", { class: "tools" }, one.of === "training" && this.changes ? to : null, h("button", { type: "button", "aria-label": `Delete the slice ${one.name}`, onclick: () => act(this.source.deleteSlice(one.name)) }, "×"));
  }
}
