// Samples with relevance over them: pictures, texts and values.

import { h, signed } from "./dom.js";

const BLUE = [0, 114, 178];
const ORANGE = [213, 94, 0];

function bytes(text) {
  const raw = atob(text);
  const out = new Int8Array(raw.length);
  for (let i = 0; i < raw.length; i++) out[i] = raw.charCodeAt(i);
  return out;
}

export function strength(value, full) {
  return full > 0 ? Math.max(-1, Math.min(1, value / full)) : 0;
}

function heat(map, full) {
  const canvas = h("canvas", { class: "heat", width: map.width, height: map.height, "aria-hidden": "true" });
  const context = canvas.getContext("2d");
  const picture = context.createImageData(map.width, map.height);
  const values = bytes(map.data);
  for (let i = 0; i < values.length; i++) {
    const part = strength((values[i] / 127) * map.most, full);
    const colour = part > 0 ? BLUE : ORANGE;
    picture.data.set([...colour, Math.round(255 * Math.abs(part))], 4 * i);
  }
  context.putImageData(picture, 0, 0);
  return canvas;
}

function tokenView(sample, map, full, words) {
  const box = h("div", { class: "tokens", role: "img", "aria-label": words });
  sample.tokens.forEach((token, i) => {
    const value = map ? map.values[i] ?? 0 : 0;
    const span = h("span", map ? { title: signed(value) } : {}, token.trimStart());
    const part = strength(value, full);
    if (part) {
      span.classList.add(part > 0 ? "for" : "against");
      span.style.setProperty("--strength", Math.abs(part).toFixed(2));
    }
    if (token.startsWith(" ")) box.append(" ");
    box.append(span);
  });
  return box;
}

function barView(values, full, words) {
  const box = h("div", { class: "bars", role: "img", "aria-label": words });
  const most = Math.max(...values.map(Math.abs), 1e-30);
  values.slice(0, 200).forEach((value) => {
    const bar = h("span", { class: value >= 0 ? "for" : "against", title: signed(value) });
    bar.style.setProperty("--height", (Math.abs(value) / (full || most)).toFixed(3));
    box.append(bar);
  });
  return box;
}

// A sample; with a map, relevance lies over it. ``words`` say what it is to those who do not see it.
export function sampleView(sample, words, map = null, full = 0, large = false) {
  if (sample.kind === "text") return tokenView(sample, map, full, words);
  if (sample.kind === "values") return barView(map ? map.values : sample.values, full, words);
  const image = h("img", { src: sample.src, alt: words, width: sample.width, height: sample.height });
  const box = h("div", { class: large ? "picture large" : "picture" }, image);
  box.style.setProperty("--ratio", `${sample.width} / ${sample.height}`);
  if (sample.width > 64) box.classList.add("smooth");
  if (map) {
    box.classList.add("mapped");
    box.append(heat(map, full));
  }
  return box;
}

export function scaleKey(full, words) {
  return h(
    "div",
    { class: "key" },
    h("span", {}, words),
    h("span", { class: "ramp", "aria-hidden": "true" }),
    h("span", {}, full > 0 ? `±${Number(full.toPrecision(3))}` : "all 0"),
  );
}
