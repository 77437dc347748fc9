// The start page: what was loaded, and where to begin.

import { addressOf } from "./address.js";
import { Name, count, glossed, h, percent, progress, replace, short, some } from "./dom.js";
import { sampleView } from "./maps.js";

const FIRST = 8; // tests per shelf

function size(bytes) {
  const unit = ["bytes", "kB", "MB", "GB"], at = Math.min(3, Math.floor(Math.log10(Math.max(bytes, 1)) / 3));
  return `${Number((bytes / 1000 ** at).toPrecision(3))} ${unit[at]}`;
}

const classesOf = (info) => `${count(info.classes.length)}: ${info.classes.slice(0, 12).map((name) => new Name(name)).join(", ")}${info.classes.length > 12 ? ", …" : ""}`;

// The same of scores that another tool wrote.
function scoresLoaded(info) {
  const { tool, about, orientation, path } = info.scores;
  return [
    ["Scores", `${path}, written by ${tool}${about ? `, ${about}` : ""}; ${orientation === "test-train" ? "rows are tests" : "rows are training samples"}`],
    ["Training set", some(info.n_train, "sample")],
    ["Tests", `${some(info.n_tests, "sample")}, ${info.accuracy === null ? "predictions are not known" : `${percent(info.accuracy)} right`}`],
    ["Classes", classesOf(info)],
  ];
}

// What was loaded, as lines of a name and words.
function loaded(info) {
  const whole = info.label_kind === "number";
  return [
    ["Model", info.members > 1 ? `an ensemble of ${info.members}: ${info.model}, ${count(info.n_parameters)} parameters together; features of each are the inputs of its head, those of the first the ${count(info.n_features)} of ${info.head}`
      : `${info.model}, ${count(info.n_parameters)} parameters; features are the ${count(info.n_features)} inputs of ${info.head}${info.metric === "raw" ? "" : `, ${info.metric} for the surrogate`}`],
    ["Training set", `${info.data ? `${info.data}, ` : ""}${count(info.n_train)} samples`],
    ["Tests", `${info.test ? `${info.test}, ` : ""}${count(info.n_tests)} samples, ${info.accuracy === null ? "without labels" : whole ? `R² ${info.accuracy.toFixed(3)}` : `${percent(info.accuracy)} right`}`],
    [{ class: "Classes", label: "Labels", number: "Numbers" }[info.label_kind], classesOf(info)],
    ["Surrogate", `${info.C === null ? "one per model, together" : `C = ${short(info.C)};`} ${whole ? `R² ${info.agreement.toFixed(3)} with the model on the tests` : `agrees with the model on ${percent(info.agreement)} of the tests`}; ${count(info.n_support)} of the training samples are support vectors; duality gap ${info.members > 1 ? "at most " : ""}${short(info.gap)}`],
    info.size === null ? null : ["File", size(info.size)],
  ].filter(Boolean);
}

export class StartView {
  constructor(box, source, info) {
    Object.assign(this, { box, source, info, drawn: false });
  }

  show() {
    if (this.drawn) return;
    this.drawn = true;
    const { info } = this, to = (part) => addressOf(info, part);
    const random = h("a", { href: to({}), onclick: (event) => this.random(event) }, "a random test");
    replace(this.box, h("div", { class: "start" },
      h("section", { class: "loaded", "aria-label": "What was loaded" }, h("h2", {}, "What was loaded"),
        h("dl", {}, (info.scores ? scoresLoaded(info) : loaded(info)).map(([name, words]) => h("div", {}, h("dt", {}, name), h("dd", {}, ...glossed(words)))))),
      h("section", { class: "begin" }, h("h2", {}, "Where to begin"),
        info.label_kind === "number" || info.accuracy === null ? null : this.shelf("Wrong predictions", `${count(info.n_wrong)} of ${count(info.n_tests)}`, { wrong: true }),
        info.scores ? this.shelf("Tests", `${count(info.n_tests)}, by number`, {}) : null,
        info.label_kind === "number" || (info.scores && !info.scores.certain) ? null : this.shelf("Least certain", "lowest probability of the predicted class", { order: "least certain" }),
        info.compares ? this.shelf("Novel samples", "unlike the training data", { novel: true }) : null,
        info.n_differing ? this.shelf("The surrogate disagrees", `${count(info.n_differing)} of ${count(info.n_tests)}: the surrogate predicts another class than the model`, { disagree: true }) : null,
        h("p", {}, "Or ", random, info.label_kind === "class" && !info.note && !info.scores ? [", ", h("a", { href: to({ tab: "audit" }) }, "labels that may be wrong"), ", ", h("a", { href: to({ tab: "classes" }) }, "classes and confusions"), ", ",
          h("a", { href: to({ tab: "concepts" }) }, "concepts"), ", ", h("a", { href: to({ tab: "whatif" }) }, "what would change without some samples")] : null, ".",
          " ", h("span", { class: "quiet" }, "Keys: press ", h("kbd", {}, "?"), ".")),
        info.note ? h("p", { class: "quiet" }, info.note) : null)));
  }

  // The first tests of a list, and a link to all of them.
  shelf(title, words, query) {
    const box = h("div", { class: "shelf" }, h("p", { class: "busy" }, "Looking …")), more = h("span", { class: "quiet" }, words);
    const ready = query.novel ? this.source.compareTests(progress(box, "Comparing with the training set")) : Promise.resolve();
    ready.then(() => this.source.tests({ offset: 0, limit: FIRST, label: "", predicted: "", search: "", ...query })).then(({ rows, total }) => {
      replace(box, rows.length ? rows.map((row) => h("a", { href: addressOf(this.info, { test: row.index, query }), class: "spine" },
        sampleView(row.sample, `Test sample ${row.index}`), h("b", {}, new Name(row.verdict.predicted)),
        row.verdict.right === false ? h("span", { class: "quiet" }, "is ", new Name(row.verdict.truth)) : row.probability === null ? null : h("span", { class: "quiet" }, percent(row.probability))))
        : h("p", { class: "quiet" }, "none"));
      if (query.novel) more.textContent = `${count(total)} of ${count(this.info.n_tests)}: ${words}`;
    }, (error) => replace(box, h("p", { class: "error" }, error.message)));
    return h("section", { class: "first" }, h("h3", {}, h("a", { href: addressOf(this.info, { query }) }, title), " ", more), box);
  }

  async random(event) {
    event.preventDefault();
    const offset = Math.floor(Math.random() * this.info.n_tests);
    const { rows } = await this.source.tests({ offset, limit: 1, label: "", predicted: "", search: "" });
    if (rows.length) location.hash = addressOf(this.info, { test: rows[0].index });
  }
}
