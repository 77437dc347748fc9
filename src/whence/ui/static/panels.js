// The parts of an explanation.

import { Name, count, glossed, h, percent, short, side, signed, some } from "./dom.js";
import { markWords } from "./changelist.js";
import { sampleView, scaleKey } from "./maps.js";

// The summary of an explanation: the claim, and one line per check. Typicality and stability arrive later; their room is reserved, so that
// nothing jumps.
export function summary(why, typical, stable) {
  const [agrees, unknown, ...more] = why.summary.checks;
  const waits = why.question === "made of" && why.label_kind === "class" && !why.n_members && why.test !== null;
  const line = (check) => h("li", { class: check.passed === false ? "failed" : check.passed === null ? "quiet" : "" },
    h("span", { "aria-hidden": "true" }, check.mark), " ", ...glossed(check.words));
  return [h("p", { class: "claim" }, ...glossed(why.summary.claim)),
    why.facts ? null : h("ul", { class: waits ? "checks three" : "checks" }, [agrees, typical ?? unknown, ...more, ...(stable ? [stable] : [])].map(line))];
}

// Facts about the scores, one named line each.
export function certificate(why) {
  const n = why.n_members;
  const lines = why.facts ?? [
    ["accuracy", `${n ? "The largest of their relative duality gaps" : "Its relative duality gap"} is ${short(why.gap)}${why.logit_bound === null ? "" : `: the optimal ${why.words.output} is at most ${short(why.logit_bound)} away`}.`],
    ["samples", `${count(why.n_support)} of ${count(why.n_train)} training samples ${why.words.scored}.`],
    ["shown", `The samples below hold ${percent(why.share_for)} of ${why.words.everything[0]}, ${percent(why.share_against)} of ${why.words.everything[1]}.`],
    ["sum", n ? `Scores are means over ${n} models, each in units of the standard deviation of its own scores: they sum to no logit. ± is the standard deviation over the models. Maps by ${why.method}.` : why.question === "made of"
      ? `${summed(why)} Of their sum ${signed(why.bias)} ${why.relative ? "comes from no feature of the input" : "is the bias"}; the map holds ${signed(why.sums.logit_map)} of the other ${signed(why.sums.features)}, by ${why.method}.`
      : `Effects are predicted ${why.effect}. Each is of one sample alone: together they are not the logit, ${signed(why.logit)}. Maps by ${why.method}.`],
  ];
  return h("dl", { class: "certificate" },
    lines.map(([name, text]) => h("div", {}, h("dt", {}, name), h("dd", {}, ...glossed(text)))));
}

// What the scores sum to.
function summed(why) {
  if (!why.relative) return `The ${why.words.output} is the sum of all scores${why.base ? " and the base value" : ""}.`;
  return `Scores say what sets this input apart from ${why.words.origin}, whose ${why.words.output} is the base value.`;
}

// The target of the evidence: a class, or one class over another.
export function claim(why, names, at) {
  if (why.against === null) return [names[why.target]];
  const [first, second] = at ? [why.against, why.target] : [why.target, why.against];
  return [names[first], " over ", names[second]];
}

// Whether the prediction is right; for regression the true value.
export function truth(right, text, words) {
  if (text === null) return null;
  if (right === null) return h("span", { class: "quiet" }, `${words} `, new Name(text));
  return h("span", { class: right ? "right" : "wrong" }, right ? "✓ right" : [`✗ wrong: ${words} `, new Name(text)]);
}

export function verdict(why, names) {
  const said = why.verdict, whole = why.label_kind === "class", chance = said.probability === null ? "" : ` ${percent(said.probability)}`;
  const named = whole ? why.target !== why.predicted : why.label_kind === "label" || names.length > 1;
  return [h("p", { class: "prediction" }, h("b", {}, new Name(said.predicted)), `${whole ? chance : ""} `,
    truth(said.right, said.truth, whole ? "labelled" : why.words.true)),
  named || why.against !== null ? h("p", {}, "Explained: ", h("b", {}, ...claim(why, names, 0)), whole ? null : chance) : null];
}

// The training samples nearest to a test.
export function typicalityView(found) {
  return h("div", { class: found.novel ? "typicality novel" : "typicality" },
    h("p", { class: "quiet" }, "Nearest training samples, by their features:"),
    h("ol", { class: "neighbours" }, found.neighbours.map((near) => {
      const label = new Name(near.label_text);
      return h("li", {}, sampleView(near.sample, `Training sample ${near.index}, labelled ${label}, near the test`), h("span", {}, label), h("span", {}, `sample ${near.index}`));
    })));
}

export function drawMark(card, mark, names) {
  card.classList.toggle("marked", mark !== undefined);
  card.classList.toggle("removed", mark?.action === "remove");
  card.querySelector(".mark").textContent = markWords(mark, names);
}

// The answer to the other question for a training sample: an effect next to a score, or the reverse.
function otherScore(pair, why) {
  const other = why.other_scores?.[why.pairs.indexOf(pair)];
  if (other === undefined) return "";
  const value = other === 0 ? "0" : signed(Number(other.toPrecision(2)));
  return why.question === "made of" ? `effect ${value}` : `score ${value}`;
}

// A score; for an ensemble with the standard deviation over its members.
const scored = (pair) => `${signed(pair.score)}${pair.spread === null ? "" : ` ± ${short(pair.spread)}`}`;

// One training sample; ``choose`` shows it next to the test.
export function card(pair, why, names, maps, choose) {
  const label = new Name(pair.label_text), made = why.question === "made of";
  const words = `Training sample ${pair.index}, labelled ${label}, ${why.question === "would change" ? "effect" : "score"} ${signed(pair.score)}`;
  return h("li", { class: `card ${side(pair.score)}`, "data-pair": pair.index },
    h("button", { type: "button", "aria-pressed": "false", title: `Training sample ${pair.index}: ${percent(pair.share)} of all ${why.words.share[pair.score >= 0 ? 0 : 1]}`, onclick: choose },
      sampleView(pair.sample, words, maps ? pair.train_map : null, why.full.train),
      h("span", { class: "facts" },
        h("span", { class: "label" }, pair.differs ? h("span", { title: why.words.other }, "≠ ") : null, label),
        h("span", { class: `score ${side(pair.score)}-ink` }, scored(pair)),
        pair.alike.length ? h("span", { class: "quiet", title: `samples ${pair.alike.join(", ")}` }, pair.alike_words) : null,
        why.other_scores ? h("span", { class: "quiet other-score", title: made ? "How much higher the output is with this sample than without it" : "Its part of the logit" }, otherScore(pair, why)) : null,
        made && !why.n_members ? h("span", { class: "quiet stability" }) : null,
        h("span", { class: "mark" }))));
}

// What the output is made of: base value, labels, and groups of similar samples below each.
export function treeView(why) {
  const { tree } = why;
  if (!tree) return null;
  const full = Math.max(Math.abs(tree.score), ...tree.parts.map((part) => Math.abs(part.score))) || 1;
  const samples = (n) => some(n, "sample"), plain = (node) => node.level === "base" || node.level === "output";
  const branch = (node) => h("div", { class: "branch" }, h("span", { class: "name" }, new Name(node.name)),
    h("span", { class: `signed ${plain(node) ? "base" : side(node.score)} ${node.score < 0 ? "down" : "up"}`, "--length": Math.abs(node.score) / full }),
    h("b", { class: plain(node) ? "" : `${side(node.score)}-ink` }, signed(node.score)),
    h("span", { class: "quiet" }, node.level === "output" ? "sum" : node.level === "base" ? "" : samples(node.count)));
  const group = (node) => h("li", {}, h("div", { class: "medoid" }, sampleView(node.sample, `Training sample ${node.index}, in the middle of the group`)),
    h("div", {}, h("p", {}, h("b", { class: `${side(node.score)}-ink` }, signed(node.score)), ` ${samples(node.count)} like ${node.index}`, h("br"), h("span", { class: "quiet" }, `${percent(node.share)} of all groups`)),
      h("ul", { class: "strongest" }, node.parts.filter((one) => one.level === "sample").map((one) =>
        h("li", { title: `sample ${one.index}` }, sampleView(one.sample, `Training sample ${one.index} of the group`), h("span", { class: "quiet" }, signed(one.score)))))));
  const groups = (nodes) => h("ul", { class: "groups" }, nodes.map((node) => node.level === "group" ? group(node)
    : h("li", { class: "quiet" }, `${node.name} of ${samples(node.count)}: ${signed(node.score)}, ${percent(node.share)} of all groups`)));
  const base = tree.parts.filter((part) => part.level === "base"), others = tree.parts.filter((part) => part.level !== "base");
  const labels = () => others.map((node, i) => node.parts.length ? h("details", { open: i === 0 }, h("summary", {}, branch(node)), groups(node.parts)) : branch(node));
  return h("section", { class: "tree" }, h("p", { class: "quiet" }, ...glossed(tree.words)), base.map(branch), others.some((node) => node.level === "group") ? groups(others) : labels(), branch(tree));
}

// Both samples of a pair side by side, with their maps.
export function pairView(pair, why, names) {
  const figure = (sample, map, full, words, caption) => h("figure", {}, sampleView(sample, words, map, full, "folded"), h("figcaption", {}, caption), map ? scaleKey(full) : null);
  const shown = why.facts ? [`; its label ${pair.differs ? "is another" : "is the same"}.`] : [`${why.question !== "made of" ? ": this sample" : why.label_kind === "number" ? "" : " is"} ${why.words.side[pair.score >= 0 ? 0 : 1]} `, h("b", {}, ...claim(why, names, pair.score >= 0 ? 0 : 1)), ...partly(pair, why, names)];
  return h("div", { class: "pair" },
    figure(pair.sample, pair.train_map, why.full.train, `Training sample ${pair.index}, labelled ${new Name(pair.label_text)}${pair.train_map ? ", with its relevance" : ""}`,
      [`training sample ${pair.index}, `, h("b", {}, new Name(pair.label_text))]),
    figure(why.sample, pair.test_map, why.full.test, pair.test_map ? `The test sample, with the relevance of training sample ${pair.index}` : "The test sample",
      [why.test === null ? "your sample" : `test sample ${why.test}`]),
    h("p", {}, h("b", { class: `${side(pair.score)}-ink` }, ...glossed(`${why.words.mark}${scored(pair)}`)),
      ...shown),
    h("p", { class: "stability", hidden: true }));
}

// The explanation of a pair's maps.
function partly(pair, why, names) {
  const colours = why.label_kind === "number" ? "Blue parts pull up, orange ones pull down." 
    : `Blue parts support ${names[why.target]}, orange ones ${why.against === null ? "contradict it" : names[why.against]}.`;
  const other = otherScore(pair, why), also = other ? `${why.question === "made of" ? "With this sample, compared with training without it" : "What the logit is made of"}: ${other}. ` : "";
  if (why.n_members) return [". ", colours];
  const weight = why.against === null ? "λ" : "λ of the first class less that of the second";
  if (why.question === "made of") return glossed(`; ${weight} = ${signed(pair.coefficient)}. ${also}${colours}`);
  return [`. ${also}The maps on both samples show the effect without the part of the bias.`];
}

// The number of halves of the training set in which a sample is among the strongest, in words.
export function stabilityWords(stability, index, short = false) {
  const among = stability?.among[index];
  if (among === undefined) return "";
  return short ? `${among} of ${stability.halves} halves`
    : `Among the top ${stability.k} in ${among} of the ${stability.halves} random halves of the training set that hold it.`;
}

export function conceptStrip(strip) {
  return [h("h3", {}, `Concepts of the pair with training sample ${strip.index}`),
    h("p", { class: "quiet" }, ...glossed(`Parts by concepts of τ = ${signed(strip.score)}, the score before the average is subtracted. Concepts are directions of the features, the strongest first; `
      + `the bias adds ${signed(strip.bias)}. Beneath each, the support vectors that show it most.`)),
    h("div", { class: "concepts" }, strip.parts.map((part) => h("section", {},
      h("h4", {}, part.name, " ", h("span", { class: `${side(part.score)}-ink` }, signed(part.score))),
      h("div", { class: "both" },
        sampleView(strip.train, `Training sample ${strip.index} through ${part.name}`, part.train_map, strip.full.train, "folded"),
        sampleView(strip.test, `The test sample through ${part.name}`, part.test_map, strip.full.test, "folded")),
      h("div", { class: "thumbs" }, part.samples.map((sample, i) =>
        sampleView(sample, `Support vector ${part.indices[i]}, which shows ${part.name} strongly`))))))];
}

export function whatIfAnswer(answer, names) {
  const { before, after } = answer;
  const line = (title, value) => h("tr", {}, h("th", { scope: "row" }, title), h("td", {}, value(before)), h("td", {}, value(after)));
  return h("div", { class: "answer" },
    h("p", {}, h("b", {}, before.predicted === after.predicted ? `The surrogate’s class stays ${names[after.predicted]}.`
      : `The surrogate’s class changes from ${names[before.predicted]} to ${names[after.predicted]}.`)),
    h("table", {}, h("thead", {}, h("tr", {}, ["", "before", "after"].map((words) => h("th", { scope: "col" }, words)))),
      h("tbody", {}, line("class", (one) => names[one.predicted]), line(`logit of ${names[answer.target]}`, (one) => signed(one.logit)),
        line("support vectors", (one) => count(one.n_support)), line("duality gap", (one) => short(one.gap)))),
    firstOrder(answer.first_order, names[answer.target]),
    h("p", { class: "quiet" }, `Solved exactly in ${answer.seconds.toFixed(2)} s. Over all ${count(answer.n_tests)} tests its class changes for ${count(answer.changed_tests)}.`));
}

// Whether the first-order prediction of effects agrees with the re-solved surrogate.
function firstOrder(found, name) {
  if (!found) return null;
  return h("p", { class: found.disagree ? "disagreed" : "agreed" },
    h("b", {}, `Predicted by effects, the logit of ${name} changes by ${signed(found.predicted)} to first order, ${signed(found.exact)} re-solved. `),
    found.disagree ? "The two disagree: rely on the second." : "They agree.", " Effects use another surrogate, on features of several layers.");
}
