// The address holds the page's state: reloads, bookmarks and shared links show the same, and "back" works.

const VIEWS = { "made-of": "made of", "would-change": "would change" };
const TABS = ["start", "explore", "compare", "audit", "map", "duplicates", "classes", "concepts", "whatif"];
const MAPS = ["none", "split", "over"];
const COLOURINGS = ["label", "predicted", "label doubt", "self-influence", "score", "effect"]; // of the map
const TICKS = ["wrong", "disagree", "novel"];

// The state of an empty address.
export const plain = () => ({
  tab: "explore", test: null, pair: null, one: null, other: null, from: 0, by: "label", maps: null, slice: "",
  choice: { k: 5, target: null, against: null, C: null, question: "made of" },
  query: { label: "", predicted: "", search: "", order: "number", slice: "", wrong: false, disagree: false, novel: false, offset: 0 },
});

// The state that the address names; null or the default for what it does not name or what does not exist.
export function readAddress(info, hash = location.hash) {
  const words = new URLSearchParams(hash.slice(1)), found = plain(), last = info.classes.length - 1;
  const whole = (name, least = 0, most = 1e9) => /^\d{1,9}$/.test(words.get(name) ?? "") && +words.get(name) >= least && +words.get(name) <= most ? +words.get(name) : null;
  for (const name of ["test", "pair"]) found[name] = whole(name);
  for (const name of ["one", "other"]) found[name] = whole(name, 0, last);
  found.from = whole("from") ?? 0;
  found.maps = MAPS.includes(words.get("maps")) ? words.get("maps") : null;
  if (COLOURINGS.includes(words.get("by"))) found.by = words.get("by");
  const { choice, query } = found;
  Object.assign(choice, { k: whole("k", 1, 20) ?? 5, target: whole("class", 0, last), C: info.Cs.find((value) => String(value) === words.get("C")) ?? null,
    question: VIEWS[words.get("view")] ?? "made of" });
  choice.against = !info.contrasts ? null : words.get("against") === "runner-up" ? "runner-up" : whole("against", 0, last);
  if (choice.against === choice.target) choice.against = null;
  for (const name of ["label", "predicted"]) query[name] = whole(name, 0, last)?.toString() ?? "";
  for (const name of TICKS) query[name] = words.get(name) === "1";
  query.search = (words.get("search") ?? "").slice(0, 100);
  (words.get("tab") === "whatif" ? found : query).slice = (words.get("slice") ?? "").slice(0, 80);
  query.order = words.get("order") === "least-certain" ? "least certain" : "number";
  query.offset = whole("skip") ?? 0;
  found.tab = tabOf(hash);
  return found;
}

// The view that the address names: predictions for a test or a list, the start for an empty address.
export function tabOf(hash = location.hash) {
  const words = new URLSearchParams(hash.slice(1)), listed = ["test", "skip", ...Object.keys(plain().query)];
  if (TABS.includes(words.get("tab"))) return words.get("tab");
  return listed.some((name) => words.has(name)) ? "explore" : "start";
}

// The address of a state; ``part`` names what differs from the default.
export function addressOf(info, part) {
  const { tab, test, pair, one, other, from, by, maps, slice, choice, query } = { ...plain(), ...part }, words = new URLSearchParams();
  const note = (name, value, plain) => { if (value !== plain && value !== null && value !== undefined) words.set(name, value); };
  note("tab", tab, "explore");
  note("test", test, null);
  const of = { ...plain().choice, ...choice };
  note("class", of.target, null);
  note("against", of.against, null);
  note("view", Object.keys(VIEWS).find((view) => VIEWS[view] === of.question), "made-of");
  note("C", of.C, info.C);
  note("k", of.k, 5);
  note("pair", pair, null);
  if (tab === "classes") { note("one", one, null); note("other", other, null); }
  if (tab === "map") note("by", by, "label");
  note("from", from, 0);
  const list = { ...plain().query, ...query };
  for (const name of ["label", "predicted", "search", "slice"]) note(name, list[name], "");
  if (tab === "whatif") words.delete("slice");
  if (tab === "whatif") note("slice", slice, "");
  for (const name of TICKS) note(name, list[name] ? 1 : null, null);
  note("order", list.order === "number" ? null : "least-certain", null);
  note("skip", list.offset, 0);
  note("maps", maps, info.kind === "image" ? "none" : "split");
  return words.size ? `#${words}` : "#tab=explore";
}

// Another view, test, class, question or C is a step in the history; other changes replace the address.
export function writeAddress(info, state, over = false) {
  const address = addressOf(info, { ...state, query: state.list?.query });
  if (location.hash === address) return;
  const step = (hash) => { const { tab, test, one, other, from, choice } = readAddress(info, hash); return JSON.stringify([tab, test, one, other, from, { ...choice, k: 0 }]); };
  if (over || !location.hash || step(address) === step(location.hash)) history.replaceState(null, "", address);
  else history.pushState(null, "", address);
}
