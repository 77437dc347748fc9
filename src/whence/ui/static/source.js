// The page's data, from the server or from the page itself.

import { keptInTab } from "./changelist.js";

const embedded = document.getElementById("data");
const stored = embedded ? whole(JSON.parse(embedded.textContent)) : null;

// Each picture is in the page once; replace its index by the picture.
function whole(data) {
  const put = (value) => {
    if (value === null || typeof value !== "object") return;
    for (const [key, part] of Object.entries(value)) if (key === "src") value.src = data.pictures[part]; else put(part);
  };
  put(data);
  return data;
}

export const source = stored ? {
  live: false,
  info: async () => stored.info,
  tests: async (query) => {
    const word = query.search.trim().toLowerCase();
    const named = ({ verdict }) => [verdict.truth ?? "", verdict.predicted].some((text) => text.toLowerCase().includes(word));
    const rows = stored.rows.filter((row) =>
      (query.label === "" || row.truths.includes(+query.label)) && (query.predicted === "" || row.predictions.includes(+query.predicted))
      && (!query.wrong || row.verdict.right === false) && (!query.disagree || !row.verdict.agrees) && (!query.novel || row.novel)
      && (!word || named(row) || String(row.index) === word));
    if (query.order === "least certain") rows.sort((a, b) => (a.verdict.probability ?? 1) - (b.verdict.probability ?? 1));
    return { total: rows.length, rows: rows.slice(query.offset, query.offset + query.limit) };
  },
  answersBoth: Object.keys(stored.changes).length > 0,
  has: (test) => test in stored.explanations,
  explain: async (test, choice) => (choice.question === "would change" && source.answersBoth ? stored.changes : stored.explanations)[test],
  fitEffects: async () => null,
  stability: async (why) => stored.stability[why.test],
  typicality: async (why) => stored.typicality[why.test],
  note: (test) => stored.notes[test],
  hasConcepts: (why, pair) => why.question === "made of" && stored.concepts[why.test]?.index === pair.index,
  concepts: async (why) => stored.concepts[why.test],
  audit: async (offset, limit) => ({ ...stored.audit, total: stored.audit.rows.length, rows: stored.audit.rows.slice(offset, offset + limit) }),
  rank: async () => null,
  compareTests: async () => null,
  classes: async (offset, limit) => ({ ...stored.classes, rows: stored.classes.rows.slice(offset, offset + limit) }),
  ...keptInTab(`whence ${stored.info.title} ${stored.info.n_train}`),
} : {
  live: true,
  answersBoth: true,
  has: () => true,
  info: () => ask("api/info"),
  tests: (query) => {
    const words = new URLSearchParams({ offset: query.offset, limit: query.limit });
    for (const name of ["label", "predicted", "search", "slice"]) if (query[name]) words.set(name, query[name]);
    for (const name of ["wrong", "disagree", "novel"]) if (query[name]) words.set(name, "true");
    if (query.order) words.set("order", query.order);
    return ask(`api/tests?${words}`);
  },
  note: () => undefined,
  explain: (test, choice) => ask(`api/tests/${test}/explanation?${chosen(choice)}`),
  own: (body, type, choice) => ask(`api/explanation?${chosen(choice)}`, { method: "POST", body, headers: { "content-type": type } }),
  stability: (why, k) => ask(`api/tests/${why.test}/stability?${new URLSearchParams({ k, target: why.target })}`),
  typicality: (why, own) => own ? ask("api/typicality", { method: "POST", body: own.body, headers: { "content-type": own.type } }) : ask(`api/tests/${why.test}/typicality`),
  fitEffects: (onProgress) => stream("api/effects", "", onProgress),
  stopEffects: () => ask("api/effects/stop", { method: "POST", body: "" }),
  solveAt: (C, onProgress) => stream(`api/path?${new URLSearchParams({ C })}`, "", onProgress),
  confusion: () => ask("api/confusion"),
  changes: () => ask("api/changes"),
  addChange: (entry) => send("api/changes", entry),
  undoChange: () => send("api/changes/undo"),
  forgetChange: (id) => send(`api/changes/${id}/remove`),
  clearChanges: () => send("api/changes/clear"),
  slices: () => ask("api/slices"),
  compareSlices: (names) => ask(`api/slices/compare?${new URLSearchParams(names.map((name) => ["names", name]))}`),
  saveSlice: async (slice) => {
    const answer = await send("api/slices", slice);
    document.dispatchEvent(new Event("slices"));
    return answer;
  },
  deleteSlice: (name) => send(`api/slices/${encodeURIComponent(name)}/delete`),
  firstOrder: () => send("api/whatif/first", { saved: true }),
  exported: async () => (await request("api/export")).blob(),
  whatIf: (question, onProgress) => stream("api/whatif", JSON.stringify(question), onProgress),
  hasConcepts: (why) => why.test !== null && why.question === "made of" && why.against === null && !why.n_members,
  concepts: (why, pair) => ask(`api/tests/${why.test}/concepts?${new URLSearchParams({ pair: pair.index, target: why.target, C: why.C })}`),
  audit: (offset, limit) => ask(`api/audit?offset=${offset}&limit=${limit}`),
  compareTests: (onProgress) => stream("api/novelty", "", onProgress),
  rank: (onProgress) => stream("api/ranking", "", onProgress),
  classes: (offset, limit) => ask(`api/classes?offset=${offset}&limit=${limit}`),
  compare: (one, other, onProgress) => stream(`api/comparison?${new URLSearchParams(other === null ? { one } : { one, other })}`, "", onProgress),
  gallery: (offset, limit, onProgress) => stream(`api/gallery?offset=${offset}&limit=${limit}`, "", onProgress),
  training: ({ search, label, slice, offset, limit }) => {
    const words = new URLSearchParams({ offset, limit, search, ...(slice ? { slice } : {}) });
    if (label !== "") words.set("label", label);
    return ask(`api/training?${words}`);
  },
  sideRows: ({ by, offset, limit }) => ask(`api/compare?${new URLSearchParams({ by, offset, limit })}`),
  sideOutputs: (test) => ask(`api/compare/${test}`),
  sideOverlap: (onProgress) => stream("api/compare/overlap", "", onProgress),
  explainOther: (test, choice) => ask(`other/api/tests/${test}/explanation?${chosen(choice)}`),
  map: (method, onProgress) => stream(`api/map?${new URLSearchParams({ method })}`, "", onProgress),
  mapPoints: (method) => floats(`api/map/points?${new URLSearchParams({ method })}`),
  mapColours: (by, test = null) => floats(`api/map/colours?${new URLSearchParams(test === null ? { by } : { by, test })}`),
  mapSamples: ({ training = [], tests = [] }) => ask(`api/map/samples?${new URLSearchParams({ training: training.join(), tests: tests.join() })}`),
  mapSupported: (index) => ask(`api/map/supported/${index}`),
  findDuplicates: (onProgress) => stream("api/duplicates", "", onProgress),
  duplicates: (offset, limit) => ask(`api/duplicates?offset=${offset}&limit=${limit}`),
  whatChanges: (changes, onProgress) => stream("api/whatif/tests", JSON.stringify(changes), onProgress),
};

function chosen(choice) {
  const words = new URLSearchParams({ k: choice.k });
  if (choice.target !== null) words.set("target", choice.target);
  if (choice.question !== "made of") words.set("question", choice.question);
  else {
    if (choice.C !== null) words.set("C", choice.C);
    if (choice.against !== null) words.set("against", choice.against);
  }
  return words;
}

async function request(path, options = {}) {
  const response = await fetch(path, { ...options, headers: { "x-whence": "1", ...options.headers } });
  if (response.ok) return response;
  const detail = await response.json().then((body) => body.detail).catch(() => response.statusText);
  throw new Error(typeof detail === "string" ? detail : detail.map((part) => part.msg).join("; "));
}

const ask = async (path, options) => (await request(path, options)).json();

const send = (path, body = {}) => ask(path, { method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json" } });
const floats = async (path) => new Float32Array(await (await request(path)).arrayBuffer());

// Read lines of JSON: progress, then a result or an error.
async function stream(path, body, onProgress) {
  const response = await request(path, { method: "POST", body, headers: { "content-type": "application/json" } });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ;) {
    const { value, done } = await reader.read();
    if (done) throw new Error("The connection ended before the answer was complete.");
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines.map(JSON.parse)) {
      if (line.error) throw new Error(line.error);
      if (line.result) return line.result;
      onProgress(line);
    }
  }
}
