// What if training samples were removed or relabelled: marks and groups, the question, the answer for one test.

import { PAGE, count, fail, h, progress, replace, some } from "./dom.js";
import { askedWords } from "./asked.js";
import { whatIfAnswer } from "./panels.js";

// A group in words.
function groupWords(group, names) {
  const which = group.by === "wrong labels" ? "wrong labels found" : [group.label === null ? "" : `all of ${names[group.label]}`, group.search ? `“${group.search}”` : ""].filter(Boolean).join(", ");
  return `${which}${group.n === null ? "" : ` (${count(group.n)})`} ${group.to === null ? "removed" : group.to === "suggested" ? "labelled as suggested" : `labelled ${names[group.to]}`}`;
}

// Marks and groups as a request.
function questionOf({ marks, groups }) {
  const relabel = {}, remove = [];
  for (const [index, value] of marks) if (value === "remove") remove.push(index); else relabel[index] = value;
  return { remove, relabel, groups: groups.map(({ n, ...group }) => group) };
}

export class WhatIf {
  constructor(source, names, onMark, onChange) {
    Object.assign(this, { source, names, onMark, onChange, marks: new Map(), groups: [], why: null, shown: null, views: [] });
    this.answer = h("div", { role: "status" });
    this.tools = h("div", { class: "tools" });
    this.basket = h("section", { class: "basket", "aria-label": "What if" });
  }

  get size() {
    return this.marks.size + this.groups.length;
  }

  of(index) {
    return this.marks.get(index);
  }

  // The question in words of the address; null if it is too long.
  get words() {
    return askedWords(this.question());
  }

  mark(index, value) {
    this.markAll([[index, value]]);
  }

  markAll(entries) {
    this.put(entries);
    this.changed();
  }

  put(entries) {
    for (const [index, value] of entries) {
      if (value === undefined) this.marks.delete(index); else this.marks.set(index, value);
      this.onMark(index, value);
    }
    if (this.shown) this.drawTools(this.shown);
  }

  // Take the question of the address; return whether it is a new one.
  take(asked) {
    if (JSON.stringify(askedWords(questionOf(asked))) === JSON.stringify(this.words)) return false;
    this.groups = asked.groups;
    this.put([...[...this.marks.keys()].map((index) => [index, undefined]), ...asked.marks]);
    this.redraw();
    return true;
  }

  add(group) {
    this.groups.push(group);
    this.changed();
  }

  changed() {
    this.redraw();
    this.onChange();
  }

  redraw() {
    replace(this.answer);
    this.draw();
    for (const view of this.views) view();
  }

  clear() {
    this.groups = [];
    this.markAll([...this.marks.keys()].map((index) => [index, undefined]));
  }

  question() {
    return questionOf(this);
  }

  // The changes in words, each with a button that removes it.
  list() {
    const one = (words, forget) => h("li", {}, words, " ", h("button", { type: "button", "aria-label": `Remove ${words}`, onclick: forget }, "×"));
    const long = this.words === null ? h("p", { class: "quiet long" }, "This question is too long for the address: a reload or a shared link loses it. Whole classes, searches such as 40-60 and the audit’s findings are short.") : null;
    return [h("ul", {},
      this.groups.map((group) => one(groupWords(group, this.names), () => { this.groups.splice(this.groups.indexOf(group), 1); this.changed(); })),
      [...this.marks].slice(0, PAGE).map(([index, value]) => one(value === "remove" ? `without #${index}` : `#${index} as ${this.names[value]}`, () => this.mark(index, undefined))),
      this.marks.size > PAGE ? h("li", { class: "quiet" }, `… and ${some(this.marks.size - PAGE, "sample")} more`) : null), long];
  }

  // The tools of the shown pair.
  drawTools(pair) {
    this.shown = pair;
    const mark = this.of(pair.index), at = [...this.tools.children].indexOf(document.activeElement);
    const remove = h("button", { type: "button", id: "remove", "aria-pressed": mark === "remove" ? "true" : "false",
      onclick: () => this.mark(pair.index, mark === "remove" ? undefined : "remove") }, "removed");
    const relabel = h("select", { id: "relabel", "aria-label": `Another label for training sample ${pair.index}`,
      onchange: (event) => this.mark(pair.index, event.target.value === "" ? undefined : +event.target.value) },
      h("option", { value: "" }, "labelled …"),
      this.names.map((name, c) => c === pair.label ? null : h("option", { value: c, title: name.whole, selected: mark === c }, `labelled ${name}`)));
    replace(this.tools, h("span", {}, `What if #${pair.index} were`), remove, relabel);
    this.tools.children[at]?.focus();
  }

  // The marked samples, for the shown test.
  draw(why = this.why) {
    if (why !== this.why) replace(this.answer);
    this.why = why;
    replace(this.basket, h("h3", {}, "What if"), this.size ? this.list()
      : h("p", { class: "quiet" }, "Mark training samples as removed or relabelled, and see what the re-solved surrogate predicts."),
      this.size ? h("p", {}, h("button", { type: "button", class: "primary", id: "solve", onclick: () => this.solve() }, "solve"), " ",
        h("button", { type: "button", onclick: () => this.clear() }, "clear")) : null,
      h("p", { class: "quiet" }, h("a", { href: "#tab=whatif" }, this.size ? "Which other tests change" : "Many samples at once")), this.answer);
  }

  async solve() {
    const { why, answer, names } = this, report = progress(answer, "Solving"), mark = answer.firstElementChild;
    try {
      const found = await this.source.whatIf({ test: why.test, target: why.target, ...this.question() }, report);
      if (why !== this.why || !answer.contains(mark)) return; // another test or other marks came in between
      replace(answer, whatIfAnswer(found, names));
    } catch (error) { fail(answer, error); }
  }
}
