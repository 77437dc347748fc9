// The audit queue with its marks.

import { PAGE, count, fail, h, pager, progress, replace, roving, short } from "./dom.js";
import { sampleView } from "./maps.js";

const decisions = new Map(); // index → { label, decision, relabel }

// Marks outlive a reload, not the tab.
function recall(key) {
  try { for (const [index, one] of JSON.parse(sessionStorage.getItem(key) ?? "[]")) decisions.set(index, one); } catch { decisions.clear(); }
}

function keep(key) {
  try { sessionStorage.setItem(key, JSON.stringify([...decisions])); } catch { /* a page without storage still exports */ }
}

function csv() {
  const lines = ["index,label,decision,new_label"];
  for (const [index, one] of [...decisions].sort((a, b) => a[0] - b[0]))
    lines.push([index, quoted(one.label), one.decision, quoted(one.relabel ?? "")].join(","));
  return lines.join("\r\n") + "\r\n";
}

function quoted(text) {
  // A spreadsheet would run what begins with these.
  const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

function save() {
  const link = h("a", { href: URL.createObjectURL(new Blob([csv()], { type: "text/csv" })), download: "labels.csv" });
  link.click();
  URL.revokeObjectURL(link.href);
}

function suspect(row, names, looked, measure, mark) {
  const one = decisions.get(row.index), other = row.suggested !== row.label;
  const press = (decision, words, relabel = null) => h("button", { type: "button", tabindex: -1, "data-decision": decision, onclick: () => mark(row, decision, relabel),
    "aria-pressed": one?.decision === decision && one.relabel === relabel ? "true" : "false" }, words);
  return h("li", { "data-index": row.index, class: one ? "marked" : null, tabindex: -1, "aria-label": `Training sample ${row.index}, labelled ${names[row.label]}${one ? `, marked: ${one.decision}` : ""}` },
    h("div", { class: "suspect" }, sampleView(row.sample, `Training sample ${row.index}, labelled ${names[row.label]}`),
      h("div", {}, h("p", {}, "labelled ", h("b", {}, names[row.label]), other ? [", suggested ", h("b", {}, names[row.suggested])] : null),
        h("p", { class: "quiet" }, `#${row.index}, ${measure} ${short(row.score)}`),
        h("p", { class: "quiet" }, `${row.disagreeing} of the ${looked} nearest have another label`))),
    h("ul", { class: "neighbours", "aria-label": "Nearest with another label" }, row.neighbours.map((index, i) => h("li", {},
      sampleView(row.neighbour_samples[i], `Training sample ${index}, labelled ${names[row.neighbour_labels[i]]}`), h("span", {}, names[row.neighbour_labels[i]])))),
    h("p", { class: "tools" }, press("keep", "keep"), press("flag", "flag"), press("remove", "remove"), other ? press("relabel", `is ${names[row.suggested]}`, names[row.suggested].whole) : null,
      h("select", { tabindex: -1, "aria-label": `Another label for training sample ${row.index}`, onchange: (event) => event.target.value !== "" && mark(row, "relabel", names[+event.target.value].whole) },
        h("option", { value: "" }, "is another …"),
        names.map((name, c) => c === row.label || c === row.suggested ? null : h("option", { value: c, title: name.whole, selected: one?.relabel === name.whole }, `${name}`)))));
}

export class AuditView {
  // ``go(offset)`` shows another page; ``ask(marks)`` shows what the marks would change, null if unsupported.
  constructor(box, source, info, names, go, ask) {
    Object.assign(this, { box, source, names, ask, offset: null, looked: 0, rows: [], key: `whence ${info.title} ${info.n_train}` });
    recall(this.key);
    this.list = h("ol", { class: "queue" });
    this.marked = h("span", { class: "quiet", role: "status" });
    this.buttons = [h("button", { type: "button", id: "export", class: "primary", onclick: save }, "export marks as CSV"),
      h("button", { type: "button", onclick: () => { decisions.clear(); this.settle(); this.draw(); } }, "clear marks"),
      ask ? h("button", { type: "button", id: "ask-marks", onclick: () => ask(this.marks()) }, "what if with these marks") : null].filter(Boolean);
    this.pages = pager((step) => go(Math.max(0, this.offset + step * PAGE)));
    this.move = roving(this.list, "[data-index]");
    this.list.addEventListener("focusin", (event) => this.enter(event.target.closest("[data-index]")));
    replace(box, h("h2", {}, "Labels that may be wrong"),
      h("p", {}, "Training samples, those with the most suspicious labels first. Mark them and export the list.",
        h("span", { class: "by-keys" }, " Keys: arrows go to the next sample, ", h("kbd", {}, "y"), " keeps, ", h("kbd", {}, "f"), " flags, ", h("kbd", {}, "x"), " removes, ", h("kbd", {}, "r"), " takes the suggested label.")),
      h("p", { class: "pager" }, this.buttons.map((button) => [button, " "]).flat(), this.marked), this.list, this.pages.box);
    this.settle();
  }

  // Marks as a what-if question: removed and flagged samples are removed.
  marks() {
    const number = new Map(this.names.map((name, c) => [name.whole, c])), marks = new Map();
    for (const [index, { decision, relabel }] of decisions)
      if (decision === "relabel") marks.set(index, number.get(relabel)); else if (decision !== "keep") marks.set(index, "remove");
    return marks;
  }

  settle() {
    keep(this.key);
    this.marked.textContent = decisions.size ? `${decisions.size} marked` : "nothing marked yet";
    for (const button of this.buttons) button.disabled = !decisions.size;
  }

  // Only the buttons of the focused item are in the tab order.
  enter(item) {
    if (item) for (const one of this.list.querySelectorAll("[data-index] button, [data-index] select")) one.tabIndex = item.contains(one) ? 0 : -1;
  }

  mark(row, decision, relabel) {
    const old = decisions.get(row.index);
    if (old?.decision === decision && old.relabel === relabel) decisions.delete(row.index);
    else decisions.set(row.index, { label: this.names[row.label].whole, decision, relabel });
    this.settle();
    const item = this.item(row.index), at = [item, ...item.querySelectorAll("button, select")].indexOf(document.activeElement);
    const fresh = this.suspect(row);
    item.replaceWith(fresh);
    fresh.tabIndex = item.tabIndex;
    [fresh, ...fresh.querySelectorAll("button, select")][at]?.focus();
  }

  item(index) {
    return this.list.querySelector(`[data-index="${index}"]`);
  }

  suspect(row) {
    return suspect(row, this.names, this.looked, this.measure, (...all) => this.mark(...all));
  }

  // The keys' actions: mark the focused sample, or the first, and move to the next.
  keys() {
    const item = this.list.querySelector("[data-index]:focus-within") ?? this.list.querySelector("[data-index]");
    const row = this.rows.find(({ index }) => index === +item?.dataset.index);
    if (!row) return {};
    const act = (decision, relabel = null) => () => {
      this.mark(row, decision, relabel);
      (this.item(row.index).nextElementSibling ?? this.item(row.index)).focus();
    };
    const other = row.suggested === row.label ? {} : { r: act("relabel", this.names[row.suggested].whole) };
    return { y: act("keep"), f: act("flag"), x: act("remove"), ...other, ArrowRight: () => item.focus(), ArrowDown: () => item.focus() };
  }

  async show(offset) {
    if (offset === this.offset) return;
    const step = this.offset !== null;
    this.offset = offset;
    try {
      await this.source.rank(progress(this.list, "Ranking labels: the surrogate is solved five times, each time without a fifth of the samples"));
      const found = await this.source.audit(offset, PAGE);
      if (offset !== this.offset) return;
      Object.assign(this, { looked: found.n_neighbours, rows: found.rows, measure: found.ranking === "log-odds" ? found.ranking : "score" });
      this.draw();
      this.pages.draw(offset, found.rows.length, found.total, `, ranked by ${found.ranking}; ${found.likely_wrong ? `${count(found.likely_wrong)} are` : "none is"} more likely wrong than right`);
      if (step) this.box.scrollIntoView();
    } catch (error) { this.offset = null; fail(this.list, error); }
  }

  draw() {
    replace(this.list, this.rows.map((row) => this.suspect(row)));
    this.move();
  }
}
