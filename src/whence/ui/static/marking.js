// Tools that mark training samples, and the tray: the change list at the foot of every view, with its answer for a prediction.

import { addressOf } from "./address.js";
import { count, fail, h, progress, replace, some } from "./dom.js";
import { whatIfAnswer } from "./panels.js";

// Buttons that mark one training sample: its label is right, another label, removed.
export function markTools(box, changes, names, { index, label }) {
  const mark = changes.of(index), at = [...box.children].indexOf(document.activeElement);
  const act = (work) => work.catch((error) => { box.append(h("span", { class: "error", role: "alert" }, error.message)); });
  const press = (id, action, words) => h("button", { type: "button", id, "aria-pressed": mark?.action === action ? "true" : "false", onclick: () => act(changes.toggle(index, action)) }, words);
  replace(box, h("span", {}, `Training sample ${index}:`), press("keep", "keep", "label is right"), press("remove", "remove", "remove"),
    h("select", { id: "relabel", "aria-label": `Another label for training sample ${index}`, onchange: ({ target: { value } }) => act(value === "" ? changes.add({ action: "clear", samples: [index] }) : changes.add({ action: "relabel", label: +value, samples: [index] })) },
      h("option", { value: "" }, "relabel as …"),
      names.map((name, c) => c === label ? null : h("option", { value: c, title: name.whole, selected: mark?.label === c }, `relabel as ${name}`))));
  box.children[at]?.focus();
}

// A line of the change list in words.
export function entryWords({ action, label, n, samples }, names) {
  const which = n === 1 ? `sample ${samples}` : some(n, "sample");
  return { keep: `${which}: label is right`, flag: `${which} flagged`, remove: `${which} removed`, clear: `${which}: mark taken back`, relabel: `${which} → ${names[label] ?? "suggested labels"}` }[action];
}

// What the list amounts to, such as "2 removed, 14 relabelled".
export function countWords(changes) {
  return [["remove", "removed"], ["relabel", "relabelled"], ["keep", "confirmed"], ["flag", "flagged"]]
    .map(([action, words]) => [changes.count(action), words]).filter(([n]) => n).map(([n, words]) => `${count(n)} ${words}`).join(", ");
}

export class Tray {
  constructor(box, source, info, names, changes) {
    Object.assign(this, { box, source, info, names, changes, why: null, tab: "" });
    this.bar = h("div", { class: "tray-bar" });
    this.answer = h("div", { class: "tray-answer", role: "status" });
    replace(box, this.answer, this.bar);
    changes.listen(() => this.draw());
  }

  // The view and the explanation that the page shows.
  follow(tab, why) {
    if (why !== this.why) replace(this.answer);
    Object.assign(this, { tab, why });
    this.draw(false);
  }

  draw(changed = true) {
    const { changes, box } = this, shown = changes.entries.length > 0 && this.tab !== "whatif", asks = changes.size > 0 && this.tab === "explore" && this.why && this.why.test !== null;
    if (changed) replace(this.answer);
    box.hidden = !shown;
    document.documentElement.classList.toggle("with-tray", shown);
    replace(this.bar, h("span", {}, h("b", {}, "Change list: "), countWords(changes) || "nothing"),
      h("span", { class: "tools" },
        h("button", { type: "button", id: "undo", onclick: () => this.act(changes.undo()) }, "undo"),
        asks ? h("button", { type: "button", id: "solve", class: "primary", onclick: () => this.solve() }, "what would change here?") : null,
        h("a", { class: "button", href: addressOf(this.info, { tab: "whatif" }) }, "all tests and export")));
  }

  act(work) {
    return work.catch((error) => fail(this.answer, error));
  }

  async solve() {
    const { why, answer, names } = this, report = progress(answer, "Solving without them"), mark = answer.firstElementChild;
    try {
      const found = await this.source.whatIf({ test: why.test, target: why.target, saved: true }, report);
      if (why !== this.why || !answer.contains(mark)) return; // another test or other marks came in between
      replace(answer, h("button", { type: "button", class: "close", "aria-label": "Close the answer", onclick: () => replace(answer) }, "×"), whatIfAnswer(found, names));
    } catch (error) { fail(answer, error); }
  }
}
