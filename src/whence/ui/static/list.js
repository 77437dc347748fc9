// The list of test samples: filters, search, pages.

import { Name, count, fail, h, percent, place, replace } from "./dom.js";
import { sampleView } from "./maps.js";
import { truth } from "./panels.js";

export class TestList {
  constructor(source, names, choose) {
    Object.assign(this, { source, names, choose, rows: [], chosen: null, asked: 0 });
    this.query = { offset: 0, limit: 24, label: "", predicted: "", search: "", wrong: false, disagree: false, strange: false };
    for (const id of ["label", "predicted"]) {
      place(id).append(h("option", { value: "" }, "any"), ...names.map((name, c) => h("option", { value: c, title: name.whole }, `${name}`)));
      place(id).addEventListener("change", (event) => this.ask({ [id]: event.target.value }));
    }
    for (const id of ["wrong", "disagree", "strange"]) place(id).addEventListener("change", (event) => this.ask({ [id]: event.target.checked }));
    place("search").addEventListener("input", (event) => this.ask({ search: event.target.value }));
    place("search").addEventListener("keydown", async (event) => {
      if (event.key !== "Enter") return;
      await this.latest; // what is typed may be ahead of the list
      if (this.rows.length) choose(this.rows[0].index);
    });
    place("earlier").addEventListener("click", () => this.page(-1));
    place("later").addEventListener("click", () => this.page(1));
  }

  page(step) {
    return this.ask({ offset: Math.max(0, this.query.offset + step * this.query.limit) });
  }

  ask(changes = {}) {
    Object.assign(this.query, { offset: 0 }, changes);
    this.latest = this.load();
    return this.latest;
  }

  async load() {
    const mine = ++this.asked;
    try {
      const found = await this.source.tests(this.query);
      if (mine === this.asked) this.draw(found);
    } catch (error) {
      if (mine === this.asked) fail(place("tests"), error);
    }
  }

  draw({ rows, total }) {
    this.rows = rows;
    replace(place("tests"), rows.map((row) => h("li", {}, this.row(row))));
    this.show(this.chosen);
    const first = this.query.offset + 1, last = this.query.offset + rows.length;
    place("range").textContent = rows.length ? `${first}–${last} of ${count(total)}` : "none fits";
    place("earlier").disabled = this.query.offset === 0;
    place("later").disabled = last >= total;
  }

  row(row) {
    const note = this.source.note(row.index), chance = row.probability === null ? "" : `${percent(row.probability)} · `;
    return h("button", { type: "button", "data-test": row.index, onclick: () => this.choose(row.index) },
      sampleView(row.sample, `Test sample ${row.index}`),
      h("span", { class: "words" }, h("b", {}, new Name(row.verdict.predicted)), h("span", { class: "quiet" }, `${chance}#${row.index}`),
        truth(row.verdict.right, row.verdict.truth, row.verdict.right === null ? "true" : "is"),
        note ? h("span", { class: "noted" }, note.heading) : null,
        row.strange ? h("span", { class: "wrong" }, "⚠ nothing like it") : null,
        row.verdict.agrees ? null : h("span", { class: "wrong" }, "surrogate differs")));
  }

  // Show which test is chosen, which may be on another page.
  show(test) {
    this.chosen = test;
    for (const button of place("tests").querySelectorAll("button")) {
      const here = +button.dataset.test === test;
      button.setAttribute("aria-current", here ? "true" : "false");
      if (here) reveal(button, place("tests"), place("tests").parentElement);
    }
  }

  async step(by) {
    const at = this.rows.findIndex((row) => row.index === this.chosen) + by;
    if (this.rows[at]) return this.choose(this.rows[at].index);
    if ((by > 0 && place("later").disabled) || (by < 0 && place("earlier").disabled)) return;
    await this.page(by);
    return this.choose(this.rows.at(by > 0 ? 0 : -1).index);
  }
}

// Scroll what holds an element so that it is seen, and never the page.
function reveal(element, ...holders) {
  for (const holder of holders) {
    const box = holder.getBoundingClientRect(), it = element.getBoundingClientRect();
    holder.scrollTop += Math.min(0, it.top - box.top) + Math.max(0, it.bottom - box.bottom);
    holder.scrollLeft += Math.min(0, it.left - box.left) + Math.max(0, it.right - box.right);
  }
}
