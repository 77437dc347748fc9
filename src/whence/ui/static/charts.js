// Charts of how the scores of all training samples add up.

import { Name, count, glossed, h, short, side, signed, some, svg } from "./dom.js";

const STEPS = 5; // classes in a waterfall; the others are summed

// The steps of a waterfall: what the output starts from, the evidence of each label, and the sum.
function stepsOf(why) {
  const parts = why.tree?.parts ?? [], base = parts.find((part) => part.level === "base"), labels = parts.filter((part) => part.level === "label" || part.level === "rest");
  const named = labels.some((part) => part.level === "label") ? labels.map((part) => ({ name: new Name(part.name), score: part.score, n: part.count }))
    : [["for", why.evidence_for], ["against", why.evidence_against]].map(([, score], at) => ({ name: why.words.everything[at], score, n: 0 }));
  const ranked = named.toSorted((a, b) => Math.abs(b.score) - Math.abs(a.score)), rest = ranked.slice(STEPS);
  if (rest.length > 1) ranked.splice(STEPS, rest.length, { name: `${rest.length} others`, score: rest.reduce((sum, part) => sum + part.score, 0), n: rest.reduce((sum, part) => sum + part.n, 0) });
  return { base: base ? base.score : null, ranked };
}

// Evidence by class as one chart: from the base value, label by label, to the output.
export function waterfall(why) {
  const { base, ranked } = stepsOf(why), steps = [];
  let at = base ?? 0;
  if (base !== null) steps.push({ name: "base value", from: 0, to: base, kind: "base", words: signed(base) });
  for (const { name, score, n } of ranked) {
    steps.push({ name, from: at, to: at + score, kind: side(score), words: signed(score), n });
    at += score;
  }
  steps.push({ name: why.tree ? new Name(why.tree.name) : "sum", from: 0, to: at, kind: "sum", words: signed(at) });
  const low = Math.min(0, ...steps.flatMap(({ from, to }) => [from, to])), high = Math.max(0, ...steps.flatMap(({ from, to }) => [from, to])), room = high - low || 1;
  const place = (value) => (value - low) / room;
  const row = ({ name, from, to, kind, words, n }) => h("li", { class: `step ${kind}` }, h("span", { class: "name" }, name),
    h("span", { class: "lane", "--zero": place(0), "--from": place(Math.min(from, to)), "--to": place(Math.max(from, to)), "aria-hidden": "true" }, h("span", {})),
    h("b", { class: kind === "for" || kind === "against" ? `${kind}-ink` : "" }, words), h("span", { class: "quiet" }, n ? some(n, "sample") : ""));
  return h("figure", { class: "waterfall" }, h("figcaption", {}, `${why.question === "made of" ? "Evidence" : "Effects"} by label of the training samples`), h("ol", {}, steps.map(row)));
}

export function balance(why) {
  const most = Math.max(why.evidence_for, -why.evidence_against, 1e-30);
  const half = (value, share, word) => h("div", { class: `half ${word}` },
    h("span", { class: "bar", "--length": Math.abs(value) / most, "--share": share }, h("span", {})));
  return h("div", { class: "balance" },
    half(why.evidence_against, why.share_against, "against"), half(why.evidence_for, why.share_for, "for"),
    h("p", {}, h("span", { class: "against-ink" }, `${why.words.everything[1]}: ${signed(why.evidence_against)}`),
      h("b", {}, `sum${why.equation ? "" : ` ${why.words.total}`}: ${signed(why.total)}`),
      h("span", { class: "for-ink" }, `${why.words.everything[0]}: ${signed(why.evidence_for)}`)),
    why.equation ? h("p", { class: "equation" }, ...glossed(`${why.equation[0].toUpperCase()}${why.equation.slice(1)}.`)) : null,
    h("p", { class: "quiet" }, "The dark part of each bar is the share of the samples below."));
}

// About five round levels between two values.
function rounds(low, high) {
  const rough = (high - low || 1) / 4, ten = 10 ** Math.floor(Math.log10(rough)), step = [1, 2, 2.5, 5, 10].find((by) => by * ten >= rough) * ten;
  const first = Math.ceil(low / step - 1e-9);
  return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, i) => Number(((first + i) * step).toPrecision(12)));
}

function chart(points, { title, low, high, unit, label }) {
  const width = 360, height = 190, left = 52, right = 16, bottom = 44, top = 10;
  const most = Math.max(...points.map((p) => p[0]), 1);
  const x = (n) => left + (Math.log1p(n) / Math.log1p(most)) * (width - left - right);
  const y = (v) => top + (1 - (v - low) / (high - low || 1)) * (height - top - bottom);
  const text = (at, up, words, anchor = "middle") => svg("text", { x: at, y: up, "text-anchor": anchor }, words);
  const line = points.map((p) => `${x(p[0]).toFixed(1)},${y(p[1]).toFixed(1)}`).join(" ");
  const tens = [0, 1, 2, 3, 4, 5, 6].map((power) => 10 ** power).filter((n) => n === most || (n < most && x(most) - x(n) > 44)), ticks = [...tens, most].filter((n, i, all) => all.indexOf(n) === i);
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
    ...rounds(low, high).flatMap((v) => [svg("line", { x1: left, x2: width - right, y1: y(v), y2: y(v), class: v === 0 ? "axis zero" : "axis" }),
      text(left - 6, y(v) + 4, unit(v), "end")]),
    svg("polyline", { points: line, class: "line" }),
    svg("circle", { cx: x(points.at(-1)[0]), cy: y(points.at(-1)[1]), r: 3, class: "end" }),
    ...ticks.flatMap((n) => [svg("line", { x1: x(n), x2: x(n), y1: height - bottom + 2, y2: height - bottom + 7, class: "tick" }), text(x(n), height - bottom + 20, count(n), n === most ? "end" : "middle")]),
    text((left + width - right) / 2, height - 5, "training samples, strongest first"));
  return h("figure", { class: "chart" }, h("figcaption", {}, title), drawing);
}

// The ends of the running sum: from the base value, if there is one, to the output.
const ends = (why) => why.equation ? `${signed(why.base)} to ${signed(why.logit)}` : signed(why.n_members ? why.total : why.logit);

export function charts(why) {
  const sums = why.waterfall.map((p) => p[1]);
  const half = why.sparsity.find((p) => p[1] >= 0.5)?.[0] ?? 0;
  return h("div", { class: "charts" },
    sums.length === 0 ? null : chart(why.waterfall, {
      title: `${why.words.running}, ${ends(why)}`,
      low: Math.min(0, ...sums), high: Math.max(0, ...sums), unit: short,
      label: `${why.words.running}, ${ends(why)}: it ends at ${signed(sums.at(-1))}`,
    }),
    chart(why.sparsity, {
      title: `${why.words.held}: ${count(half)} samples hold half of it`,
      low: 0, high: 1, unit: (v) => `${Math.round(100 * v)} %`,
      label: `${why.words.held} that the strongest samples hold; ${half} of them hold half`,
    }));
}
