// The audit queue with its marks, and the classes.

import { h, percent, replace, signed } from "./dom.js";
import { sampleView } from "./maps.js";

const PAGE = 24;
const decisions = new Map(); // index → { label, decision, relabel }

function csv() {
  const lines = ["index,label,decision,new_label"];
  for (const [index, one] of [...decisions].sort((a, b) => a[0] - b[0]))
    lines.push([index, quoted(one.label), one.decision, quoted(one.relabel ?? "")].join(","));
  return lines.join("\r\n") + "\r\n";
}

function quoted(text) {
  // A spreadsheet would run what begins with these.
  const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : String(text);
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

function save() {
  const link = h("a", { href: URL.createObjectURL(new Blob([csv()], { type: "text/csv" })), download: "labels.csv" });
  link.click();
  URL.revokeObjectURL(link.href);
}

export function auditView(box, source, names, offset = 0) {
  const list = h("ol", { class: "queue" });
  const count = h("p", { class: "quiet", role: "status" });
  const tell = () => { count.textContent = decisions.size ? `${decisions.size} marked` : "nothing marked yet"; button.disabled = !decisions.size; };
  const button = h("button", { type: "button", id: "export", class: "primary", onclick: save }, "export marks as CSV");
  const range = h("span", {});
  const move = (step) => auditView(box, source, names, Math.max(0, offset + step * PAGE));
  const earlier = h("button", { type: "button", onclick: () => move(-1) }, "earlier"), later = h("button", { type: "button", onclick: () => move(1) }, "later");
  replace(box, h("h2", {}, "Labels that may be wrong"),
    h("p", {}, "Training samples in the order in which their labels deserve a look. Mark each: keep, flag, or another class."),
    h("p", {}, button, " ", count), list, h("p", { class: "pager" }, earlier, " ", range, " ", later));
  const mark = (row, decision, relabel = null) => {
    decisions.set(row.index, { label: names[row.label], decision, relabel });
    tell();
    draw(row);
  };
  const draw = (row) => {
    const one = decisions.get(row.index);
    const press = (decision) => h("button", { type: "button", "aria-pressed": one?.decision === decision ? "true" : "false", onclick: () => mark(row, decision) }, decision);
    const others = row.neighbour_labels.filter((label) => label !== row.label).length;
    const item = h("li", { "data-index": row.index, class: one ? "marked" : "" },
      sampleView(row.sample, `Training sample ${row.index}, labelled ${names[row.label]}`),
      h("div", {}, h("p", {}, h("b", {}, names[row.label]), " → ", h("b", {}, names[row.suggested]), h("span", { class: "quiet" }, ` #${row.index}, score ${signed(row.score)}`)),
        h("p", { class: "quiet" }, `${others} of its ${row.neighbour_labels.length} nearest neighbours disagree: `,
          row.neighbour_labels.map((label, i) => `${names[label]} (#${row.neighbours[i]})`).join(", ")),
        h("p", { class: "tools" }, press("keep"), press("flag"),
          h("select", { "aria-label": `Relabel training sample ${row.index}`, onchange: (event) => event.target.value !== "" && mark(row, "relabel", names[+event.target.value]) },
            h("option", { value: "" }, "relabel …"), names.map((name, c) => c === row.label ? null : h("option", { value: c, selected: one?.relabel === name }, name))))));
    const old = list.querySelector(`[data-index="${row.index}"]`);
    if (old) old.replaceWith(item); else list.append(item);
  };
  tell();
  source.audit(offset, PAGE).then((found) => {
    found.rows.forEach(draw);
    range.textContent = found.total ? `${offset + 1}–${Math.min(offset + PAGE, found.total)} of ${found.total.toLocaleString("en")}, ranked by ${found.ranking}` : "none";
    earlier.disabled = offset === 0;
    later.disabled = offset + PAGE >= found.total;
  }).catch((error) => replace(list, h("li", { class: "error", role: "alert" }, error.message)));
}

export function classView(box, source, names) {
  replace(box, h("h2", {}, "Classes"), h("p", { class: "busy", role: "status" }, "Counting …"));
  source.classes().then((classes) => replace(box, h("h2", {}, "Classes"),
    h("p", {}, "The training samples that carry each class: its support vectors, those at the bound λ = C, and the strongest."),
    classes.map((one) => h("section", { class: "class" }, h("h3", {}, one.name),
      h("p", { class: "quiet" }, `${one.n_support.toLocaleString("en")} of ${one.n_train.toLocaleString("en")} samples are support vectors, `
        + `${percent(one.bounded)} of these at the bound`),
      h("div", { class: "strip" }, one.samples.map((sample, i) => sampleView(sample, `Training sample ${one.top[i]}, a strong proponent of ${one.name}`)))))))
    .catch((error) => replace(box, h("p", { class: "error", role: "alert" }, error.message)));
}
