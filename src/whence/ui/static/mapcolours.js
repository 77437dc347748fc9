// The colours of the map: hues that stay apart with any common colour vision deficiency, and ramps of values.

const HUES = ["#3f90da", "#ffa90e", "#bd1f01", "#94a4a2", "#832db6", "#a96b59", "#e76300", "#b9ac70", "#717581", "#92dadd"]; // Petroff (2021)
const HUES_DARK = ["#4f9de6", "#ffa90e", "#e0452b", "#94a4a2", "#a65bd8", "#b97c69", "#f07a1c", "#b9ac70", "#7d8291", "#92dadd"];
const RAMPS = {
  size: { light: ["#e3dfec", "#9f7cc8", "#3d0a6b"], dark: ["#37343f", "#8f68c2", "#f0dcff"] },
  signed: { light: ["#b04a00", "#f0a05a", "#e6e3de", "#5fa8d8", "#005a94"], dark: ["#ff9a4a", "#a05a1e", "#33363c", "#2d6f9f", "#6cc4ff"] },
};
const REST = { light: "#d6d2ca", dark: "#42454c" }; // points without a colour
export const MOST_HUES = HUES.length;

const scheme = () => (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
const channels = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
const packed = ([r, g, b]) => (255 << 24 | b << 16 | g << 8 | r) >>> 0; // a pixel of a canvas, on little-endian machines

export const hueOf = (place) => (scheme() === "dark" ? HUES_DARK : HUES)[place % HUES.length];
export const inkOf = (hex) => packed(channels(hex));
export const restInk = () => inkOf(REST[scheme()]);
export const edgeInk = () => inkOf(scheme() === "dark" ? "#f4f2ee" : "#1c1b19");
export const rampStops = (kind) => RAMPS[kind][scheme()];

// 256 pixels along a ramp.
function rampInks(kind) {
  const stops = rampStops(kind).map(channels), inks = new Uint32Array(256);
  for (let i = 0; i < 256; i += 1) {
    const at = (i / 255) * (stops.length - 1), low = Math.min(Math.floor(at), stops.length - 2), part = at - low;
    inks[i] = packed(stops[low].map((value, c) => Math.round(value + part * (stops[low + 1][c] - value))));
  }
  return inks;
}

// The ends of a ramp: beyond them lie at most half a per cent of the values at each end.
export function rangeOf(values, kind) {
  const known = values.filter((value) => !Number.isNaN(value)).sort();
  if (!known.length) return [0, 1];
  const at = (share) => known[Math.round(share * (known.length - 1))];
  if (kind === "size") { const low = at(0.005), high = at(0.995); return [low, high > low ? high : low + 1]; }
  const most = Math.max(Math.abs(at(0.0025)), Math.abs(at(0.9975))) || Math.max(Math.abs(known[0]), Math.abs(known.at(-1))) || 1;
  return [-most, most];
}

// The pixel of each point, and the order in which points are drawn: the last lie on top.
export function paint({ values, kind, chosen }) {
  const n = values.length, inks = new Uint32Array(n).fill(restInk()), weight = new Float32Array(n).fill(-1);
  if (kind === "class") {
    const hues = new Map([...chosen].map(([label, place]) => [label, inkOf(hueOf(place))]));
    for (let i = 0; i < n; i += 1) { const ink = hues.get(values[i]); if (ink !== undefined) { inks[i] = ink; weight[i] = 0; } }
  } else {
    const ramp = rampInks(kind), [low, high] = rangeOf(values, kind);
    for (let i = 0; i < n; i += 1) {
      if (Number.isNaN(values[i])) continue;
      inks[i] = ramp[Math.max(0, Math.min(255, Math.round(255 * (values[i] - low) / (high - low))))];
      weight[i] = kind === "signed" ? Math.abs(values[i]) : values[i] - low;
    }
  }
  const [low, high] = kind === "class" ? [0, Infinity] : rangeOf(values, kind), far = kind === "signed" ? 0.15 * high : 0.6 * (high - low);
  return { inks, rims: rimsOf(inks), order: ordered(weight), large: Uint8Array.from(weight, (value) => value > far), testsOnTop: kind === "class" };
}

// The edge of each point: its colour, half way to the ink of the page; grey points keep theirs.
function rimsOf(inks) {
  const rest = restInk(), edge = edgeInk(), grey = inkOf(scheme() === "dark" ? "#74787f" : "#a39d93");
  return inks.map((ink) => (ink === rest ? grey : (((ink >>> 1) & 0x7f7f7f7f) + ((edge >>> 1) & 0x7f7f7f7f) | 0xff000000) >>> 0));
}

function ordered(weight) {
  const order = new Uint32Array(weight.length).map((_, i) => i);
  if (weight.every((value) => value <= 0)) { // classes: a mix of all, grey below
    const rest = order.filter((i) => weight[i] < 0), front = order.filter((i) => weight[i] >= 0);
    order.set(rest);
    order.set(front, rest.length);
    return order;
  }
  return order.sort((a, b) => weight[a] - weight[b]);
}
