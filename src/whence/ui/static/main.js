// The page: what is chosen, where its data come from, and how keys and clicks change it.

import { h, percent, replace, signed } from "./dom.js";
import { sampleView, scaleKey } from "./maps.js";
import { balance, busy, card, certificate, conceptStrip, pairView, sparsity, waterfall, whatIf } from "./panels.js";
import { auditView, classView } from "./audit.js";

const embedded = document.getElementById("data");
const stored = embedded ? JSON.parse(embedded.textContent) : null;

// Live pages ask the machine; a report has everything inside.
const source = stored ? {
  live: false,
  info: async () => stored.info,
  tests: async (query) => {
    const rows = stored.rows.filter((row) =>
      (query.label === "" || row.truth === +query.label) && (query.predicted === "" || row.predicted === +query.predicted)
      && (!query.wrong || row.truth !== row.predicted) && (query.index === "" || row.index === +query.index));
    return { total: rows.length, rows: rows.slice(query.offset, query.offset + query.limit) };
  },
  explain: async (test) => stored.explanations[test],
  audit: async (offset, limit) => ({ ...stored.audit, total: stored.audit.rows.length, rows: stored.audit.rows.slice(offset, offset + limit) }),
  classes: async () => stored.classes,
} : {
  live: true,
  info: () => ask("/api/info"),
  tests: (query) => {
    if (query.index !== "") return ask(`/api/tests?offset=${+query.index}&limit=1`);
    const words = new URLSearchParams({ offset: query.offset, limit: query.limit });
    for (const name of ["label", "predicted"]) if (query[name] !== "") words.set(name, query[name]);
    for (const name of ["wrong", "disagree"]) if (query[name]) words.set(name, "true");
    return ask(`/api/tests?${words}`);
  },
  explain: (test, choice) => ask(`/api/tests/${test}/explanation?${choices(choice)}`),
  own: (body, type, choice) => ask(`/api/explanation?${choices(choice)}`, { method: "POST", body, headers: { "content-type": type } }),
  concepts: (test, pair, target) => ask(`/api/tests/${test}/concepts?pair=${pair}&target=${target}`),
  audit: (offset, limit) => ask(`/api/audit?offset=${offset}&limit=${limit}`),
  classes: () => ask("/api/classes"),
};

function choices(choice) {
  const words = new URLSearchParams({ k: choice.k });
  if (choice.target !== null) words.set("target", choice.target);
  if (choice.C !== null) words.set("C", choice.C);
  return words;
}

async function ask(path, options = {}) {
  const headers = { "x-whence": "1", ...(options.headers ?? {}) };
  const response = await fetch(path, { ...options, headers });
  if (!response.ok) {
    const detail = await response.json().then((body) => body.detail).catch(() => response.statusText);
    throw new Error(typeof detail === "string" ? detail : detail.map((part) => part.msg).join("; "));
  }
  return response.json();
}

async function stream(path, body, onLine) {
  const response = await fetch(path, { method: "POST", body: JSON.stringify(body),
    headers: { "x-whence": "1", "content-type": "application/json" } });
  if (!response.ok) throw new Error((await response.json().catch(() => ({}))).detail ?? response.statusText);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    const lines = rest.split("\n");
    rest = lines.pop();
    for (const line of lines) onLine(JSON.parse(line));
  }
}

const state = {
  info: null, rows: [], total: 0, test: null, why: null, pair: null, own: null,
  query: { offset: 0, limit: 24, label: "", predicted: "", wrong: false, disagree: false, index: "" },
  choice: { k: 5, target: null, C: null }, marks: new Map(), asked: 0,
};
const place = (id) => document.getElementById(id);
const names = () => state.info.classes;

function fail(element, error) {
  replace(element, h("p", { class: "error", role: "alert" }, error.message));
}

async function showList() {
  const list = place("tests");
  try {
    const found = await source.tests(state.query);
    Object.assign(state, found);
  } catch (error) { return fail(list, error); }
  replace(list, state.rows.map((row) => {
    const right = row.truth === row.predicted;
    const words = `Test sample ${row.index}, predicted ${names()[row.predicted]}, true ${names()[row.truth]}`;
    return h("li", {}, h("button", { type: "button", "aria-current": row.index === state.test ? "true" : "false",
      "data-test": row.index, onclick: () => choose(row.index) },
      sampleView(row.sample, words),
      h("span", {}, h("b", {}, names()[row.predicted]), ` ${percent(row.probability)}`),
      h("span", { class: right ? "quiet" : "wrong" }, right ? "✓ right" : `✗ is ${names()[row.truth]}`),
      row.surrogate_class === row.predicted ? null : h("span", { class: "wrong" }, "surrogate differs")));
  }));
  const last = Math.min(state.query.offset + state.query.limit, state.total);
  place("range").textContent = state.total ? `${state.query.offset + 1}–${last} of ${state.total.toLocaleString("en")}` : "none fits";
  place("earlier").disabled = state.query.offset === 0;
  place("later").disabled = last >= state.total;
}

function page(step) {
  state.query.offset = Math.max(0, state.query.offset + step * state.query.limit);
  return showList();
}

async function choose(test) {
  Object.assign(state, { test, own: null, pair: null });
  state.choice.target = null;
  for (const button of document.querySelectorAll("#tests button"))
    button.setAttribute("aria-current", +button.dataset.test === test ? "true" : "false");
  await explain();
}

async function explain() {
  const panel = place("explanation"), mine = ++state.asked;
  panel.setAttribute("aria-busy", "true");
  try {
    const why = state.own ? await source.own(state.own.body, state.own.type, state.choice) : await source.explain(state.test, state.choice);
    if (mine !== state.asked) return; // a later choice came in between
    state.why = why;
    draw();
  } catch (error) {
    if (mine === state.asked) fail(panel, error);
  } finally {
    if (mine === state.asked) panel.removeAttribute("aria-busy");
  }
}

function controls(why) {
  if (!source.live) return null;
  const target = h("select", { id: "target", onchange: (event) => { state.choice.target = +event.target.value; state.pair = null; explain(); } },
    names().map((name, c) => h("option", { value: c, selected: c === why.target }, name + (c === why.predicted ? " (predicted)" : ""))));
  const k = h("input", { id: "k", type: "number", min: 1, max: 20, value: state.choice.k,
    onchange: (event) => { state.choice.k = Math.max(1, Math.min(20, +event.target.value || 5)); explain(); } });
  const Cs = state.info.Cs;
  const at = Math.max(0, Cs.findIndex((C) => C === why.C));
  const C = h("input", { id: "C", type: "range", min: 0, max: Cs.length - 1, step: 1, value: at,
    "aria-valuetext": `C = ${why.C}`, onchange: (event) => { state.choice.C = Cs[+event.target.value]; explain(); } });
  return h("div", { class: "controls" },
    h("label", {}, "explain class ", target), h("label", {}, "pairs a side ", k),
    h("label", {}, "dense ", C, ` sparse, C = ${Number(why.C.toPrecision(3))}`));
}

function draw() {
  const why = state.why, panel = place("explanation");
  const named = (c) => names()[c];
  const title = why.test === null ? "Your own sample" : `Test sample ${why.test}`;
  const actions = { choose: (pair) => show(pair, true), peek: (pair) => show(pair, false) };
  if (source.live) Object.assign(actions, {
    remove: (pair) => mark(pair.index, state.marks.get(pair.index) === "remove" ? undefined : "remove"),
    relabel: (pair, value) => mark(pair.index, value === "" ? undefined : +value),
  });
  const column = (pairs, word, sign) => h("section", { class: "side" },
    h("h3", { class: `${word}-ink` }, `${sign} evidence ${word} ${named(why.target)}`),
    pairs.length ? h("ol", { class: "cards" }, pairs.map((pair) => card(pair, why, names(), state.marks, actions)))
      : h("p", { class: "quiet" }, "none"));
  const lines = [
    h("p", {}, "predicted ", h("b", {}, named(why.predicted)), `, ${percent(why.probability)}`),
    why.truth === null ? null : h("p", { class: why.truth === why.predicted ? "quiet" : "wrong" },
      why.truth === why.predicted ? "✓ that is right" : `✗ its label is ${named(why.truth)}`),
    why.target === why.predicted ? null : h("p", {}, "explained: ", h("b", {}, named(why.target))),
  ];
  replace(panel,
    h("h2", { tabindex: "-1" }, title),
    controls(why),
    h("div", { class: "top" },
      h("figure", { class: "main" }, sampleView(why.sample, `${title}, predicted ${named(why.predicted)}`, why.logit_map, why.full.logit, true),
        scaleKey(why.full.logit, "relevance of the logit")),
      h("div", { class: "verdict" }, lines, certificate(why, names()))),
    balance(why),
    h("div", { class: "sides" },
      column(why.pairs.filter((pair) => pair.score > 0), "for", "▲"),
      column(why.pairs.filter((pair) => pair.score <= 0), "against", "▼")),
    h("section", { id: "pair", "aria-live": "polite" }),
    source.live && why.test !== null ? h("section", { id: "whatif" }) : null,
    h("div", { class: "charts" }, waterfall(why), sparsity(why)));
  show(why.pairs.find((pair) => pair.index === state.pair) ?? why.pairs[0], false);
  drawWhatIf();
}

function show(pair, scroll) {
  const box = place("pair");
  if (!pair) return replace(box, h("p", { class: "quiet" }, "No training sample speaks for or against this class."));
  state.pair = pair.index;
  for (const item of document.querySelectorAll(".card")) item.classList.remove("chosen");
  const at = state.why.pairs.indexOf(pair);
  const strip = h("div", { id: "strip" });
  const concepts = source.live && state.why.test !== null && pair.score !== 0 ? h("button", { type: "button", onclick: async () => {
    busy(strip, "Looking for the concepts that both samples share …");
    try { replace(strip, conceptStrip(await source.concepts(state.why.test, pair.index, state.why.target), names())); } catch (error) { fail(strip, error); }
  } }, "concepts of this pair") : null;
  replace(box, h("h3", {}, `Pair ${at + 1} of ${state.why.pairs.length}`), pairView(pair, state.why, names()), concepts, strip);
  document.querySelectorAll(".card")[at]?.classList.add("chosen");
  if (scroll) box.scrollIntoView({ block: "nearest", behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
}

function mark(index, value) {
  if (value === undefined) state.marks.delete(index); else state.marks.set(index, value);
  draw();
}

function drawWhatIf() {
  const box = place("whatif");
  if (!box) return;
  if (!state.marks.size) return replace(box, h("h3", {}, "What if"), h("p", { class: "quiet" },
    "Mark training samples above to remove or relabel them, and see what the surrogate would predict then."));
  const told = [...state.marks].map(([index, value]) => value === "remove" ? `without #${index}` : `#${index} as ${names()[value]}`);
  const answer = h("div", {});
  const ask = async () => {
    busy(answer, "Solving …");
    const relabel = {}, remove = [];
    for (const [index, value] of state.marks) if (value === "remove") remove.push(index); else relabel[index] = value;
    try {
      await stream("/api/whatif", { test: state.why.test, target: state.why.target, remove, relabel }, (line) => {
        if (line.result) replace(answer, whatIf(line.result, names()));
        if (line.error) fail(answer, new Error(line.error));
      });
    } catch (error) { fail(answer, error); }
  };
  replace(box, h("h3", {}, "What if"), h("p", {}, told.join(", ")),
    h("p", {}, h("button", { type: "button", class: "primary", id: "solve", onclick: ask }, "Solve"), " ",
      h("button", { type: "button", onclick: () => { state.marks.clear(); draw(); } }, "clear marks")), answer);
}

function tab(name) {
  for (const button of document.querySelectorAll("nav button")) {
    const chosen = button.dataset.tab === name;
    button.setAttribute("aria-selected", chosen ? "true" : "false");
    button.tabIndex = chosen ? 0 : -1;
    place(button.dataset.tab).hidden = !chosen;
  }
  if (name === "audit" && !place("audit").childElementCount) auditView(place("audit"), source, names());
  if (name === "classes" && !place("classes").childElementCount) classView(place("classes"), source, names());
}

function keys(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea, [role=tablist]")) return;
  if (place("explore").hidden || !state.why) return;
  const at = state.rows.findIndex((row) => row.index === state.test);
  const pairs = state.why.pairs;
  const pair = pairs.findIndex((each) => each.index === state.pair);
  const moves = {
    j: () => state.rows[at + 1] && choose(state.rows[at + 1].index),
    k: () => state.rows[at - 1] && choose(state.rows[at - 1].index),
    ArrowRight: () => pairs[pair + 1] && show(pairs[pair + 1], true),
    ArrowLeft: () => pairs[pair - 1] && show(pairs[pair - 1], true),
  };
  if (moves[event.key]) { event.preventDefault(); moves[event.key](); }
}

function listen() {
  for (const id of ["label", "predicted"]) {
    const select = place(id);
    select.append(h("option", { value: "" }, "any"), ...names().map((name, c) => h("option", { value: c }, name)));
    select.addEventListener("change", () => { Object.assign(state.query, { [id]: select.value, offset: 0 }); showList(); });
  }
  for (const id of ["wrong", "disagree"]) place(id)?.addEventListener("change", (event) => { Object.assign(state.query, { [id]: event.target.checked, offset: 0 }); showList(); });
  place("index").addEventListener("change", async (event) => {
    Object.assign(state.query, { index: event.target.value, offset: 0 });
    await showList();
    if (state.rows.length === 1) choose(state.rows[0].index);
  });
  place("earlier").addEventListener("click", () => page(-1));
  place("later").addEventListener("click", () => page(1));
  place("opacity").addEventListener("input", (event) => document.documentElement.style.setProperty("--opacity", event.target.value));
  document.addEventListener("keydown", keys);
  for (const button of document.querySelectorAll("nav button")) button.addEventListener("click", () => tab(button.dataset.tab));
  document.querySelector("nav").addEventListener("keydown", (event) => {
    const all = [...document.querySelectorAll("nav button")], at = all.indexOf(document.activeElement);
    const next = { ArrowRight: at + 1, ArrowLeft: at - 1 }[event.key];
    if (all[next]) { all[next].focus(); tab(all[next].dataset.tab); }
  });
  const upload = place("upload");
  upload?.addEventListener("change", () => upload.files[0] && own(upload.files[0], upload.files[0].type || "image/png"));
  place("own-text")?.addEventListener("submit", (event) => { event.preventDefault(); own(place("text").value, "text/plain; charset=utf-8"); });
  document.addEventListener("paste", (event) => {
    const file = [...(event.clipboardData?.files ?? [])].find((each) => each.type.startsWith("image/"));
    if (source.live && file) own(file, file.type);
  });
}

function own(body, type) {
  Object.assign(state, { own: { body, type }, test: null, pair: null });
  state.choice.target = null;
  return explain();
}

async function begin() {
  state.info = await source.info();
  const info = state.info;
  place("facts").textContent = `${info.n_tests.toLocaleString("en")} test samples, ${percent(info.accuracy)} right; `
    + `the surrogate agrees with the model on ${percent(info.agreement)}; `
    + `${info.n_support.toLocaleString("en")} of ${info.n_train.toLocaleString("en")} training samples are support vectors.`;
  const kinds = { image: "own-image", text: "own-text" };
  if (source.live && kinds[info.kind]) place(kinds[info.kind]).hidden = false;
  listen();
  await showList();
  if (state.rows.length) await choose(state.rows[0].index);
}

document.documentElement.classList.add("scripted");
begin().catch((error) => fail(place("explanation"), error));
