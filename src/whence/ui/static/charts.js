// How the scores of all training samples add up.

import { count, h, short, signed, svg } from "./dom.js";

export function balance(why) {
  const most = Math.max(why.evidence_for, -why.evidence_against, 1e-30);
  const half = (value, share, word) => h("div", { class: `half ${word}` },
    h("span", { class: "bar", "--length": Math.abs(value) / most, "--share": share }, h("span", {})));
  return h("div", { class: "balance" },
    half(why.evidence_against, why.share_against, "against"), half(why.evidence_for, why.share_for, "for"),
    h("p", {}, h("span", { class: "against-ink" }, `${why.words.everything[1]}: ${signed(why.evidence_against)}`),
      h("b", {}, why.question !== "made of" ? `sum ${why.words.total}: ${signed(why.total)}`
        : why.speech === "number" ? `sum: ${signed(why.total)}, from ${short(why.base)} to ${short(why.logit)}` : `logit: ${signed(why.logit)}`),
      h("span", { class: "for-ink" }, `${why.words.everything[0]}: ${signed(why.evidence_for)}`)),
    h("p", { class: "quiet" }, "The strong part of each bar is what the samples below hold."));
}

function chart(points, { title, low, high, unit, label }) {
  const width = 340, height = 150, left = 46, right = 14, bottom = 34, top = 10;
  const most = Math.max(...points.map((p) => p[0]), 1);
  const x = (n) => left + (Math.log1p(n) / Math.log1p(most)) * (width - left - right);
  const y = (v) => top + (1 - (v - low) / (high - low || 1)) * (height - top - bottom);
  const text = (at, up, words, anchor = "middle") => svg("text", { x: at, y: up, "text-anchor": anchor }, words);
  const line = points.map((p) => `${x(p[0]).toFixed(1)},${y(p[1]).toFixed(1)}`).join(" ");
  const ticks = [1, 10, 100, 1000, 10000, 100000].filter((n) => n <= most);
  const levels = [...new Set([low, Math.max(low, Math.min(0, high)), high])];
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
    ...levels.flatMap((v) => [svg("line", { x1: left, x2: width - right, y1: y(v), y2: y(v), class: "axis" }),
      text(left - 5, y(v) + 3.5, unit(v), "end")]),
    svg("polyline", { points: line, class: "line" }),
    svg("circle", { cx: x(points.at(-1)[0]), cy: y(points.at(-1)[1]), r: 2.6, class: "end" }),
    ...ticks.map((n) => text(x(n), height - 20, count(n))),
    text((left + width - right) / 2, height - 5, "training samples, strongest first"));
  return h("figure", { class: "chart" }, h("figcaption", {}, title), drawing);
}

// What the running sum is to end at.
const ends = (why) => signed(why.speech === "number" ? why.total : why.logit);

export function charts(why) {
  const sums = why.waterfall.map((p) => p[1]);
  const half = why.sparsity.find((p) => p[1] >= 0.5)?.[0] ?? 0;
  return h("div", { class: "charts" },
    chart(why.waterfall, {
      title: `${why.words.running}, ${ends(why)}`,
      low: Math.min(0, ...sums), high: Math.max(0, ...sums), unit: short,
      label: `${why.words.running}, ${ends(why)}: it ends at ${signed(why.total)}`,
    }),
    chart(why.sparsity, {
      title: `${why.words.held}: ${count(half)} samples hold half of it`,
      low: 0, high: 1, unit: (v) => `${100 * v} %`,
      label: `${why.words.held} that the strongest samples hold; ${half} of them hold half`,
    }));
}
