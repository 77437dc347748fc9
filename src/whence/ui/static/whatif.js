// What if some training samples were gone or had other labels: marks, the question, the answer.

import { fail, h, replace } from "./dom.js";
import { whatIfAnswer } from "./panels.js";

export class WhatIf {
  constructor(source, names, onMark) {
    Object.assign(this, { source, names, onMark, marks: new Map(), why: null, shown: null });
    this.answer = h("div", { role: "status" });
    this.tools = h("div", { class: "tools" });
    this.basket = h("section", { class: "basket", "aria-label": "What if" });
  }

  of(index) {
    return this.marks.get(index);
  }

  mark(index, value) {
    if (value === undefined) this.marks.delete(index); else this.marks.set(index, value);
    replace(this.answer);
    this.onMark(index, value);
    this.draw();
    if (this.shown?.index === index) this.drawTools(this.shown);
  }

  // The tools of the pair that is shown.
  drawTools(pair) {
    this.shown = pair;
    const mark = this.of(pair.index), at = [...this.tools.children].indexOf(document.activeElement);
    const remove = h("button", { type: "button", "aria-pressed": mark === "remove" ? "true" : "false",
      onclick: () => this.mark(pair.index, mark === "remove" ? undefined : "remove") }, "removed");
    const relabel = h("select", { "aria-label": `Another label for training sample ${pair.index}`,
      onchange: (event) => this.mark(pair.index, event.target.value === "" ? undefined : +event.target.value) },
      h("option", { value: "" }, "labelled …"),
      this.names.map((name, c) => c === pair.label ? null : h("option", { value: c, title: name.whole, selected: mark === c }, `labelled ${name}`)));
    replace(this.tools, h("span", {}, `What if #${pair.index} were`), remove, relabel);
    this.tools.children[at]?.focus();
  }

  // The samples that are marked, for the test that is shown.
  draw(why = this.why) {
    if (why !== this.why) replace(this.answer);
    this.why = why;
    const told = [...this.marks].map(([index, value]) => h("li", {}, value === "remove" ? `without #${index} ` : `#${index} as ${this.names[value]} `,
      h("button", { type: "button", "aria-label": `Forget #${index}`, onclick: () => this.mark(index, undefined) }, "×")));
    replace(this.basket, h("h3", {}, "What if"), told.length ? h("ul", {}, told)
      : h("p", { class: "quiet" }, "Mark training samples as removed or relabelled; then see what the surrogate, solved anew, predicts."),
      told.length ? h("p", {}, h("button", { type: "button", class: "primary", id: "solve", onclick: () => this.solve() }, "solve"), " ",
        h("button", { type: "button", onclick: () => this.clear() }, "clear")) : null, this.answer);
  }

  clear() {
    for (const index of [...this.marks.keys()]) this.mark(index, undefined);
  }

  async solve() {
    const { why, answer, names } = this, relabel = {}, remove = [];
    for (const [index, value] of this.marks) if (value === "remove") remove.push(index); else relabel[index] = value;
    const progress = h("p", { class: "busy" }, "Solving …");
    replace(answer, progress);
    try {
      const found = await this.source.whatIf({ test: why.test, target: why.target, remove, relabel },
        ({ seconds }) => { progress.textContent = `Solving … ${seconds.toFixed(1)} s`; });
      if (why !== this.why || !answer.contains(progress)) return; // another test or other marks came in between
      replace(answer, whatIfAnswer(found, names));
    } catch (error) { fail(answer, error); }
  }
}
