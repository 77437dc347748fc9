// The change list: what was decided about training samples.

export class Changes {
  constructor() {
    Object.assign(this, { marks: new Map(), listeners: [] });
  }

  listen(fn) {
    this.listeners.push(fn);
  }

  // The mark of a training sample: undefined, or its action and new label.
  of(index) {
    return this.marks.get(index);
  }

  async add({ action, label = null, samples }) {
    for (const index of samples) this.marks.set(index, { action, label });
    for (const fn of this.listeners) fn();
  }
}
