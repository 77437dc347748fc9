// The start page: the most useful things to do with this model, its confusions, and what was loaded.

import { addressOf } from "./address.js";
import { Name, count, glossed, h, percent, progress, replace, short, some } from "./dom.js";
import { sampleView } from "./maps.js";

const FIRST = 6; // samples per task

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
    const { info, source } = this, to = (part) => addressOf(info, part), classes = info.label_kind === "class", link = (part, words) => h("a", { href: to(part) }, words);
    const right = info.accuracy === null ? "" : info.label_kind === "number" ? `R² ${info.accuracy.toFixed(2)} on` : `${percent(info.accuracy)} right on`;
    replace(this.box,
      h("p", { class: "lead" }, h("b", {}, `${right} ${count(info.n_tests)} test samples`.trim()), `, ${info.scores ? `scores of ${info.scores.tool} for` : "explained by"} ${count(info.n_train)} training samples. What do you want to look at?`),
      h("div", { class: "tasks" },
        info.scores && info.accuracy === null ? this.tests("Tests", {}, "The strongest training samples of each, for and against.")
          : info.label_kind === "number" || info.accuracy === null ? this.tests("Least certain", { order: "least certain" }, "The predictions with the lowest probability.")
          : this.tests("Wrong predictions", { wrong: true }, "See which training samples they come from."),
        classes && !info.withheld.audit ? this.labels() : null,
        info.compares ? this.tests("Inputs unlike the training data", { novel: true }, "Predictions that no training sample resembles.") : null),
      classes && info.accuracy !== null && !info.scores ? this.confusion() : null,
      h("section", { class: "also" }, h("h2", {}, "More"), h("ul", {},
        h("li", {}, h("a", { href: to({}), onclick: (event) => this.random(event) }, "a random test")),
        info.label_kind === "number" || (info.scores && !info.scores.certain) ? null : h("li", {}, link({ query: { order: "least certain" } }, "least certain predictions first")),
        info.n_differing ? h("li", {}, link({ query: { disagree: true } }, `${count(info.n_differing)} tests on which the surrogate disagrees`)) : null,
        classes && !info.note && !info.scores ? [h("li", {}, link({ tab: "classes" }, "classes compared")), h("li", {}, link({ tab: "concepts" }, "concepts")), h("li", {}, link({ tab: "whatif" }, "what would change with other training samples"))] : null),
      info.note ? h("p", { class: "quiet" }, info.note) : null),
      h("details", { class: "loaded more" }, h("summary", {}, "What was loaded"), h("dl", {}, (info.scores ? scoresLoaded(info) : loaded(info)).map(([name, words]) => h("div", {}, h("dt", {}, name), h("dd", {}, ...glossed(words)))))));
  }

  task(title, part, words) {
    const number = h("b", { class: "number" }, "…"), box = h("div", { class: "thumbs" });
    const draw = (total, views) => { number.textContent = count(total); replace(box, views); };
    const failed = (error) => replace(box, h("p", { class: "error" }, error.message));
    const card = h("section", { class: "task" }, h("a", { href: addressOf(this.info, part) }, number, h("h2", {}, title)), h("p", { class: "quiet" }, words), box);
    return { card, box, draw, failed };
  }

  tests(title, query, words) {
    const { card, box, draw, failed } = this.task(title, { query }, words), { source, info } = this;
    const ready = query.novel ? source.compareTests(progress(box, "Comparing with the training set")) : Promise.resolve();
    ready.then(() => source.tests({ offset: 0, limit: FIRST, label: "", predicted: "", search: "", ...query })).then(({ rows, total }) => draw(total, rows.map((row) =>
      h("a", { href: addressOf(info, { test: row.index, query }), class: "spine" }, sampleView(row.sample, `Test sample ${row.index}`),
        h("span", {}, h("b", {}, new Name(row.verdict.predicted)), row.verdict.right === false ? [h("br"), h("span", { class: "quiet" }, "is ", new Name(row.verdict.truth))] : null)))), failed);
    return card;
  }

  labels() {
    const { card, box, draw, failed } = this.task("Labels to check", { tab: "audit" }, "Training samples whose label is more likely wrong than right."), { source, info } = this;
    source.rank(progress(box, "Ranking labels")).then(() => source.audit(0, FIRST)).then(({ likely_wrong, rows }) => draw(likely_wrong, rows.map((row) =>
      h("a", { href: addressOf(info, { tab: "audit" }), class: "spine" }, sampleView(row.sample, `Training sample ${row.index}`),
        h("span", {}, h("b", {}, new Name(info.classes[row.label])), h("br"), h("span", { class: "quiet" }, row.suggested === row.label ? "unlike its class" : ["is it ", new Name(info.classes[row.suggested]), "?"]))))), failed);
    return card;
  }

  // The confusion matrix; each cell opens its tests.
  confusion() {
    const { info } = this, box = h("section", { class: "confusion" }, h("h2", {}, "Confusion matrix"), h("p", { class: "busy" }, "Loading …"));
    this.source.confusion().then(({ classes, counts, omitted }) => {
      const most = Math.max(1, ...counts.flatMap((row, i) => row.filter((_, j) => i !== j))), name = (c) => new Name(info.classes[c]);
      const cell = (n, i, j) => h("td", { class: i === j ? "hit" : n ? "miss" : "", "--strength": i === j ? 0 : n / most }, n ? h("a", { href: addressOf(info, { query: { label: String(classes[i]), predicted: String(classes[j]) } }),
        "aria-label": `${count(n)} tests labelled ${name(classes[i])}, predicted ${name(classes[j])}` }, count(n)) : null);
      replace(box, h("h2", {}, "Confusion matrix"), h("p", { class: "quiet" }, "Rows are true labels, columns predictions. A number opens its tests.", omitted ? ` The ${count(classes.length)} classes with the most errors; ${count(omitted)} others are left out.` : ""),
        h("div", { class: "wide" }, h("table", {}, h("thead", {}, h("tr", {}, h("td", {}), classes.map((c) => h("th", { scope: "col" }, h("span", {}, name(c)))))),
          h("tbody", {}, counts.map((row, i) => h("tr", {}, h("th", { scope: "row" }, name(classes[i])), row.map((n, j) => cell(n, i, j))))))));
    }, (error) => replace(box, h("p", { class: "error" }, error.message)));
    return box;
  }

  async random(event) {
    event.preventDefault();
    const offset = Math.floor(Math.random() * this.info.n_tests);
    const { rows } = await this.source.tests({ offset, limit: 1, label: "", predicted: "", search: "" });
    if (rows.length) location.hash = addressOf(this.info, { test: rows[0].index });
  }
}
