// The change list: training samples whose labels were checked, corrected or removed. The server saves it; a report keeps it in this tab.

const ACTIONS = ["keep", "flag", "relabel", "remove"];

// Indices of ranges such as 3,17,40-60.
export function indicesOf(ranges) {
  const indices = [];
  for (const part of (ranges ?? "").split(",").filter(Boolean)) {
    const [first, last = first] = part.split("-").map(Number);
    for (let index = first; index <= last; index += 1) indices.push(index);
  }
  return indices;
}

export class Changes {
  constructor(source) {
    Object.assign(this, { source, entries: [], marks: new Map(), who: "", saved: null, listeners: [] });
  }

  listen(fn) {
    this.listeners.push(fn);
  }

  // The mark of a training sample: undefined, or its action and new label.
  of(index) {
    return this.marks.get(index);
  }

  count(action) {
    let n = 0;
    for (const mark of this.marks.values()) n += mark.action === action;
    return n;
  }

  // How many samples a re-solved surrogate would see changed.
  get size() {
    return this.count("relabel") + this.count("remove");
  }

  async load() {
    this.take(await this.source.changes());
  }

  // Mark samples, named one by one or as a group; the last mark of a sample counts.
  async add({ action, label = null, samples = null, group = null, why = "" }) {
    this.take(await this.source.addChange({ action, label, ...(group ? { group } : { samples }), why, ...(this.who ? { who: this.who } : {}) }));
  }

  // Mark one sample, or take the mark back if it has it already.
  toggle(index, action, label = null) {
    const mark = this.of(index), same = mark?.action === action && mark.label === label;
    return this.add({ action: same ? "clear" : action, label: same ? null : label, samples: [index] });
  }

  async undo() { this.take(await this.source.undoChange()); }

  async forget(id) { this.take(await this.source.forgetChange(id)); }

  async clear() { this.take(await this.source.clearChanges()); }

  take({ entries, marks, who, saved }) {
    Object.assign(this, { entries, saved, who: this.who || who || "", marks: new Map() });
    for (const action of ACTIONS) {
      if (action === "relabel") for (const [label, ranges] of Object.entries(marks.relabel ?? {})) for (const index of indicesOf(ranges)) this.marks.set(index, { action, label: +label });
      else for (const index of indicesOf(marks[action])) this.marks.set(index, { action, label: null });
    }
    for (const fn of this.listeners) fn();
  }
}

// What a mark says in a few words.
export function markWords(mark, names) {
  if (mark === undefined) return "";
  return { keep: "label is right", flag: "flagged", remove: "removed", relabel: `→ ${names[mark.label]}` }[mark.action];
}

// The change list of a report: it outlives a reload, not the tab.
export function keptInTab(key) {
  const read = () => { try { return JSON.parse(sessionStorage.getItem(key) ?? "[]"); } catch { return []; } };
  let entries = read();
  const answer = () => {
    const last = new Map(), marks = { keep: "", flag: "", remove: "", relabel: {} };
    for (const entry of entries) for (const index of indicesOf(entry.samples)) last.set(index, entry);
    const add = (ranges, index) => (ranges ? `${ranges},${index}` : `${index}`);
    for (const [index, { action, label }] of last) {
      if (action === "relabel") marks.relabel[label] = add(marks.relabel[label], index); else if (action in marks) marks[action] = add(marks[action], index);
    }
    return { entries, marks, who: "", saved: null };
  };
  const keep = () => {
    try { sessionStorage.setItem(key, JSON.stringify(entries)); } catch { /* a page without storage still exports */ }
    return answer();
  };
  return {
    changes: async () => answer(),
    addChange: async ({ action, label, samples, why }) => { entries.push({ id: entries.length, action, label, n: samples.length, samples: samples.join(","), why, who: "", when: "" }); return keep(); },
    undoChange: async () => { entries.pop(); return keep(); },
    clearChanges: async () => { entries = []; return keep(); },
  };
}
