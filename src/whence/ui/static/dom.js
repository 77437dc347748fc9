// Elements, numbers and words. Text always goes in as text, never as HTML.

export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else if (value === true) element.setAttribute(name, "");
    else element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

export function signed(value) {
  const digits = Math.abs(value) >= 1000 ? value.toFixed(0) : Number(value).toPrecision(3);
  const text = Math.abs(value) >= 1e-4 || value === 0 ? String(Number(digits)) : Number(value).toExponential(1);
  return (value < 0 ? "" : "+") + text.replace("-", "−");
}

export function percent(share) {
  if (share > 0 && share < 0.0005) return "<0.1 %";
  if (share >= 0.9995 && share < 1) return ">99.9 %";
  return (100 * share).toFixed(1) + " %";
}

export function replace(element, ...children) {
  element.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

export function side(score) {
  return score >= 0 ? "for" : "against";
}
