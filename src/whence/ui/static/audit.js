// The audit queue: training samples whose labels may be wrong, marked one by one or all above a score.

import { addressOf } from "./address.js";
import { PAGE, count, fail, h, pager, progress, replace, roving, short } from "./dom.js";
import { markWords } from "./changelist.js";
import { sampleView } from "./maps.js";

// The marks of a report as a table; ``rows`` are its samples.
function csv(changes, rows, names) {
  const lines = ["index,label,decision,new_label"], labels = new Map(rows.map(({ index, label }) => [index, names[label].whole]));
  for (const [index, { action, label }] of [...changes.marks].sort((a, b) => a[0] - b[0]))
    lines.push([index, quoted(labels.get(index) ?? ""), action, quoted(label === null ? "" : names[label].whole)].join(","));
  return lines.join("\r\n") + "\r\n";
}

function quoted(text) {
  // A spreadsheet would run what begins with these.
  const safe = /^[\s\uFEFF]*[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

// Save a file that the page made or was sent.
export function saveFile(blob, name) {
  const link = h("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  URL.revokeObjectURL(link.href);
}

function suspect(row, names, looked, measure, mark, press) {
  const other = row.suggested !== row.label;
  const button = (action, words, label = null) => h("button", { type: "button", tabindex: -1, "data-decision": action, onclick: () => press(row, action, label),
    "aria-pressed": mark?.action === action && mark.label === label ? "true" : "false" }, words);
  return h("li", { "data-index": row.index, class: mark ? "marked" : null, tabindex: -1, "aria-label": `Training sample ${row.index}, labelled ${names[row.label]}${mark ? `, marked: ${markWords(mark, names)}` : ""}` },
    h("div", { class: "suspect" }, sampleView(row.sample, `Training sample ${row.index}, labelled ${names[row.label]}`),
      h("div", {}, h("p", {}, "labelled ", h("b", {}, names[row.label]), other ? [", suggested ", h("b", {}, names[row.suggested])] : null),
        h("p", { class: "quiet" }, `#${row.index}, ${measure} ${short(row.score)}`),
        h("p", { class: "quiet" }, `${row.disagreeing} of the ${looked} nearest have another label`))),
    h("ul", { class: "neighbours", "aria-label": "Nearest with another label" }, row.neighbours.map((index, i) => h("li", {},
      sampleView(row.neighbour_samples[i], `Training sample ${index}, labelled ${names[row.neighbour_labels[i]]}`), h("span", {}, names[row.neighbour_labels[i]])))),
    h("p", { class: "tools" }, other ? button("relabel", `is ${names[row.suggested]}`, row.suggested) : null, button("keep", "is right"), button("remove", "remove"), button("flag", "flag"),
      h("select", { tabindex: -1, "aria-label": `Another label for training sample ${row.index}`, onchange: ({ target: { value } }) => value !== "" && press(row, "relabel", +value) },
        h("option", { value: "" }, "is another …"),
        names.map((name, c) => c === row.label || c === row.suggested ? null : h("option", { value: c, title: name.whole, selected: mark?.label === c }, `${name}`)))));
}

export class AuditView {
  // ``go(offset)`` shows another page.
  constructor(box, source, info, names, changes, go) {
    Object.assign(this, { box, source, names, changes, offset: null, looked: 0, rows: [] });
    this.list = h("ol", { class: "queue" });
    this.marked = h("span", { class: "quiet", role: "status" });
    this.bulk = h("form", { class: "bulk tools", hidden: true, onsubmit: (event) => { event.preventDefault(); this.takeAll(); } });
    this.wrong = h("div", {});
    const all = () => source.audit(0, Infinity).then(({ rows }) => saveFile(new Blob([csv(changes, rows, names)], { type: "text/csv" }), "labels.csv"));
    this.saving = source.live ? h("a", { class: "button", href: addressOf(info, { tab: "whatif" }) }, "change list and export")
      : h("button", { type: "button", id: "export", class: "primary", onclick: all }, "export marks as CSV");
    this.pages = pager((step) => go(Math.max(0, this.offset + step * PAGE)));
    this.move = roving(this.list, "[data-index]");
    this.list.addEventListener("focusin", (event) => this.enter(event.target.closest("[data-index]")));
    replace(box, h("h2", {}, "Labels to check"),
      h("p", {}, "Training samples, those with the most suspicious labels first.",
        h("span", { class: "by-keys quiet" }, " Keys: arrows go to the next sample, ", h("kbd", {}, "r"), " takes the suggested label, ", h("kbd", {}, "y"), " confirms, ", h("kbd", {}, "x"), " removes, ", h("kbd", {}, "f"), " flags.")),
      this.bulk, this.wrong, h("p", { class: "pager" }, this.saving, " ", this.marked), this.list, this.pages.box);
    changes.listen(() => this.settle());
    this.settle();
  }

  // Redraw what the change list says of the listed samples.
  settle() {
    const { changes } = this, n = changes.marks.size;
    this.marked.textContent = n ? `${count(n)} marked` : "nothing marked yet";
    if (!this.source.live) this.saving.disabled = !n;
    for (const row of this.rows) {
      const item = this.item(row.index), mark = changes.of(row.index);
      if (!item || item.dataset.mark === markWords(mark, this.names)) continue;
      const at = [item, ...item.querySelectorAll("button, select")].indexOf(document.activeElement), fresh = this.suspect(row);
      item.replaceWith(fresh);
      fresh.tabIndex = item.tabIndex;
      if (at >= 0) this.enter(fresh);
      [fresh, ...fresh.querySelectorAll("button, select")][at]?.focus();
    }
  }

  // Take all suggested labels above a score, as one entry of the change list.
  drawBulk(found) {
    const { bulk, source, measure } = this;
    bulk.hidden = !source.live || !found.likely_wrong;
    if (bulk.hidden || bulk.children.length) return;
    this.least = Number(found.threshold.toPrecision(3)); // rounded, so that it may leave out the last of them
    this.above = h("input", { type: "number", id: "above", step: "any", value: this.least });
    replace(bulk, h("label", {}, `Take every suggested label with ${measure} above `, this.above), h("button", { type: "submit", id: "take-all", class: "primary" }, "mark them"),
      h("span", { class: "quiet" }, `${count(found.likely_wrong)} labels are more likely wrong than right.`));
  }

  async takeAll() {
    const above = Number(this.above.value);
    replace(this.wrong);
    try {
      await this.changes.add({ action: "relabel", label: "suggested", group: { by: "wrong labels", above: Number.isFinite(above) && above !== this.least ? above : null }, why: `suggested label, ${this.measure} above ${short(above)}` });
    } catch (error) { fail(this.wrong, error); }
  }

  // Only the buttons of the focused item are in the tab order.
  enter(item) {
    if (item) for (const one of this.list.querySelectorAll("[data-index] button, [data-index] select")) one.tabIndex = item.contains(one) ? 0 : -1;
  }

  press(row, action, label) {
    replace(this.wrong);
    return this.changes.toggle(row.index, action, label).catch((error) => fail(this.wrong, error));
  }

  item(index) {
    return this.list.querySelector(`[data-index="${index}"]`);
  }

  suspect(row) {
    const mark = this.changes.of(row.index), item = suspect(row, this.names, this.looked, this.measure, mark, (...all) => this.press(...all));
    item.dataset.mark = markWords(mark, this.names);
    return item;
  }

  // The keys' actions: mark the focused sample, or the first, and move to the next.
  keys() {
    const item = this.list.querySelector("[data-index]:focus-within") ?? this.list.querySelector("[data-index]");
    const row = this.rows.find(({ index }) => index === +item?.dataset.index);
    if (!row) return {};
    const act = (action, label = null) => async () => {
      await this.press(row, action, label);
      (this.item(row.index).nextElementSibling ?? this.item(row.index)).focus();
    };
    const other = row.suggested === row.label ? {} : { r: act("relabel", row.suggested) };
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
      this.drawBulk(found);
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
