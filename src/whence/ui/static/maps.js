// Samples with relevance over them: pictures, texts and values.

import { h, short, signed } from "./dom.js";

const BLUE = [0, 114, 178];
const ORANGE = [213, 94, 0];

function bytes(text) {
  const raw = atob(text);
  const out = new Int8Array(raw.length);
  for (let i = 0; i < raw.length; i++) out[i] = raw.charCodeAt(i);
  return out;
}

function strength(value, full) {
  return full > 0 ? Math.max(-1, Math.min(1, value / full)) : 0;
}

function heat(map, full) {
  const canvas = h("canvas", { class: "heat", width: map.width, height: map.height, "aria-hidden": "true" });
  const context = canvas.getContext("2d");
  const picture = context.createImageData(map.width, map.height);
  const values = bytes(map.data);
  for (let i = 0; i < values.length; i++) {
    const part = strength((values[i] / 127) * map.most, full);
    picture.data.set(part > 0 ? BLUE : ORANGE, 4 * i);
    picture.data[4 * i + 3] = Math.round(255 * Math.abs(part));
  }
  context.putImageData(picture, 0, 0);
  return canvas;
}

function tokenView(sample, map, full, words) {
  const box = h("span", { class: "tokens", role: "group", "aria-label": words, dir: "auto" });
  sample.tokens.forEach((token, i) => {
    const value = map?.values[i] ?? 0, part = strength(value, full);
    const text = token.replaceAll("\r", "").replaceAll("\n", "↵");
    if (/^\s/.test(text)) box.append(" ");
    box.append(h("span", { title: map ? signed(value) : null, class: part ? (part > 0 ? "for" : "against") : null,
      "--strength": Math.abs(part).toFixed(2) }, text.trim() || "␣"));
  });
  return box;
}

// Bars of values; with a map they are bars of relevance, and values are told beside it.
function barView(sample, map, full, words) {
  const shown = (map ? map.values : sample.values).slice(0, 200);
  const most = map ? full : Math.max(...shown.map(Math.abs));
  return h("span", { class: "bars", role: "img", "aria-label": words }, shown.map((value, i) => h("span", {
    class: `${value >= 0 ? "up" : "down"} ${map ? (value >= 0 ? "for" : "against") : ""}`,
    title: map ? `value ${i}: ${short(sample.values[i])}, relevance ${signed(value)}` : `value ${i}: ${short(value)}`,
    "--height": Math.abs(strength(value, most)).toFixed(3) })));
}

// A sample; with a map, relevance lies over it. ``words`` say what it is to those who do not see it.
export function sampleView(sample, words, map = null, full = 0) {
  if (sample.kind === "text") return tokenView(sample, map, full, words);
  if (sample.kind === "values") return barView(sample, map, full, words);
  return h("span", { class: `picture ${sample.width > 64 ? "smooth" : ""} ${map ? "mapped" : ""}`, "--ratio": `${sample.width} / ${sample.height}` },
    h("img", { src: sample.src, alt: words, width: sample.width, height: sample.height }), map ? heat(map, full) : null);
}

export function scaleKey(full) {
  const end = full > 0 ? short(full) : "0";
  return h("p", { class: "key", title: "Relevance of the full colours" }, h("span", {}, `−${end}`),
    h("span", { class: "ramp", role: "img", "aria-label": "from orange, against, to blue, for" }), h("span", {}, `+${end}`));
}
