// Elements, numbers and words. Text always goes in as text, never as HTML.

const present = (child) => child !== null && child !== undefined;

// A class's name: a long one is shortened to its ends, with all of it as a tooltip.
export class Name {
  constructor(whole) {
    const letters = [...whole];
    Object.assign(this, { whole, short: letters.length <= 60 ? whole : `${letters.slice(0, 40).join("")}…${letters.slice(-19).join("")}` });
  }

  toString() {
    return this.short;
  }
}

const shown = (child) => child instanceof Name && child.short !== child.whole ? h("span", { title: child.whole }, child.short) : child;

export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else if (name.startsWith("--")) element.style.setProperty(name, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter(present).map(shown));
  return element;
}

// Text in which the first occurrence of each glossary term is a control that shows its meaning.
export function glossed(text) {
  const terms = [...document.querySelectorAll(".glossary dd")], seen = new Set(), parts = [];
  if (!terms.length) return [text];
  const any = new RegExp(terms.map((term, i) => `(?<t${i}>${term.dataset.forms})`).join("|"), "g");
  let end = 0;
  for (const match of text.matchAll(any)) {
    const at = Object.values(match.groups).findIndex((found) => found !== undefined), term = terms[at];
    if (seen.has(at)) continue;
    seen.add(at);
    parts.push(text.slice(end, match.index), h("button", { type: "button", class: "term", "aria-describedby": term.id, "data-meaning": term.textContent }, match[0]));
    end = match.index + match[0].length;
  }
  return [...parts, text.slice(end)];
}

export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

export function replace(element, ...children) {
  element.replaceChildren(...children.flat().filter(present));
  return element;
}

export const place = (id) => document.getElementById(id);

export function fail(element, error) {
  return replace(element, h("p", { class: "error", role: "alert" }, error.message));
}

// A line for screen readers, and with ``seen`` for everyone.
export function announce(words, seen = false) {
  place("status").textContent = words;
  place("status").classList.toggle("seen", seen);
}

export const count = (n) => n.toLocaleString("en");

// A count and a noun, with a plural s.
export const some = (n, word) => `${count(n)} ${word}${n === 1 ? "" : "s"}`;

export function short(value) {
  const size = Math.abs(value);
  if (value !== 0 && (size < 1e-3 || size >= 1e5)) return value.toExponential(1).replaceAll("-", "−").replace("e+", "e");
  return String(Number(value.toPrecision(3))).replace("-", "−");
}

export const signed = (value) => (value < 0 ? "" : "+") + short(value);

export function percent(share) {
  if (share > 0 && share < 0.0005) return "<0.1 %";
  if (share >= 0.9995 && share < 1) return ">99.9 %";
  return `${(100 * share).toFixed(1)} %`;
}

// A share that may be negative.
export const part = (share) => (share < 0 ? `−${percent(-share)}` : percent(share));

export const side = (score) => (score >= 0 ? "for" : "against");

// A list is one tab stop; arrows move between its items. ``chosen`` is the item that Tab enters.
export function roving(holder, selector) {
  const items = () => [...holder.querySelectorAll(selector)];
  const settle = (chosen) => items().forEach((item) => { item.tabIndex = item === chosen ? 0 : -1; });
  holder.addEventListener("focusin", (event) => { const item = event.target.closest(selector); if (item) settle(item); });
  holder.addEventListener("keydown", (event) => {
    const all = items(), at = all.indexOf(event.target);
    if (at < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    const next = { Home: 0, End: all.length - 1, ArrowLeft: at - 1, ArrowRight: at + 1, ArrowUp: at - across(all), ArrowDown: at + across(all) }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    all[next]?.focus();
  });
  return (chosen) => settle(chosen ?? items()[0]);
}

// The number of items per row.
function across(items) {
  const below = items.findIndex((item) => item.getBoundingClientRect().top > items[0].getBoundingClientRect().top + 4);
  return below < 1 ? 1 : below;
}

export const PAGE = 24; // samples of a list at a time

// The buttons and the range of a paged list.
export function pager(load) {
  const earlier = h("button", { type: "button", onclick: () => load(-1) }, "earlier"), later = h("button", { type: "button", onclick: () => load(1) }, "later");
  const range = h("span", {}), box = h("p", { class: "pager" }, earlier, " ", range, " ", later);
  const draw = (offset, shown, total, more = "") => {
    range.textContent = total ? `${count(offset + 1)}–${count(offset + shown)} of ${count(total)}${more}` : "none";
    earlier.disabled = offset === 0;
    later.disabled = offset + shown >= total;
  };
  return { box, draw };
}

// Show the progress of long work in ``box``.
export function progress(box, what) {
  const words = h("span", {}, what), bar = h("progress", { "aria-label": what });
  replace(box, h("div", { class: "busy working", role: "status" }, words, " ", bar));
  return ({ seconds, what: step, done, total }) => {
    words.textContent = [what, step, total ? `${count(done)} of ${count(total)}` : "", `${seconds.toFixed(0)} s`].filter(Boolean).join(" · ");
    if (total) Object.assign(bar, { max: total, value: done }); else bar.removeAttribute("value");
  };
}
