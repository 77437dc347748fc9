// The audit queue with its marks, and the classes.

import { Name, count, fail, h, percent, replace, short } from "./dom.js";
import { sampleView } from "./maps.js";

const PAGE = 24;
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

function suspect(row, names, looked, mark) {
  const one = decisions.get(row.index), other = row.suggested !== row.label;
  const press = (decision, words, relabel = null) => h("button", { type: "button", onclick: () => mark(row, decision, relabel),
    "aria-pressed": one?.decision === decision && one.relabel === relabel ? "true" : "false" }, words);
  return h("li", { "data-index": row.index, class: one ? "marked" : null },
    h("div", { class: "suspect" }, sampleView(row.sample, `Training sample ${row.index}, labelled ${names[row.label]}`),
      h("div", {}, h("p", {}, "labelled ", h("b", {}, names[row.label]), other ? [", rather ", h("b", {}, names[row.suggested])] : null),
        h("p", { class: "quiet" }, `#${row.index}, score ${short(row.score)}`),
        h("p", { class: "quiet" }, `${row.disagreeing} of the ${looked} nearest have another label`))),
    h("ul", { class: "neighbours", "aria-label": "Nearest with another label" }, row.neighbours.map((index, i) => h("li", {},
      sampleView(row.neighbour_samples[i], `Training sample ${index}, labelled ${names[row.neighbour_labels[i]]}`), h("span", {}, names[row.neighbour_labels[i]])))),
    h("p", { class: "tools" }, press("keep", "keep"), press("flag", "flag"), other ? press("relabel", `is ${names[row.suggested]}`, names[row.suggested].whole) : null,
      h("select", { "aria-label": `Another label for training sample ${row.index}`, onchange: (event) => event.target.value !== "" && mark(row, "relabel", names[+event.target.value].whole) },
        h("option", { value: "" }, "is another …"),
        names.map((name, c) => c === row.label || c === row.suggested ? null : h("option", { value: c, title: name.whole, selected: one?.relabel === name.whole }, `${name}`)))));
}

export function auditView(box, source, info) {
  const names = info.classes.map((name) => new Name(name)), key = `whence ${info.title} ${info.n_train}`;
  let offset = 0, looked = 0;
  recall(key);
  const list = h("ol", { class: "queue" }), range = h("span", {}), marked = h("span", { class: "quiet", role: "status" });
  const button = h("button", { type: "button", id: "export", class: "primary", onclick: save }, "export marks as CSV");
  const clear = h("button", { type: "button", onclick: () => { decisions.clear(); settle(); load(); } }, "clear marks");
  const earlier = h("button", { type: "button", onclick: () => load(-1) }, "earlier"), later = h("button", { type: "button", onclick: () => load(1) }, "later");
  const settle = () => {
    keep(key);
    marked.textContent = decisions.size ? `${decisions.size} marked` : "nothing marked yet";
    button.disabled = clear.disabled = !decisions.size;
  };
  const mark = (row, decision, relabel) => {
    const old = decisions.get(row.index);
    if (old?.decision === decision && old.relabel === relabel) decisions.delete(row.index);
    else decisions.set(row.index, { label: names[row.label].whole, decision, relabel });
    settle();
    const item = list.querySelector(`[data-index="${row.index}"]`);
    const at = [...item.querySelectorAll("button, select")].indexOf(document.activeElement);
    const fresh = suspect(row, names, looked, mark);
    item.replaceWith(fresh);
    fresh.querySelectorAll("button, select")[at]?.focus();
  };
  const load = async (step = 0) => {
    offset = Math.max(0, offset + step * PAGE);
    try {
      const found = await source.audit(offset, PAGE);
      looked = found.looked_at;
      replace(list, found.rows.map((row) => suspect(row, names, looked, mark)));
      range.textContent = found.total ? `${offset + 1}–${offset + found.rows.length} of ${count(found.total)}, ranked by ${found.ranking}` : "none";
      earlier.disabled = offset === 0;
      later.disabled = offset + PAGE >= found.total;
      if (step) box.scrollIntoView();
    } catch (error) { fail(list, error); }
  };
  replace(box, h("h2", {}, "Labels that may be wrong"),
    h("p", {}, "Training samples in the order in which their labels deserve a look. Mark them and take the list with you."),
    h("p", { class: "pager" }, button, " ", clear, " ", marked), list, h("p", { class: "pager" }, earlier, " ", range, " ", later));
  settle();
  replace(list, h("li", { class: "busy", role: "status" }, "Ranking: the surrogate is solved without each part of the samples in turn …"));
  return load();
}

export async function classView(box, source) {
  replace(box, h("h2", {}, "Classes"), h("p", { class: "busy", role: "status" }, "Counting …"));
  try {
    const classes = await source.classes();
    replace(box, h("h2", {}, "Classes"),
      h("p", {}, "What carries each class: its support vectors, and how many of them are at the bound λ = C, where a sample pulls as hard as it may. Shown are the strongest."),
      h("div", { class: "classes" }, classes.map((one) => h("section", {}, h("h3", {}, new Name(one.name)),
        h("p", { class: "quiet" }, `${count(one.n_support)} of ${count(one.n_train)} samples are support vectors, ${percent(one.bounded)} of these at the bound`),
        h("div", { class: "thumbs" }, one.samples.map((sample, i) => sampleView(sample, `Training sample ${one.top[i]}, a strong proponent of ${new Name(one.name)}`)))))));
  } catch (error) { fail(box, error); }
}
