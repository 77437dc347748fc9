// The parts of an explanation.

import { Name, count, glossed, h, percent, short, side, signed } from "./dom.js";
import { sampleView, scaleKey } from "./maps.js";

const LEADS = { yes: "trust this explanation", care: "take this explanation with care", no: "do not trust this explanation" };
const listed = (words) => words.length > 1 ? `${words.slice(0, -1).join(", ")} and ${words.at(-1)}` : words[0];

// The longest that a sentence may become when what is not known yet is: its room is there from the start, and nothing jumps.
const LATER = { typical: { trust: "care", words: "nothing like this is in the training set" }, stable: { trust: "yes", words: "its strongest samples are the same on halves of the training set" } };

function parts(why, later) {
  const reasons = [...why.summary.reasons, ...later.filter(Boolean)], levels = Object.keys(LEADS);
  const trust = levels[Math.max(...reasons.map((one) => levels.indexOf(one.trust)))];
  const doubts = reasons.filter((one) => one.trust !== "yes").sort((a, b) => (a.trust !== trust) - (b.trust !== trust));
  const rest = reasons.filter((one) => one.trust === "yes"), words = (reasons) => listed(reasons.map((one) => one.words));
  const others = doubts.length && rest.length ? `, although ${words(rest)}` : "";
  return [trust, `${why.summary.claim}; `, LEADS[trust], `: ${words(doubts.length ? doubts : rest)}${others}.`];
}

// What an explanation comes to, in one sentence; how typical the test is and how stable its samples are follow when they are known.
export function sentence(why, ...later) {
  const [trust, claim, lead, reasons] = parts(why, later);
  const longest = parts(why, why.n_members ? [] : [LATER.typical, why.question === "made of" ? LATER.stable : null]).slice(1).join("");
  return h("span", { class: `summed ${trust}`, "data-longest": `⚠ ${longest}` }, h("span", {}, ...glossed(claim), h("b", {}, lead), ...glossed(reasons)));
}

// How the scores came about, each line with what it is about.
export function certificate(why) {
  const { agrees } = why.verdict, n = why.n_members, who = n ? `The mean of the ${n} surrogates` : "The surrogate", other = `${who} ${why.words.says} ${new Name(why.verdict.surrogate)}`;
  const lines = [
    ["agreement", !agrees ? `${other}: do not trust this explanation.`
      : why.label_kind === "class" ? `${who} predicts ${n ? "what the models together do" : "the model’s class"}.` : `${other}.`],
    ["accuracy", `${n ? "The largest of their relative duality gaps" : "Its relative duality gap"} is ${short(why.gap)}.`],
    ["samples", `${count(why.n_support)} of ${count(why.n_train)} training samples ${why.words.scored}.`],
    ["shown", `The samples below hold ${percent(why.share_for)} of ${why.words.everything[0]}, ${percent(why.share_against)} of ${why.words.everything[1]}.`],
    ["sum", n ? `Scores are means over ${n} models, each in units of the standard deviation of its own scores: they sum to no logit. ± is the standard deviation over the models. Maps by ${why.method}.` : why.question === "made of"
      ? `${summed(why)}, of which the bias is ${signed(why.bias)}; the map holds ${signed(why.sums.logit_map)} of the other ${signed(why.sums.features)}, by ${why.method}.`
      : `Effects are predicted ${why.effect}. Each is of one sample alone: together they are not the logit, ${signed(why.logit)}. Maps by ${why.method}.`],
  ];
  return h("dl", { class: agrees ? "certificate" : "certificate broken" },
    lines.map(([name, text]) => h("div", {}, h("dt", {}, name), h("dd", {}, ...glossed(text)))));
}

// What all scores add up to, in words.
function summed(why) {
  if (why.label_kind !== "number") return `All scores sum to the logit, ${signed(why.logit)}`;
  return `The prediction, ${short(why.logit)}, is a base of ${short(why.base)} and all scores, ${signed(why.total)}`;
}

// Whether what is predicted is true: yes, no, or what is, where that is a matter of degree.
export function truth(right, text, words) {
  if (text === null) return null;
  if (right === null) return h("span", { class: "quiet" }, `${words} `, new Name(text));
  return h("span", { class: right ? "right" : "wrong" }, right ? "✓ right" : [`✗ wrong: ${words} `, new Name(text)]);
}

export function verdict(why, names) {
  const said = why.verdict, whole = why.label_kind === "class", chance = said.probability === null ? "" : ` ${percent(said.probability)}`;
  const named = whole ? why.target !== why.predicted : why.label_kind === "label" || names.length > 1;
  return h("div", { class: "verdict" },
    h("p", { class: "prediction" }, h("b", {}, new Name(said.predicted)), `${whole ? chance : ""} `,
      truth(said.right, said.truth, whole ? "labelled" : why.words.true)),
    named ? h("p", {}, "Explained below: ", h("b", {}, names[why.target]), whole ? null : chance) : null,
    why.n_members ? null : h("div", { id: "typicality" }), certificate(why));
}

// How typical the test is of the training set, and the training samples that it is nearest to.
export function typicalityView(found) {
  return h("div", { class: found.novel ? "typicality novel" : "typicality" },
    h("p", {}, found.novel ? h("b", { class: "doubtful" }, `⚠ ${found.heading}. `) : `✓ ${found.heading}: `,
      h("span", { class: "quiet" }, `${found.novel ? "It is " : ""}${found.detail}. Nearest:`)),
    h("ol", { class: "neighbours" }, found.neighbours.map((near) => {
      const label = new Name(near.label_text);
      return h("li", {}, sampleView(near.sample, `Training sample ${near.index}, labelled ${label}, near the test`), h("span", {}, label), h("span", {}, `sample ${near.index}`));
    })));
}

function markWords(mark, names) {
  if (mark === undefined) return "";
  return mark === "remove" ? "removed" : `→ ${names[mark]}`;
}

export function drawMark(card, mark, names) {
  card.classList.toggle("marked", mark !== undefined);
  card.querySelector(".mark").textContent = markWords(mark, names);
}

// The other question's answer for a training sample: an effect next to τ, τ next to an effect.
function otherScore(pair, why) {
  const other = why.other_scores?.[why.pairs.indexOf(pair)];
  if (other === undefined) return "";
  const value = other === 0 ? "0" : signed(Number(other.toPrecision(2)));
  return why.question === "made of" ? `effect ${value}` : `τ ${value}`;
}

// A score, of an ensemble with the standard deviation over its members.
const scored = (pair) => `${signed(pair.score)}${pair.spread === null ? "" : ` ± ${short(pair.spread)}`}`;

// One training sample. ``actions``: choose(pair) on a click, peek(pair) while the pointer or the focus is on it.
export function card(pair, why, names, mark, actions) {
  const label = new Name(pair.label_text);
  const words = `Training sample ${pair.index}, labelled ${label}, ${why.question === "made of" ? "score" : "effect"} ${signed(pair.score)}`;
  const item = h("li", { class: `card ${side(pair.score)}`, "data-pair": pair.index },
    h("button", { type: "button", "aria-pressed": "false", onclick: () => actions.choose(pair),
      onmouseenter: () => actions.peek(pair), onfocus: () => actions.peek(pair) },
      sampleView(pair.sample, words, pair.train_map, why.full.train),
      h("span", { class: "facts" },
        h("span", { class: "label" }, pair.differs ? h("span", { title: why.words.other }, "≠ ") : null, label),
        h("span", { class: `score ${side(pair.score)}-ink` }, `${why.question === "made of" && !why.n_members ? "τ " : ""}${scored(pair)}`),
        h("span", { class: "share", "--share": pair.share }),
        h("span", { class: "quiet" }, `${percent(pair.share)} of all ${why.words.share[pair.score >= 0 ? 0 : 1]}, sample ${pair.index}`),
        why.other_scores ? h("span", { class: "quiet other-score", title: why.question === "made of" ? "How much higher the output is with this sample than without it" : "Its part of the logit" }, otherScore(pair, why)) : null,
        why.question === "made of" && !why.n_members ? h("span", { class: "quiet doubt" }) : null,
        h("span", { class: "mark" }))));
  drawMark(item, mark, names);
  return item;
}

// Both samples of a pair side by side, with their maps.
export function pairView(pair, why, names) {
  const figure = (sample, map, full, words, caption) => h("figure", {}, sampleView(sample, words, map, full, "folded"), h("figcaption", {}, caption), scaleKey(full));
  return h("div", { class: "pair" },
    figure(pair.sample, pair.train_map, why.full.train, `Training sample ${pair.index}, labelled ${new Name(pair.label_text)}, with its relevance`,
      [`training sample ${pair.index}, `, h("b", {}, new Name(pair.label_text))]),
    figure(why.sample, pair.test_map, why.full.test, `The test sample, with the relevance of training sample ${pair.index}`,
      [why.test === null ? "your sample" : `test sample ${why.test}`]),
    h("p", {}, h("b", { class: `${side(pair.score)}-ink` }, ...glossed(`${why.words.mark}${scored(pair)}`)),
      `${why.question !== "made of" ? ": this sample" : why.label_kind === "number" ? "" : " is"} ${why.words.side[pair.score >= 0 ? 0 : 1]} `, h("b", {}, names[why.target]), ...partly(pair, why, names)),
    h("p", { class: "doubt", hidden: true }));
}

// What the maps of a pair are of.
function partly(pair, why, names) {
  const colours = why.label_kind === "number" ? "Blue parts pull up, orange ones pull down." : `Blue parts support ${names[why.target]}, orange ones contradict it.`;
  const other = otherScore(pair, why), also = other ? `${why.question === "made of" ? "With this sample, compared with training without it" : "What the logit is made of"}: ${other}. ` : "";
  if (why.n_members) return [". ", colours];
  if (why.question === "made of") return glossed(`; λ = ${signed(pair.coefficient)}. ${also}${colours}`);
  return [`. ${also}The maps on both samples show the effect without the part of the bias.`];
}

// In how many halves of the training set a sample stays among the strongest, in words.
export function doubtWords(doubt, index, short = false) {
  const among = doubt?.among[index];
  if (among === undefined) return "";
  return short ? `top ${doubt.k} in ${among} of ${doubt.halves} halves`
    : `Among the top ${doubt.k} in ${among} of the ${doubt.halves} random halves of the training set that hold it.`;
}

export function conceptStrip(strip) {
  return [h("h3", {}, `Concepts of the pair with training sample ${strip.index}`),
    h("p", { class: "quiet" }, ...glossed(`Parts of τ = ${signed(strip.score)} by concepts, which are directions of the features, the strongest first; `
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

// Whether the change that effects predict to first order holds when their surrogate is solved again.
function firstOrder(found, name) {
  if (!found) return null;
  return h("p", { class: found.disagree ? "disagreed" : "agreed" },
    h("b", {}, `Predicted by effects, the logit of ${name} changes by ${signed(found.predicted)} to first order, ${signed(found.exact)} solved again. `),
    found.disagree ? "The two disagree: rely on the second." : "They agree.", " Effects use another surrogate, on features of several layers.");
}
