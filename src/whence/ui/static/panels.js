// The parts of an explanation.

import { h, percent, replace, side, signed, svg } from "./dom.js";
import { sampleView, scaleKey } from "./maps.js";

export function certificate(why, names) {
  const agrees = why.surrogate_class === why.predicted;
  const items = [
    [agrees ? "✓" : "✗", agrees ? "the surrogate predicts the model’s class"
      : `the surrogate predicts “${names[why.surrogate_class]}”: do not trust this explanation`],
    ["≤", `relative duality gap ${why.gap.toExponential(1)}`],
    ["#", `${why.n_support.toLocaleString("en")} of ${why.n_train.toLocaleString("en")} training samples are support vectors, the rest score 0`],
    ["%", `shown: ${percent(why.share_for)} of the evidence for, ${percent(why.share_against)} of that against`],
    ["Σ", `logit ${signed(why.logit)} = all scores; its map sums to ${signed(why.sums.logit_map)} of ${signed(why.sums.features)} (bias ${signed(why.bias)}); maps by ${why.method}`],
  ];
  return h("ul", { class: agrees ? "certificate" : "certificate broken" },
    items.map(([mark, text]) => h("li", {}, h("b", { "aria-hidden": "true" }, mark), " ", text)));
}

export function balance(why) {
  const most = Math.max(why.evidence_for, -why.evidence_against, 1e-30);
  const part = (value, share, name) => {
    const bar = h("span", { class: `bar ${name}` }, h("span", { class: "shown" }));
    bar.style.setProperty("--length", Math.abs(value) / most);
    bar.style.setProperty("--share", share);
    return bar;
  };
  return h("div", { class: "balance" },
    h("div", { class: "half left" }, part(why.evidence_against, why.share_against, "against")),
    h("div", { class: "half right" }, part(why.evidence_for, why.share_for, "for")),
    h("p", {}, h("span", { class: "against-ink" }, `all evidence against: ${signed(why.evidence_against)}`),
      h("b", {}, `sum: ${signed(why.logit)}`),
      h("span", { class: "for-ink" }, `all evidence for: ${signed(why.evidence_for)}`)));
}

function chart(points, { title, low, high, label }) {
  const width = 320, height = 130, left = 44, bottom = 22, top = 8;
  const most = Math.max(...points.map((p) => p[0]), 1);
  const x = (n) => left + (Math.log1p(n) / Math.log1p(most)) * (width - left - 8);
  const y = (v) => top + (1 - (v - low) / (high - low || 1)) * (height - top - bottom);
  const line = points.map((p) => `${x(p[0]).toFixed(1)},${y(p[1]).toFixed(1)}`).join(" ");
  const text = (at, up, words, anchor = "middle") =>
    svg("text", { x: at, y: up, "text-anchor": anchor }, words);
  const ticks = [1, 10, 100, 1000, 10000, 100000].filter((n) => n <= most);
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
    svg("line", { x1: left, x2: width - 8, y1: y(Math.max(low, 0)), y2: y(Math.max(low, 0)), class: "axis" }),
    svg("polyline", { points: line, class: "line" }),
    text(left - 4, y(high) + 4, Number(high.toPrecision(2)), "end"),
    text(left - 4, y(low) + 4, Number(low.toPrecision(2)), "end"),
    ...ticks.map((n) => text(x(n), height - 6, n.toLocaleString("en"))));
  return h("figure", { class: "chart" }, h("figcaption", {}, title), drawing);
}

export function waterfall(why) {
  const values = why.waterfall.map((p) => p[1]);
  return chart(why.waterfall, {
    title: "Running sum of scores, strongest samples first",
    low: Math.min(0, ...values), high: Math.max(0, ...values, 1e-12),
    label: `Running sum of the scores of the strongest samples, ending at the logit ${signed(why.logit)}`,
  });
}

export function sparsity(why) {
  return chart(why.sparsity, {
    title: "Share of all evidence held by the strongest samples",
    low: 0, high: 1,
    label: "Share of the absolute evidence that the strongest samples hold",
  });
}

// One training sample. ``actions`` has choose(pair), and in a live page remove(pair) and relabel(pair).
export function card(pair, why, names, marks, actions) {
  const same = pair.label === why.target;
  const mark = marks?.get(pair.index);
  const name = `${same ? "" : "≠ "}${names[pair.label]}`;
  const words = `Training sample ${pair.index}, labelled ${names[pair.label]}, score ${signed(pair.score)}`;
  const share = h("span", { class: "share" });
  share.style.setProperty("--share", pair.share);
  const button = h("button", { class: "choose", type: "button", "aria-label": `${words}. Show its maps.`,
    onclick: () => actions.choose(pair), onmouseenter: () => actions.peek?.(pair), onfocus: () => actions.peek?.(pair) },
    sampleView(pair.sample, words, pair.train_map, why.full.train),
    h("span", { class: "label" }, name),
    h("span", { class: `score ${side(pair.score)}-ink` }, `τ = ${signed(pair.score)}`),
    share,
    h("span", { class: "quiet" }, `#${pair.index} · ${percent(pair.share)}`));
  const tools = actions.remove ? h("div", { class: "tools" },
    h("button", { type: "button", "aria-pressed": mark === "remove" ? "true" : "false", onclick: () => actions.remove(pair) }, "remove"),
    h("select", { "aria-label": `Relabel training sample ${pair.index}`, onchange: (event) => actions.relabel(pair, event.target.value) },
      h("option", { value: "" }, "relabel …"),
      names.map((other, c) => c === pair.label ? null
        : h("option", { value: c, selected: mark === c }, other)))) : null;
  return h("li", { class: `card ${side(pair.score)} ${same ? "" : "other"} ${mark !== undefined ? "marked" : ""}` }, button, tools);
}

// Both samples of a pair side by side.
export function pairView(pair, why, names) {
  const test = `The test sample, with what training sample ${pair.index} rests on`;
  const train = `Training sample ${pair.index}, labelled ${names[pair.label]}`;
  return h("div", { class: "pair" },
    h("figure", {}, sampleView(pair.sample, train, pair.train_map, why.full.train, true),
      h("figcaption", {}, `training sample ${pair.index}, `, h("b", {}, names[pair.label])), scaleKey(why.full.train, "train maps")),
    h("figure", {}, sampleView(why.sample, test, pair.test_map, why.full.test, true),
      h("figcaption", {}, "test sample"), scaleKey(why.full.test, "test maps")),
    h("p", { class: "quiet" }, `τ = ${signed(pair.score)}, λ = ${signed(pair.coefficient)}: `,
      pair.score >= 0 ? "evidence for " : "evidence against ", h("b", {}, names[why.target]),
      `. Blue speaks for ${names[why.target]}, orange against it.`));
}

export function conceptStrip(strip, names) {
  return h("div", { class: "concepts" }, strip.parts.map((part) => h("section", {},
    h("h4", {}, part.name, " ", h("span", { class: `${side(part.score)}-ink` }, signed(part.score))),
    h("div", { class: "pair" },
      sampleView(strip.train, `Training sample ${strip.index} through ${part.name}`, part.train_map, strip.full.train),
      sampleView(strip.test, `Test sample through ${part.name}`, part.test_map, strip.full.test)),
    h("div", { class: "grid" }, part.samples.map((sample, i) =>
      sampleView(sample, `Support vector ${part.indices[i]}, which shows ${part.name} strongly`))))),
    h("p", { class: "quiet" }, `Parts of τ = ${signed(strip.score)} through directions of the features. `
      + "Below each, the support vectors that show it most."));
}

export function whatIf(answer, names) {
  const line = (side, title) => h("tr", {}, h("th", { scope: "row" }, title),
    h("td", {}, names[side.predicted]), h("td", {}, signed(side.logit)), h("td", {}, String(side.n_support)),
    h("td", {}, side.gap.toExponential(1)));
  const changed = answer.before.predicted !== answer.after.predicted;
  return h("div", { class: "answer" },
    h("p", {}, h("b", {}, changed ? `The surrogate’s class changes from ${names[answer.before.predicted]} to ${names[answer.after.predicted]}.`
      : `The surrogate’s class stays ${names[answer.after.predicted]}.`),
      ` Over all tests it changes for ${answer.changed_tests} of ${answer.n_tests.toLocaleString("en")}. Solved exactly in ${answer.seconds.toFixed(2)} s.`),
    h("table", {}, h("thead", {}, h("tr", {}, ["", "class", `logit of ${names[answer.target]}`, "support vectors", "gap"].map((t) => h("th", { scope: "col" }, t)))),
      h("tbody", {}, line(answer.before, "before"), line(answer.after, "after"))));
}

export function busy(element, words) {
  return replace(element, h("p", { class: "busy", role: "status" }, words));
}
