// Elements, numbers and words. Text always goes in as text, never as HTML.

const present = (child) => child !== null && child !== undefined;

// A class's name: in words the ends of a long one, and all of it where one points at it.
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

// Text with the first of each word of the glossary as a control that tells what it means; the page holds the list.
export function glossed(text) {
  const terms = [...document.querySelectorAll(".glossary dd")], seen = new Set(), parts = [];
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

// A line for those who hear the page.
export function tell(words) {
  place("status").textContent = words;
}

export const count = (n) => n.toLocaleString("en");

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

export const side = (score) => (score >= 0 ? "for" : "against");
