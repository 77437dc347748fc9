// The parts of an explanation.

import { Name, count, glossed, h, percent, short, side, signed } from "./dom.js";
import { sampleView, scaleKey } from "./maps.js";

const LEADS = { yes: "trust this explanation", care: "take this explanation with care", no: "do not trust this explanation" };
const listed = (words) => words.length > 1 ? `${words.slice(0, -1).join(", ")} and ${words.at(-1)}` : words[0];

// The longest that a sentence may become when what is not known yet is: its room is there from the start, and nothing jumps.
const LATER = { usual: { trust: "care", words: "the training set has samples like this one" }, stable: { trust: "yes", words: "its strongest samples stay so on halves of the training set" } };

function parts(why, later) {
  const reasons = [...why.summary.reasons, ...later.filter(Boolean)], levels = Object.keys(LEADS);
  const trust = levels[Math.max(...reasons.map((one) => levels.indexOf(one.trust)))];
  const doubts = reasons.filter((one) => one.trust !== "yes").sort((a, b) => (a.trust !== trust) - (b.trust !== trust));
  const rest = reasons.filter((one) => one.trust === "yes"), words = (some) => listed(some.map((one) => one.words));
  const others = doubts.length && rest.length ? `, although ${words(rest)}` : "";
  return [trust, `${why.summary.claim}; `, LEADS[trust], `: ${words(doubts.length ? doubts : rest)}${others}.`];
}

// What an explanation comes to, in one sentence; how usual the test is and how stable its samples are join in when they are known.
export function sentence(why, ...later) {
  const [trust, claim, lead, reasons] = parts(why, later);
  const longest = parts(why, why.n_members ? [] : [LATER.usual, why.question === "made of" ? LATER.stable : null]).slice(1).join("");
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
      : `Effects are ${why.told}. Each is of one sample alone: together they are not the logit, ${signed(why.logit)}. Maps by ${why.method}.`],
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
    why.n_members ? null : h("div", { id: "usual" }), certificate(why));
}

// How usual the test is for the training set, and the training samples that it is nearest to.
export function usualView(usual) {
  return h("div", { class: usual.strange ? "usual strange" : "usual" },
    h("p", {}, usual.strange ? h("b", { class: "doubtful" }, `⚠ ${usual.heading}. `) : `✓ ${usual.heading}: `,
      h("span", { class: "quiet" }, `${usual.strange ? "It is " : ""}${usual.detail}. Nearest:`)),
    h("ol", { class: "neighbours" }, usual.neighbours.map((near) => {
      const told = new Name(near.told);
      return h("li", {}, sampleView(near.sample, `Training sample ${near.index}, labelled ${told}, near the test`), h("span", {}, told), h("span", {}, `sample ${near.index}`));
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

// The other question's answer for a training sample: an effect beside τ, τ beside an effect.
function besideWords(pair, why) {
  const other = why.beside?.[why.pairs.indexOf(pair)];
  if (other === undefined) return "";
  const value = other === 0 ? "0" : signed(Number(other.toPrecision(2)));
  return why.question === "made of" ? `effect ${value}` : `τ ${value}`;
}

// A score, of an ensemble with the standard deviation over its members.
const scored = (pair) => `${signed(pair.score)}${pair.spread === null ? "" : ` ± ${short(pair.spread)}`}`;

// One training sample. ``actions``: choose(pair) on a click, peek(pair) while the pointer or the focus is on it.
export function card(pair, why, names, mark, actions) {
  const told = new Name(pair.told);
  const words = `Training sample ${pair.index}, labelled ${told}, ${why.question === "made of" ? "score" : "effect"} ${signed(pair.score)}`;
  const item = h("li", { class: `card ${side(pair.score)}`, "data-pair": pair.index },
    h("button", { type: "button", "aria-pressed": "false", onclick: () => actions.choose(pair),
      onmouseenter: () => actions.peek(pair), onfocus: () => actions.peek(pair) },
      sampleView(pair.sample, words, pair.train_map, why.full.train),
      h("span", { class: "facts" },
        h("span", { class: "label" }, pair.differs ? h("span", { title: why.words.other }, "≠ ") : null, told),
        h("span", { class: `score ${side(pair.score)}-ink` }, `${why.question === "made of" && !why.n_members ? "τ " : ""}${scored(pair)}`),
        h("span", { class: "share", "--share": pair.share }),
        h("span", { class: "quiet" }, `${percent(pair.share)} of all ${why.words.share[pair.score >= 0 ? 0 : 1]}, sample ${pair.index}`),
        why.beside ? h("span", { class: "quiet beside", title: why.question === "made of" ? "What its being there changes" : "Its part of what the logit is made of" }, besideWords(pair, why)) : null,
        why.question === "made of" && !why.n_members ? h("span", { class: "quiet doubt" }) : null,
        h("span", { class: "mark" }))));
  drawMark(item, mark, names);
  return item;
}

// Both samples of a pair side by side, with their maps.
export function pairView(pair, why, names) {
  const figure = (sample, map, full, words, caption) => h("figure", {}, sampleView(sample, words, map, full, "folded"), h("figcaption", {}, caption), scaleKey(full));
  return h("div", { class: "pair" },
    figure(pair.sample, pair.train_map, why.full.train, `Training sample ${pair.index}, labelled ${new Name(pair.told)}, with its relevance`,
      [`training sample ${pair.index}, `, h("b", {}, new Name(pair.told))]),
    figure(why.sample, pair.test_map, why.full.test, `The test sample, with what training sample ${pair.index} finds in it`,
      [why.test === null ? "your sample" : `test sample ${why.test}`]),
    h("p", {}, h("b", { class: `${side(pair.score)}-ink` }, ...glossed(`${why.words.mark}${scored(pair)}`)),
      `${why.question !== "made of" ? ": being there, it" : why.label_kind === "number" ? "" : " is"} ${why.words.side[pair.score >= 0 ? 0 : 1]} `, h("b", {}, names[why.target]), ...partly(pair, why, names)),
    h("p", { class: "doubt", hidden: true }));
}

// What the maps of a pair are of.
function partly(pair, why, names) {
  const colours = why.label_kind === "number" ? "Blue parts pull up, orange ones pull down." : `Blue parts speak for ${names[why.target]}, orange ones against it.`;
  const beside = besideWords(pair, why), also = beside ? `${why.question === "made of" ? "What its being there changes" : "What the logit is made of"}: ${beside}. ` : "";
  if (why.n_members) return [". ", colours];
  if (why.question === "made of") return glossed(`; λ = ${signed(pair.coefficient)}. ${also}${colours}`);
  return [`. ${also}The maps on both samples show all of the effect but the bias’s part.`];
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
  const line = (title, tell) => h("tr", {}, h("th", { scope: "row" }, title), h("td", {}, tell(before)), h("td", {}, tell(after)));
  return h("div", { class: "answer" },
    h("p", {}, h("b", {}, before.predicted === after.predicted ? `The surrogate’s class stays ${names[after.predicted]}.`
      : `The surrogate’s class changes from ${names[before.predicted]} to ${names[after.predicted]}.`)),
    h("table", {}, h("thead", {}, h("tr", {}, ["", "before", "after"].map((words) => h("th", { scope: "col" }, words)))),
      h("tbody", {}, line("class", (one) => names[one.predicted]), line(`logit of ${names[answer.target]}`, (one) => signed(one.logit)),
        line("support vectors", (one) => count(one.n_support)), line("duality gap", (one) => short(one.gap)))),
    firstOrder(answer.first_order, names[answer.target]),
    h("p", { class: "quiet" }, `Solved exactly in ${answer.seconds.toFixed(2)} s. Over all ${count(answer.n_tests)} tests its class changes for ${count(answer.changed_tests)}.`));
}

// Whether what effects foretell to first order comes true when their surrogate is solved again.
function firstOrder(found, name) {
  if (!found) return null;
  return h("p", { class: found.parted ? "parted" : "agreed" },
    h("b", {}, `Foretold by effects, the logit of ${name}: ${signed(found.foretold)} to first order, ${signed(found.exact)} solved again. `),
    found.parted ? "The two part: go by the second." : "They agree.", " Theirs is another surrogate, on features of several layers.");
}
