// The samples that the visitor picked, on the map or in a list: every view may read them and hear of changes.

class Selection {
  constructor() {
    Object.assign(this, { training: new Set(), tests: new Set(), listeners: [] });
  }

  get size() {
    return this.training.size + this.tests.size;
  }

  set({ training = [], tests = [] }) {
    Object.assign(this, { training: new Set(training), tests: new Set(tests) });
    for (const fn of this.listeners) fn();
  }

  // Pick one more sample, or put it back.
  toggle(kind, index) {
    const picked = new Set(this[kind]);
    if (!picked.delete(index)) picked.add(index);
    this.set({ training: this.training, tests: this.tests, [kind]: picked });
  }

  clear() {
    this.set({});
  }

  listen(fn) {
    this.listeners.push(fn);
  }
}

export const selection = new Selection();
