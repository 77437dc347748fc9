// Samples with their relevance: pictures next to their maps, texts and values in colour.

import { h, short, signed } from "./dom.js";

const BLUE = [0, 114, 178];
const ORANGE = [213, 94, 0];
const PAPER = 249, LINES = 51; // the background of maps, and how much darker contours are

function strength(value, full) {
  return full > 0 ? Math.max(-1, Math.min(1, value / full)) : 0;
}

// The pixels of a decoded picture.
async function pixels(src, width, height) {
  const image = new Image();
  image.src = src;
  await image.decode();
  const context = h("canvas", { width, height }).getContext("2d", { willReadFrequently: true });
  context.drawImage(image, 0, 0, width, height);
  return context.getImageData(0, 0, width, height).data;
}

// The edges of a picture, from 0 to 1 in each pixel.
function contours(data, width, height) {
  const grey = (x, y) => { const i = 4 * (y * width + x); return (data[i] + data[i + 1] + data[i + 2]) / 765; };
  const found = new Float32Array(width * height);
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      const across = grey(Math.min(x + 1, width - 1), y) - grey(Math.max(x - 1, 0), y);
      const down = grey(x, Math.min(y + 1, height - 1)) - grey(x, Math.max(y - 1, 0));
      found[y * width + x] = Math.hypot(across, down);
    }
  }
  const most = found.toSorted()[Math.floor(0.98 * (found.length - 1))] || 1;
  return found.map((value) => Math.min(1, value / most));
}

// Relevance in colour: on paper with the contours of the picture, or over the picture if that is switched on.
function heat(sample, map, full) {
  const size = { width: map.width, height: map.height };
  const ground = h("canvas", { class: "ground", ...size, "aria-hidden": "true" }), canvas = h("canvas", { class: "heat", ...size, "aria-hidden": "true" });
  pixels(map.src, map.width, map.height).then((values) => {
    const context = canvas.getContext("2d"), picture = context.createImageData(map.width, map.height);
    for (let i = 0; i < map.width * map.height; i++) {
      const part = strength(((values[4 * i] - 128) / 127) * map.most, full);
      picture.data.set(part > 0 ? BLUE : ORANGE, 4 * i);
      picture.data[4 * i + 3] = Math.round(255 * Math.abs(part));
    }
    context.putImageData(picture, 0, 0);
    canvas.dataset.drawn = "";
  });
  pixels(sample.src, map.width, map.height).then((values) => {
    const context = ground.getContext("2d"), picture = context.createImageData(map.width, map.height);
    contours(values, map.width, map.height).forEach((edge, i) => { picture.data.fill(PAPER - LINES * edge, 4 * i, 4 * i + 3); picture.data[4 * i + 3] = 255; });
    context.putImageData(picture, 0, 0);
  });
  return [ground, canvas];
}

// The tokens of a text in a range, each coloured by its relevance; tokens without text are empty.
function marked(tokens, map, full, from, to) {
  const found = [];
  for (let i = from; i < to; i++) {
    const token = tokens[i], lead = /^\s*/.exec(token)[0], word = token.trim();
    if (!token) continue;
    if (lead.includes("\n") && word && i > from) found.push(h("br")); else if (lead) found.push(" ");
    const value = map?.values[i] ?? 0, part = strength(value, full);
    found.push(h("span", { title: map ? signed(value) : null, class: part ? (part > 0 ? "for" : "against") : null,
      "--strength": Math.abs(part).toFixed(2) }, word || (token.includes("\n") ? "↵" : "␣")));
  }
  return found;
}

// The most relevant words of a text from a token on, in their colours.
function strongest(tokens, map, full, from) {
  const words = [], sums = new Map();
  for (let i = from; i < tokens.length; i++) {
    if (!words.length || /^\s/.test(tokens[i])) words.push({ text: "", value: 0 });
    words.at(-1).text += tokens[i];
    words.at(-1).value += map.values[i];
  }
  for (const word of words) { // repeated words count by their sum
    const text = word.text.replace(/^[^\p{L}\p{N}]+|[^\p{L}\p{N}]+$/gu, ""), key = text.toLowerCase();
    if (text) sums.set(key, { text: sums.get(key)?.text ?? text, value: (sums.get(key)?.value ?? 0) + word.value });
  }
  return [...sums.values()].sort((a, b) => Math.abs(b.value) - Math.abs(a.value)).slice(0, 4).flatMap(({ text, value }) =>
    [" ", h("span", { class: value > 0 ? "for" : "against", title: signed(value), "--strength": Math.abs(strength(value, full)).toFixed(2) }, text)]);
}

// A text with its headline; ``folds`` folds the rest.
function textView(sample, map, full, words, folds) {
  const { tokens, headline } = sample, n = tokens.length, outside = map && Math.abs(map.outside) > 0.1 * map.values.reduce((sum, value) => sum + Math.abs(value), 0) ? h("span", { class: "quiet" }, `${signed(map.outside)} is on special tokens outside the text.`) : null;
  const rest = marked(tokens, map, full, headline, n);
  const box = (...parts) => h("span", { class: "tokens", role: "group", "aria-label": words, dir: "auto" }, ...parts);
  if (!headline) return box(...rest, outside);
  const head = h("b", { class: "headline" }, ...marked(tokens, map, full, 0, headline));
  if (!folds) return box(head, " ", ...rest, outside);
  return h("div", { class: "tokens", role: "group", "aria-label": words, dir: "auto" }, head,
    h("details", { open: folds === "open" }, h("summary", {}, "the rest", map ? ", strongest:" : null, ...(map ? strongest(tokens, map, full, headline) : [])), ...rest), outside);
}

// Bars of values; with a map, bars of relevance with the values in the tooltip.
function barView(sample, map, full, words) {
  const shown = (map ? map.values : sample.values).slice(0, 200);
  const most = map ? full : Math.max(...shown.map(Math.abs));
  return h("span", { class: "bars", role: "img", "aria-label": words }, shown.map((value, i) => h("span", {
    class: `${value >= 0 ? "up" : "down"} ${map ? (value >= 0 ? "for" : "against") : ""}`,
    title: map ? `value ${i}: ${short(sample.values[i])}, relevance ${signed(value)}` : `value ${i}: ${short(value)}`,
    "--height": Math.abs(strength(value, most)).toFixed(3) })));
}

// The row of a table, each feature with its name; with a map those of most relevance, and that.
function rowView(sample, map, full, words) {
  const order = sample.names.map((_, i) => i), n = 12;
  const chosen = map ? order.toSorted((a, b) => Math.abs(map.values[b]) - Math.abs(map.values[a])).slice(0, n).toSorted((a, b) => a - b) : order.slice(0, n);
  const rows = chosen.map((i) => h("div", {}, h("dt", {}, sample.names[i], map ? h("small", { class: "quiet" }, ` ${short(sample.values[i])}`) : null), map
    ? h("dd", { class: map.values[i] > 0 ? "for" : "against", title: short(sample.values[i]), "--strength": Math.abs(strength(map.values[i], full)).toFixed(2) }, signed(map.values[i]))
    : h("dd", {}, short(sample.values[i]))));
  return h("dl", { class: "row", "aria-label": words }, ...rows, order.length > n ? h("div", { class: "quiet" }, h("dt", {}, `${order.length - n} more`)) : null);
}

// A sample; a picture with a map is shown next to it. ``words`` describe it to screen readers.
export function sampleView(sample, words, map = null, full = 0, folds = "") {
  if (sample.kind === "text") return textView(sample, map, full, words, folds);
  if (sample.names && sample.names.length === (map?.values ?? sample.values).length) return rowView(sample, map, full, words);
  if (sample.kind === "values") return barView(sample, map, full, words);
  const picture = (alt, ...over) => h("span", { class: `picture ${sample.width > 64 ? "smooth" : ""} ${over.length ? "mapped" : ""}`, "--ratio": `${sample.width} / ${sample.height}` },
    h("img", { src: sample.src, alt, width: sample.width, height: sample.height }), ...over);
  return map ? h("span", { class: "twin" }, picture(words), picture(`Relevance on it: ${words}`, ...heat(sample, map, full))) : picture(words);
}

export function scaleKey(full) {
  const end = full > 0 ? short(full) : "0";
  return h("p", { class: "key", title: "Relevance of the full colours" }, h("span", {}, `−${end}`),
    h("span", { class: "ramp", role: "img", "aria-label": "from orange, against, to blue, for" }), h("span", {}, `+${end}`));
}
