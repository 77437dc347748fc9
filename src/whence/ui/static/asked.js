// The question of what if in words of the address: ranges and rules, not thousands of indices.

const LETTERS = 1500; // the longest question in an address
const MARKS = 1000, GROUPS = 20; // the most that a question may have

// Indices in words, such as 3_17_40-60.
function rangesOf(places) {
  const found = [];
  for (const index of [...places].sort((a, b) => a - b)) {
    if (found.length && index === found.at(-1)[1] + 1) found.at(-1)[1] = index; else found.push([index, index]);
  }
  return found.map(([first, last]) => first === last ? first : `${first}-${last}`).join("_");
}

function placesOf(words) {
  const found = [];
  for (const [, first, last] of words.matchAll(/(?<=^|_)(\d{1,9})(?:-(\d{1,9}))?(?=_|$)/g)) {
    for (let index = +first; index <= +(last ?? first) && found.length < MARKS; index += 1) found.push(index);
  }
  return found;
}

// A question as names and values of the address; null if it is too long.
export function askedWords({ remove, relabel, groups }) {
  const words = [], labels = [...new Set(Object.values(relabel))];
  if (remove.length) words.push(["without", rangesOf(remove)]);
  for (const label of labels) words.push(["as", `${label}.${rangesOf(Object.keys(relabel).filter((index) => relabel[index] === label).map(Number))}`]);
  for (const { by, label, search, to } of groups) words.push(["group", [by === "wrong labels" ? "found" : label ?? "any", to ?? "removed", search].filter((part) => part !== undefined && part !== "").join(".")]);
  return new URLSearchParams(words).toString().length > LETTERS ? null : words;
}

// The question in the address, with classes up to ``last``; null if there is none.
export function readAsked(last, hash = location.hash) {
  const words = new URLSearchParams(hash.slice(1)), marks = new Map();
  const classOf = (text) => /^\d{1,9}$/.test(text) && +text <= last ? +text : undefined;
  for (const index of placesOf(words.get("without") ?? "")) marks.set(index, "remove");
  for (const value of words.getAll("as")) {
    const [label, places = ""] = value.split("."), to = classOf(label);
    if (to !== undefined) for (const index of placesOf(places)) if (marks.size < MARKS && !marks.has(index)) marks.set(index, to);
  }
  const groups = words.getAll("group").slice(0, GROUPS).map((value) => groupOf(value.split("."), classOf)).filter(Boolean);
  return marks.size || groups.length ? { marks, groups } : null;
}

function groupOf([of, become = "", ...rest], classOf) {
  const found = of === "found", label = of === "any" ? null : classOf(of), search = rest.join(".").slice(0, 200).trim();
  const to = become === "removed" ? null : found && become === "suggested" ? become : classOf(become);
  if (to === undefined || (!found && (label === undefined || (label === null && !search)))) return null;
  return found ? { by: "wrong labels", to, n: null } : { by: "samples", label, search, to, n: null };
}
