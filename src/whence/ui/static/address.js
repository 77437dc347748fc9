// What is chosen, in the address: a reload, a bookmark and whoever is sent it see the same.

const VIEWS = { "made-of": "made of", "would-change": "would change" };
const TABS = ["explore", "audit", "classes"];

// What the address names, as far as there is such a thing; null or what is usual for the rest.
export function readAddress(info) {
  const words = new URLSearchParams(location.hash.slice(1));
  const whole = (name, least, most) => /^\d{1,9}$/.test(words.get(name) ?? "") && +words.get(name) >= least && +words.get(name) <= most ? +words.get(name) : null;
  const C = info.Cs.find((value) => String(value) === words.get("C"));
  return {
    tab: TABS.includes(words.get("tab")) ? words.get("tab") : "explore",
    test: whole("test", 0, 1e9), pair: whole("pair", 0, 1e9),
    choice: { k: whole("k", 1, 20) ?? 5, target: whole("class", 0, info.classes.length - 1), C: C ?? null, question: VIEWS[words.get("view")] ?? "made of" },
  };
}

// Another test is a step that the browser's "back" takes back; all else is written over.
export function writeAddress(info, { tab, test, pair, choice }) {
  const words = new URLSearchParams(), before = new URLSearchParams(location.hash.slice(1)).get("test");
  if (tab !== "explore") words.set("tab", tab);
  if (test !== null) words.set("test", test);
  if (choice.target !== null) words.set("class", choice.target);
  if (choice.question !== "made of") words.set("view", Object.keys(VIEWS).find((view) => VIEWS[view] === choice.question));
  if (choice.C !== null && choice.C !== info.C) words.set("C", choice.C);
  if (choice.k !== 5) words.set("k", choice.k);
  if (pair !== null) words.set("pair", pair);
  const address = words.size ? `#${words}` : " ";
  if ((location.hash || " ") === address) return;
  if (before !== null && words.get("test") !== before) history.pushState(null, "", address);
  else history.replaceState(null, "", address);
}
