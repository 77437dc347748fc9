// The change list: choose training samples, mark them in bulk, see what would change, export the corrected set.

import { addressOf } from "./address.js";
import { Name, PAGE, count, fail, h, pager, percent, progress, replace, roving, short, signed } from "./dom.js";
import { markWords } from "./changelist.js";
import { sampleView } from "./maps.js";
import { saveFile } from "./audit.js";
import { countWords, entryWords } from "./marking.js";

export class ChangesView {
  constructor(box, source, info, names, changes, fitEffects) {
    Object.assign(this, { box, source, info, names, changes, fitEffects, offset: 0, total: 0, picked: new Set(), asked: 0, rows: [], loading: true });
    this.search = h("input", { type: "search", id: "training-search", placeholder: info.kind === "text" ? "3, 17, 40-60 or words" : "3, 17, 40-60 or a class", maxlength: 200, autocomplete: "off", oninput: () => this.filter() });
    this.label = h("select", { id: "training-label", onchange: () => this.filter() }, h("option", { value: "" }, "any"), this.classes());
    this.slice = h("select", { id: "training-slice", onchange: () => this.filter() });
    this.suspects = h("input", { type: "checkbox", id: "training-wrong", onchange: () => this.filter() });
    this.list = h("ol", { class: "training", "aria-label": "Training samples" });
    this.settle = roving(this.list, "button");
    this.pages = pager((step) => this.load(step));
    this.to = h("select", { id: "training-to", "aria-label": "What happens to them" });
    this.why = h("input", { id: "training-why", maxlength: 500, placeholder: "why (optional)", "aria-label": "Why", autocomplete: "off" });
    this.adding = h("button", { type: "button", id: "training-add", class: "primary", disabled: true, onclick: () => this.add() }, "mark");
    this.which = h("select", { id: "training-which", "aria-label": "Which of them" });
    this.entries = h("section", { class: "entries", "aria-label": "Change list" });
    this.wrong = h("div", {});
    this.first = h("div", { class: "first-order", role: "status" });
    this.answer = h("div", {});
    changes.listen(() => { replace(this.answer); this.drawEntries(); this.drawPicks(); if (!box.hidden) this.predict(); });
    replace(box, h("h2", {}, "Changes to the training set"),
      h("div", { class: "two" },
        h("section", { "aria-label": "Training samples to change" }, h("h3", {}, "1. Mark training samples"),
          h("div", { class: "filters" }, h("label", {}, "search ", this.search), h("label", {}, "label ", this.label), h("label", { class: "whole", hidden: true }, "slice ", this.slice),
            h("label", { class: "tick whole" }, this.suspects, " only labels that are likely wrong")),
          this.list, this.pages.box,
          h("p", { class: "tools" }, "Mark ", this.which, " as ", this.to, this.why, this.adding), this.wrong),
        h("section", {}, h("h3", {}, "2. Change list"), this.entries, h("h3", {}, "3. What would change"), this.first, this.answer)));
    this.drawTo();
    this.drawEntries();
  }

  classes(words = "") {
    return this.names.map((name, c) => h("option", { value: c, title: name.whole }, `${words}${name}`));
  }

  // ``slice`` is the name of a slice to list.
  async show(slice = "") {
    const before = slice || this.slice.value, { slices } = await this.source.slices().catch(() => ({ slices: [] }));
    const names = [...new Set([...slices.filter(({ of }) => of === "training").map(({ name }) => name), slice])].filter(Boolean);
    replace(this.slice, h("option", { value: "" }, "any"), names.map((name) => h("option", { value: name }, name)));
    this.slice.value = names.includes(before) ? before : "";
    this.slice.parentElement.hidden = !names.length;
    if (!this.rows.length || slice) this.load();
    this.predict();
  }

  filter() {
    this.offset = 0;
    this.picked.clear();
    this.drawTo();
    return this.load();
  }

  // The changes offered for the listed samples.
  drawTo() {
    const before = this.to.value;
    replace(this.to, h("option", { value: "remove" }, "removed"), this.suspects.checked ? h("option", { value: "suggested" }, "labelled as suggested") : null, h("option", { value: "keep" }, "right"), this.classes("labelled "));
    if ([...this.to.options].some((option) => option.value === before)) this.to.value = before;
  }

  async load(step = 0) {
    const mine = ++this.asked;
    this.loading = this.adding.disabled = true; // what is listed is no longer what is chosen
    this.offset = Math.max(0, this.offset + step * PAGE);
    try {
      const found = this.suspects.checked ? await this.suspected() : await this.source.training({ search: this.search.value, label: this.label.value, slice: this.slice.value, offset: this.offset, limit: PAGE });
      if (mine === this.asked) this.draw(found);
    } catch (error) { if (mine === this.asked) fail(this.list, error); }
  }

  async suspected() {
    await this.source.rank(progress(this.list, "Ranking labels"));
    const page = await this.source.audit(this.offset, PAGE), rows = page.rows.slice(0, Math.max(0, page.likely_wrong - this.offset));
    return { total: page.likely_wrong, rows };
  }

  draw({ total, rows }) {
    Object.assign(this, { total, rows, loading: false });
    replace(this.list, rows.length ? rows.map((row) => h("li", {}, this.row(row))) : h("li", { class: "quiet" }, "No sample matches."));
    this.pages.draw(this.offset, rows.length, total);
    this.settle();
    this.drawPicks();
  }

  row(row) {
    const other = row.suggested !== undefined && row.suggested !== row.label ? [" → ", this.names[row.suggested]] : null;
    return h("button", { type: "button", "data-index": row.index, onclick: () => { if (!this.picked.delete(row.index)) this.picked.add(row.index); this.drawPicks(); } },
      sampleView(row.sample, `Training sample ${row.index}, labelled ${this.names[row.label]}`),
      h("span", { class: "label" }, this.names[row.label], other), h("span", { class: "quiet" }, `#${row.index}`), h("span", { class: "mark" }));
  }

  drawPicks() {
    for (const button of this.list.querySelectorAll("button")) {
      const index = +button.dataset.index;
      button.setAttribute("aria-pressed", this.picked.has(index) ? "true" : "false");
      button.querySelector(".mark").textContent = markWords(this.changes.of(index), this.names);
    }
    const all = this.label.value !== "" || this.search.value.trim() !== "" || this.slice.value !== "" || this.suspects.checked;
    replace(this.which, h("option", { value: "all", disabled: !all, selected: !this.picked.size }, all ? `all ${count(this.total)}` : "all (choose a label, a search or a slice first)"),
      h("option", { value: "picked", disabled: !this.picked.size, selected: this.picked.size > 0 }, `the ${count(this.picked.size)} picked`));
    this.adding.disabled = this.loading || (!this.picked.size && !(all && this.total));
  }

  async add() {
    const { value } = this.to, action = value === "remove" || value === "keep" ? value : "relabel", label = action !== "relabel" ? null : value === "suggested" ? value : +value;
    const group = this.suspects.checked ? { by: "wrong labels" } : { by: "samples", label: this.label.value === "" ? null : +this.label.value, search: this.search.value.trim(), ...(this.slice.value ? { slice: this.slice.value } : {}) };
    const picked = this.which.value === "picked" && label !== "suggested";
    replace(this.wrong);
    try {
      await this.changes.add({ action, label, why: this.why.value.trim(), ...(picked ? { samples: [...this.picked] } : { group }) });
      this.picked.clear();
      this.why.value = "";
      this.drawPicks();
    } catch (error) { fail(this.wrong, error); }
  }

  drawEntries() {
    const { changes, names } = this, act = (work) => work.catch((error) => fail(this.wrong, error));
    const one = (entry) => h("li", {}, h("div", {}, h("b", {}, entryWords(entry, names)), entry.why ? h("span", {}, ` ${entry.why}`) : null,
      h("span", { class: "quiet" }, [entry.who, entry.when && new Date(entry.when).toLocaleString([], { dateStyle: "medium", timeStyle: "short" })].filter(Boolean).join(", "))),
    h("button", { type: "button", "aria-label": `Take back: ${entryWords(entry, names)}`, onclick: () => act(changes.forget(entry.id)) }, "×"));
    const who = h("input", { id: "who", value: changes.who, maxlength: 100, autocomplete: "name", onchange: (event) => { changes.who = event.target.value.trim(); } });
    replace(this.entries, changes.entries.length ? [
      h("p", {}, h("b", {}, countWords(changes) || "nothing changed"), h("span", { class: "quiet" }, changes.saved ? ` · saved in ${changes.saved.split(/[\\/]/).at(-1)}` : " · kept until the server ends")),
      h("ol", { reversed: true }, changes.entries.toReversed().slice(0, PAGE).map(one), changes.entries.length > PAGE ? h("li", { class: "quiet" }, `… and ${count(changes.entries.length - PAGE)} earlier ones`) : null),
      h("p", { class: "tools" }, h("button", { type: "button", id: "undo-last", onclick: () => act(changes.undo()) }, "undo"), h("button", { type: "button", id: "clear-all", onclick: () => act(changes.clear()) }, "clear"),
        h("button", { type: "button", id: "export", class: "primary", onclick: () => act(this.source.exported().then((blob) => saveFile(blob, "corrected.zip"))) }, "export the corrected set")),
      h("label", { class: "quiet" }, "your name ", who)]
      : h("p", { class: "quiet" }, "Nothing is marked yet. Mark samples here, in Predictions, in Labels to check or on the map. The list is saved with who, when and why."));
  }

  // What effects predict for all tests, at once; how to get them where they are not fitted.
  async predict() {
    const { first, changes, source } = this;
    if (!changes.size) return replace(first, h("p", { class: "quiet" }, "Mark samples as removed or relabelled first."));
    const button = h("p", { class: "tools" }, h("button", { type: "button", id: "solve-all", class: "primary", onclick: () => this.solve() }, "re-solve for all tests"));
    try {
      const found = await source.firstOrder();
      const known = this.info.accuracy !== null, words = found.ready
        ? [h("b", {}, found.changed_tests ? `About ${count(found.changed_tests)} of ${count(found.n_tests)} tests change class${known ? `: ${count(found.fixed)} become right, ${count(found.broken)} wrong` : ""}.` : "About no test changes class."), " Predicted to first order by effects; it is least exact for many samples at once."]
        : ["Effects predict the answer at once. ", h("button", { type: "button", id: "fit-effects", onclick: () => this.withEffects() }, "fit effects"), " Or re-solve, which is exact."];
      return replace(first, h("p", {}, ...words), button);
    } catch (error) { return fail(first, error); }
  }

  async solve() {
    const report = progress(this.answer, "Solving"), mark = this.answer.firstElementChild;
    try {
      const found = await this.source.whatChanges({ saved: true }, report);
      if (!this.answer.contains(mark)) return; // other changes came in between
      replace(this.answer, this.outcome(found));
      this.answer.querySelector("h3").focus();
      this.answer.scrollIntoView({ block: "nearest" });
    } catch (error) { fail(this.answer, error); }
  }

  outcome(found) {
    const done = [found.n_removed ? `${count(found.n_removed)} removed` : "", found.n_relabelled ? `${count(found.n_relabelled)} relabelled` : ""].filter(Boolean).join(", ");
    const known = found.before.accuracy !== null; // the labels of the tests
    const line = (title, value) => h("tr", {}, h("th", { scope: "row" }, title), h("td", {}, value(found.before)), h("td", {}, value(found.after)));
    return h("section", { class: "outcome" }, h("h3", { tabindex: -1 }, found.changed_tests ? `${count(found.changed_tests)} of ${count(found.n_tests)} tests change` : `None of the ${count(found.n_tests)} tests changes`),
      h("p", {}, `With ${done}${known ? `: now right ${count(found.fixed)}, now wrong ${count(found.broken)}, still wrong ${count(found.changed_tests - found.fixed - found.broken)}` : ""}. Solved exactly in ${found.seconds.toFixed(2)} s.`),
      h("div", { class: "wide" }, h("table", {}, h("thead", {}, h("tr", {}, ["the surrogate", "before", "after"].map((words) => h("th", { scope: "col" }, words)))),
        h("tbody", {}, known ? line("tests right", (one) => percent(one.accuracy)) : null, line("support vectors", (one) => count(one.n_support)), line("duality gap", (one) => short(one.gap))))),
      found.changed.length ? this.changed(found) : null);
  }

  changed(found) {
    const effects = found.changed[0].effect !== null;
    return [h("p", { class: "quiet" }, "The logit of the former class, before and after; ",
      h("b", {}, "τ"), ", the part of it from the changed training samples; ", h("b", {}, "effect"), ", its change as predicted by effects",
      effects ? "." : ", once they are fitted.",
      found.changed.length < found.changed_tests ? ` The first ${count(found.changed.length)} are listed.` : ""),
    this.tests(found.changed, effects)];
  }

  // The tests that change; the first are shown, the others on request.
  tests(changed, effects) {
    const list = h("ol", { class: "changed" }, changed.slice(0, PAGE).map((one) => this.test(one, effects)));
    const rest = () => { list.append(...changed.slice(PAGE).map((one) => this.test(one, effects))); more.remove(); list.children[PAGE].querySelector("a").focus(); };
    const more = h("p", { class: "pager" }, h("button", { type: "button", onclick: rest }, `show all ${count(changed.length)}`));
    return h("div", {}, list, changed.length > PAGE ? more : null);
  }

  test(one, effects) {
    const address = addressOf(this.info, { test: one.row.index });
    return h("li", {}, h("a", { href: address, tabindex: -1 }, sampleView(one.row.sample, `Test sample ${one.row.index}`)),
      h("div", {}, h("p", { class: "turn" }, this.names[one.class_before], " → ", h("b", {}, this.names[one.class_after])),
        h("p", { class: "quiet" }, h("a", { href: address }, `#${one.row.index}`), ", ",
          one.class_after === one.row.truth ? "now right" : one.class_before === one.row.truth ? "now wrong" : ["is ", new Name(one.row.verdict.truth ?? "unknown")]),
        h("dl", { class: "figures" }, this.figure("logit", `${signed(one.logits[0])} → ${signed(one.logits[1])}`), this.figure("τ", signed(one.tau)), effects ? this.figure("effect", signed(one.effect)) : null)));
  }

  figure(name, value) {
    return h("div", {}, h("dt", {}, name), h("dd", {}, value));
  }

  async withEffects() {
    const report = progress(this.first, "Fitting effects");
    try {
      await this.fitEffects(report);
      await this.predict();
    } catch (error) { fail(this.first, error); }
  }
}
