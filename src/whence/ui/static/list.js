// The list of test samples: filters, search, order, pages.

import { Name, PAGE, count, fail, h, percent, place, progress, replace, roving } from "./dom.js";
import { plain } from "./address.js";
import { sampleView } from "./maps.js";
import { truth } from "./panels.js";

export class TestList {
  constructor(source, names, choose, onQuery) {
    Object.assign(this, { source, names, choose, onQuery, rows: [], chosen: null, asked: 0, drawn: false, query: plain().query });
    for (const id of ["label", "predicted"]) {
      place(id).append(h("option", { value: "" }, "any"), ...names.map((name, c) => h("option", { value: c, title: name.whole }, `${name}`)));
    }
    for (const id of ["label", "predicted", "order", "slice"]) place(id)?.addEventListener("change", (event) => this.ask({ [id]: event.target.value }));
    for (const id of ["wrong", "disagree", "novel"]) place(id).addEventListener("change", (event) => this.ask({ [id]: event.target.checked }));
    place("search").addEventListener("input", (event) => this.ask({ search: event.target.value }));
    place("search").addEventListener("keydown", async (event) => {
      if (event.key !== "Enter") return;
      await this.latest; // the list may be older than the search
      if (this.rows.length) choose(this.rows[0].index);
    });
    place("earlier").addEventListener("click", () => this.page(-1));
    place("later").addEventListener("click", () => this.page(1));
    place("unfilter").addEventListener("click", () => this.ask(plain().query));
    place("save-slice")?.addEventListener("submit", (event) => { event.preventDefault(); this.saveSlice(); });
    this.settle = roving(place("tests"), "button");
    // Filters are folded where there is no room next to the list.
    const wide = matchMedia("(min-width: 56rem)"), fold = () => { place("filters").open = wide.matches; };
    wide.addEventListener("change", fold);
    fold();
  }

  page(step) {
    return this.ask({ offset: Math.max(0, this.query.offset + step * PAGE) });
  }

  // Request another list after the visitor's changes.
  ask(changes = {}) {
    Object.assign(this.query, { offset: 0 }, changes);
    this.fill();
    this.onQuery();
    this.latest = this.load();
    return this.latest;
  }

  // Request the list that the address names, unless it is shown already.
  follow(query) {
    const same = JSON.stringify({ ...this.query, ...query }) === JSON.stringify(this.query);
    if (same && this.drawn) return this.latest;
    Object.assign(this.query, query);
    this.fill();
    this.latest = this.load();
    return this.latest;
  }

  // Show the query in the filters.
  fill() {
    const { query } = this, none = plain().query;
    for (const id of ["label", "predicted", "order", "search"]) if (place(id).value !== query[id]) place(id).value = query[id];
    this.drawSlices();
    for (const id of ["wrong", "disagree", "novel"]) place(id).checked = query[id];
    const n = Object.keys(none).filter((name) => name !== "offset" && query[name] !== none[name]).length;
    place("filtered").textContent = n ? ` (${n} on)` : "";
    place("unfilter").hidden = !n;
    if (place("save-slice")) place("save-slice").hidden = !n;
  }

  // The slices of tests, as choices of a filter.
  async drawSlices(known = this.slices) {
    const box = place("slice");
    if (!box) return;
    this.slices = known ?? (await this.source.slices().catch(() => ({ slices: [] }))).slices.filter((one) => one.of === "tests");
    const all = [...new Set([...this.slices.map(({ name }) => name), this.query.slice])].filter(Boolean);
    replace(box, h("option", { value: "" }, "any"), all.map((name) => h("option", { value: name }, name)));
    box.value = this.query.slice;
    box.parentElement.hidden = !all.length;
  }

  // Name the tests that the filters leave.
  async saveSlice() {
    const { offset, order, ...filters } = this.query, chosen = Object.fromEntries(Object.entries(filters).filter(([, value]) => value !== "" && value !== false).map(([name, value]) => [name, name === "label" || name === "predicted" ? +value : value]));
    const name = place("slice-name").value.trim(), line = place("slice-saved");
    try {
      const { slices } = await this.source.saveSlice({ name, of: "tests", filters: chosen });
      place("slice-name").value = "";
      line.textContent = `Saved as ${name}.`;
      this.drawSlices(slices.filter((one) => one.of === "tests"));
    } catch (error) { line.textContent = error.message; }
  }

  async load() {
    const mine = ++this.asked;
    this.drawn = true;
    try {
      if (this.query.novel) await this.source.compareTests(progress(place("tests"), "Comparing with the training set"));
      const found = await this.source.tests({ ...this.query, limit: PAGE });
      if (mine === this.asked) this.draw(found);
    } catch (error) {
      this.drawn = false;
      if (mine === this.asked) fail(place("tests"), error);
    }
  }

  draw({ rows, total }) {
    this.rows = rows;
    replace(place("tests"), rows.map((row) => h("li", {}, this.row(row))));
    this.show(this.chosen);
    const first = this.query.offset + 1, last = this.query.offset + rows.length;
    place("range").textContent = rows.length ? `${first}–${last} of ${count(total)}` : "no match";
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
        row.novel ? h("span", { class: "wrong" }, "⚠ novel") : null,
        row.verdict.agrees ? null : h("span", { class: "wrong" }, "surrogate disagrees")));
  }

  // Mark the chosen test, which may be on another page.
  show(test) {
    this.chosen = test;
    const buttons = [...place("tests").querySelectorAll("button")], here = buttons.find((button) => +button.dataset.test === test);
    for (const button of buttons) button.setAttribute("aria-current", button === here ? "true" : "false");
    if (here) reveal(here, place("tests"), place("tests").parentElement);
    this.settle(here);
  }

  // Go to the next or the previous test; a focus inside the list moves along.
  async step(by) {
    const inside = place("tests").contains(document.activeElement), at = this.rows.findIndex((row) => row.index === this.chosen) + by;
    if (!this.rows[at]) {
      if ((by > 0 && place("later").disabled) || (by < 0 && place("earlier").disabled)) return;
      await this.page(by);
    }
    const row = this.rows[at] ?? this.rows.at(by > 0 ? 0 : -1), done = this.choose(row.index);
    if (inside) place("tests").querySelector("[aria-current=true]")?.focus();
    return done;
  }
}

// Scroll an element's containers until it is visible, but never the page.
function reveal(element, ...holders) {
  for (const holder of holders) {
    const box = holder.getBoundingClientRect(), it = element.getBoundingClientRect();
    holder.scrollTop += Math.min(0, it.top - box.top) + Math.max(0, it.bottom - box.bottom);
    holder.scrollLeft += Math.min(0, it.left - box.left) + Math.max(0, it.right - box.right);
  }
}
