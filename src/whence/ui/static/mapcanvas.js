// Points on a canvas, drawn pixel by pixel: it pans, zooms, is picked from with a lasso, and can be used by keys alone.

import { h } from "./dom.js";

const MARGIN = 16; // pixels around the picture, so that points at its edges need no checks
const NEAR = 12; // how far, in CSS pixels, a pointer may be from a point
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

// The offsets of a shape's pixels from its middle, by its rim and its filling.
function stampOf(shape, radius, width) {
  const rim = [], filling = [], most = Math.ceil(radius);
  for (let y = -most; y <= most; y += 1) {
    for (let x = -most; x <= most; x += 1) {
      const far = shape === "disc" ? Math.hypot(x, y) : Math.abs(x) + Math.abs(y);
      if (far > radius + 0.3) continue;
      (shape !== "disc" && far > radius - 0.9 ? rim : filling).push(y * width + x);
    }
  }
  return { rim: Int32Array.from(rim), filling: Int32Array.from(filling) };
}

export class PointCanvas {
  // ``on`` has what happens: hover(point, x, y), open(point), focus(point), toggle(point), lasso(points), moved().
  constructor(label, on) {
    this.canvas = h("canvas", { class: "points", tabindex: 0, role: "application", "aria-roledescription": "map", "aria-label": label, "aria-describedby": "map-keys" });
    this.over = h("canvas", { class: "points-over", "aria-hidden": "true" });
    Object.assign(this, { on, n: 0, focused: -1, hovered: -1, lassoing: false, path: null, pointers: new Map(), shown: { training: true, tests: true }, rings: [], picked: null, names: [], rim: 0xff000000, waiting: false });
    this.view = { x: 0, y: 0, scale: 1 };
    new ResizeObserver(() => this.resize()).observe(this.canvas);
    this.listen();
  }

  // Show other points (n, 2), of which the first ``nTrain`` are training samples.
  load(points, nTrain) {
    const n = points.length / 2;
    Object.assign(this, { points, n, nTrain, ink: new Uint32Array(n), rims: new Uint32Array(n), large: new Uint8Array(n), order: new Uint32Array(n).map((_, i) => i), focused: -1, hovered: -1 });
    const box = [Infinity, Infinity, -Infinity, -Infinity];
    for (let i = 0; i < n; i += 1) {
      const x = points[2 * i], y = points[2 * i + 1];
      if (Number.isNaN(x)) continue;
      box[0] = Math.min(box[0], x); box[1] = Math.min(box[1], y); box[2] = Math.max(box[2], x); box[3] = Math.max(box[3], y);
    }
    this.box = box[0] > box[2] ? [-1, -1, 1, 1] : box;
    this.fit();
  }

  // Colour the points: the last of ``order`` lie on top, ``large`` ones are larger, ``rims`` are the edges of tests.
  colour({ inks, rims, order, large, testsOnTop }) {
    Object.assign(this, { ink: inks, rims, order, large, testsOnTop });
    this.draw();
  }

  isTest(i) { return i >= this.nTrain; }

  visible(i) {
    return this.shown[this.isTest(i) ? "tests" : "training"] && !Number.isNaN(this.points[2 * i]);
  }

  // The whole map.
  fit() {
    const [x0, y0, x1, y1] = this.box, { width, height } = this.size();
    const scale = 0.92 * Math.min(width / Math.max(x1 - x0, 1e-9), height / Math.max(y1 - y0, 1e-9));
    this.whole = this.view.scale = scale;
    Object.assign(this.view, { x: (x0 + x1) / 2, y: (y0 + y1) / 2 });
    this.draw();
  }

  size() {
    return { width: this.canvas.clientWidth || 600, height: this.canvas.clientHeight || 400 };
  }

  resize() {
    const { width, height } = this.size(), grain = Math.min(devicePixelRatio || 1, 2), fresh = !this.pixels;
    if (!this.canvas.clientWidth) return;
    Object.assign(this, { grain, width: Math.round(width * grain), height: Math.round(height * grain) });
    for (const canvas of [this.canvas, this.over]) Object.assign(canvas, { width: this.width, height: this.height });
    this.picture = new ImageData(this.width + 2 * MARGIN, this.height + 2 * MARGIN);
    this.pixels = new Uint32Array(this.picture.data.buffer);
    if (this.n && fresh) this.fit(); else this.draw();
  }

  // Draw some points (n,) with a dark edge; null for none.
  pick(points) {
    this.picked = points;
    this.draw();
  }

  // Where a point is, in CSS pixels.
  at(i) {
    const { width, height } = this.size(), { x, y, scale } = this.view;
    return [width / 2 + (this.points[2 * i] - x) * scale, height / 2 - (this.points[2 * i + 1] - y) * scale];
  }

  draw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.render(); });
  }

  // The radius of a point in pixels: larger when there are few, and when the map is near.
  radius() {
    const few = Math.max(0, Math.log10(60_000 / Math.max(this.n, 100))), near = Math.log2(Math.max(1, this.view.scale / this.whole));
    return Math.min(7, 1.1 + 0.85 * few + 0.55 * near) * this.grain;
  }

  render() {
    if (!this.n || !this.pixels) return;
    const { ink, rims, large, nTrain, picked } = this, width = this.width + 2 * MARGIN, radius = this.radius(), most = MARGIN - 2;
    const disc = stampOf("disc", radius, width), big = stampOf("disc", Math.min(most, 1.5 * radius + 1), width), diamond = stampOf("diamond", Math.min(most, 1.5 * radius + this.grain), width);
    const halos = [radius, Math.min(most, 1.5 * radius + this.grain)].map((size) => stampOf("disc", Math.min(most, size + 1.6 * this.grain), width).filling);
    this.pixels.fill(0);
    if (picked) this.each(this.shown, (i, middle) => { if (picked[i]) this.stamp(halos[i >= nTrain ? 1 : 0], middle, this.rim); });
    const training = () => this.each({ training: this.shown.training }, (i, middle) => this.stamp((large[i] ? big : disc).filling, middle, ink[i]));
    const tests = () => this.each({ tests: this.shown.tests }, (i, middle) => { this.stamp(diamond.filling, middle, ink[i]); this.stamp(diamond.rim, middle, rims[i]); });
    for (const drawn of this.testsOnTop ? [training, tests] : [tests, training]) drawn();
    this.canvas.getContext("2d").putImageData(this.picture, -MARGIN, -MARGIN);
    this.renderOver();
  }

  stamp(offsets, middle, colour) {
    const { pixels } = this;
    for (let s = 0; s < offsets.length; s += 1) pixels[middle + offsets[s]] = colour;
  }

  // Call with every point that is seen, and the pixel of its middle, in the order in which they are drawn.
  each({ training, tests }, fn) {
    const { points, order, nTrain } = this, width = this.width + 2 * MARGIN, scale = this.view.scale * this.grain;
    const left = MARGIN + this.width / 2 - this.view.x * scale, top = MARGIN + this.height / 2 + this.view.y * scale, right = width - MARGIN, bottom = this.height + MARGIN;
    for (let k = 0; k < order.length; k += 1) {
      const i = order[k];
      if (!(i < nTrain ? training : tests)) continue;
      const x = left + points[2 * i] * scale, y = top - points[2 * i + 1] * scale;
      if (x >= MARGIN && x < right && y >= MARGIN && y < bottom) fn(i, Math.floor(y) * width + Math.floor(x)); // not NaN
    }
  }

  // What lies over the points: names, rings, the selection, the lasso.
  renderOver() {
    const context = this.over.getContext("2d"), style = getComputedStyle(this.canvas), of = (name) => style.getPropertyValue(name).trim();
    const { width, height } = this.size(), radius = this.radius() / this.grain;
    context.setTransform(this.grain, 0, 0, this.grain, 0, 0);
    context.clearRect(0, 0, width, height);
    const ring = (i, colour, more, line) => {
      if (i < 0 || !this.visible(i)) return;
      const [x, y] = this.at(i);
      for (const [stroke, thick] of [[of("--card"), line + 2], [colour, line]]) {
        context.beginPath();
        context.arc(x, y, radius + more, 0, 2 * Math.PI);
        Object.assign(context, { strokeStyle: stroke, lineWidth: thick });
        context.stroke();
      }
    };
    this.drawNames(context, of);
    for (const { point, colour, line } of this.rings) ring(point, of(colour), 5, line);
    ring(this.hovered, of("--focus"), 4, 2);
    if (document.activeElement === this.canvas) ring(this.focused, of("--focus"), 7, 3);
    if (!this.path) return;
    context.beginPath();
    for (const [x, y] of this.path) context.lineTo(x, y);
    context.closePath();
    Object.assign(context, { strokeStyle: of("--focus"), fillStyle: of("--focus"), lineWidth: 2 });
    context.stroke();
    context.globalAlpha = 0.12;
    context.fill();
    context.globalAlpha = 1;
  }

  // Names of groups of points, unless they would cover each other.
  drawNames(context, of) {
    const taken = [], { width, height } = this.size(), { x, y, scale } = this.view;
    Object.assign(context, { font: `600 13px ${getComputedStyle(document.body).fontFamily}`, textAlign: "center", textBaseline: "middle", lineJoin: "round" });
    for (const { text, place } of this.names) {
      const at = [width / 2 + (place[0] - x) * scale, height / 2 - (place[1] - y) * scale], half = context.measureText(text).width / 2 + 4;
      const boxAt = (lift) => [at[0] - half, at[1] - 10 + lift, at[0] + half, at[1] + 10 + lift];
      const free = ([x0, y0, x1, y1]) => x0 >= 0 && x1 <= width && y0 >= 0 && y1 <= height && !taken.some((one) => x0 < one[2] && x1 > one[0] && y0 < one[3] && y1 > one[1]);
      const lift = [0, -20, 20, -40, 40].find((step) => free(boxAt(step)));
      if (lift === undefined) continue;
      taken.push(boxAt(lift));
      at[1] += lift;
      Object.assign(context, { strokeStyle: of("--card"), fillStyle: of("--ink"), lineWidth: 4 });
      context.strokeText(text, ...at);
      context.fillText(text, ...at);
    }
  }

  zoom(factor, x = this.size().width / 2, y = this.size().height / 2) {
    const { width, height } = this.size(), { view } = this, before = view.scale;
    view.scale = Math.max(0.5 * this.whole, Math.min(400 * this.whole, before * factor));
    view.x += (x - width / 2) * (1 / before - 1 / view.scale);
    view.y -= (y - height / 2) * (1 / before - 1 / view.scale);
    this.moved();
  }

  pan(dx, dy) {
    this.view.x -= dx / this.view.scale;
    this.view.y += dy / this.view.scale;
    this.moved();
  }

  moved() {
    this.on.moved();
    this.draw();
  }

  // The point nearest to a place in CSS pixels; −1 if none is near. Tests lie on top.
  nearest(x, y) {
    let best = -1, least = NEAR;
    for (let i = 0; i < this.n; i += 1) {
      const [px, py] = this.at(i), far = Math.hypot(px - x, py - y) - (this.isTest(i) ? 2 : 0);
      if (far < least && this.visible(i)) { least = far; best = i; }
    }
    return best;
  }

  // The points inside a polygon, by the number of its edges to their right.
  inside(path) {
    const found = [];
    for (let i = 0; i < this.n; i += 1) {
      if (!this.visible(i)) continue;
      const [x, y] = this.at(i);
      let odd = false;
      for (let a = 0, b = path.length - 1; a < path.length; b = a, a += 1) {
        const [ax, ay] = path[a], [bx, by] = path[b];
        if ((ay > y) !== (by > y) && x < ((bx - ax) * (y - ay)) / (by - ay) + ax) odd = !odd;
      }
      if (odd) found.push(i);
    }
    return found;
  }

  listen() {
    const { canvas } = this, place = (event) => { const box = canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
    canvas.addEventListener("wheel", (event) => { event.preventDefault(); this.zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0015)), ...place(event)); }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      canvas.setPointerCapture(event.pointerId);
      this.pointers.set(event.pointerId, place(event));
      Object.assign(this, { start: place(event), dragged: false, path: this.pointers.size === 1 && (this.lassoing || event.shiftKey) ? [place(event)] : null });
    });
    canvas.addEventListener("pointermove", (event) => {
      const now = place(event), before = this.pointers.get(event.pointerId);
      if (!before) return this.hover(...now);
      this.dragged ||= Math.hypot(now[0] - this.start[0], now[1] - this.start[1]) > 4;
      this.pointers.set(event.pointerId, now);
      if (this.pointers.size === 2) return this.pinch(event.pointerId, before, now);
      if (this.path) { this.path.push(now); return this.draw(); }
      if (this.dragged) this.pan(now[0] - before[0], now[1] - before[1]);
    });
    const end = (event) => {
      if (!this.pointers.delete(event.pointerId)) return;
      const { path } = this;
      this.path = null;
      if (path && this.dragged) this.on.lasso(this.inside(path));
      else if (!this.dragged && event.type === "pointerup") { const point = this.nearest(...place(event)); this.focusOn(point); if (point >= 0) this.on.open(point); }
      this.draw();
    };
    canvas.addEventListener("pointerup", end);
    canvas.addEventListener("pointercancel", end);
    canvas.addEventListener("pointerleave", () => this.hover(-1e9, -1e9));
    canvas.addEventListener("keydown", (event) => this.key(event));
    for (const name of ["focus", "blur"]) canvas.addEventListener(name, () => this.draw());
  }

  pinch(id, before, now) {
    const [other] = [...this.pointers].filter(([key]) => key !== id).map(([, at]) => at), far = (at) => Math.hypot(at[0] - other[0], at[1] - other[1]) || 1;
    this.zoom(far(now) / far(before), (now[0] + other[0]) / 2, (now[1] + other[1]) / 2);
  }

  hover(x, y) {
    const point = this.n && !this.pointers.size ? this.nearest(x, y) : -1;
    if (point === this.hovered) return;
    this.hovered = point;
    this.on.hover(point);
    this.draw();
  }

  // Focus a point, and move the map until it is seen.
  focusOn(point) {
    this.focused = point;
    if (point >= 0) {
      const [x, y] = this.at(point), { width, height } = this.size();
      if (x < 20 || y < 20 || x > width - 20 || y > height - 20) { this.view.x = this.points[2 * point]; this.view.y = this.points[2 * point + 1]; this.moved(); } // it was outside
    }
    this.on.focus(point);
    this.draw();
  }

  // The nearest point in a direction, in a quarter of the plane.
  next([right, down]) {
    const { width, height } = this.size(), from = this.focused >= 0 ? this.at(this.focused) : [width / 2, height / 2];
    let best = -1, least = Infinity;
    for (let i = 0; i < this.n; i += 1) {
      if (i === this.focused || !this.visible(i)) continue;
      const [x, y] = this.at(i), dx = x - from[0], dy = y - from[1], along = dx * right + dy * down, across = Math.abs(dx * down) + Math.abs(dy * right);
      if ((this.focused >= 0 && (along <= 1e-6 || across > along)) || Math.hypot(dx, dy) >= least) continue;
      least = Math.hypot(dx, dy);
      best = i;
    }
    return best;
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { key } = event, act = {
      "+": () => this.zoom(1.4), "=": () => this.zoom(1.4), "-": () => this.zoom(1 / 1.4), 0: () => this.fit(),
      Enter: () => this.focused >= 0 && this.on.open(this.focused), " ": () => this.focused >= 0 && this.on.toggle(this.focused), Escape: () => this.focusOn(-1),
    }[key] ?? (ARROWS[key] && (() => { const point = this.next(ARROWS[key]); if (point >= 0) this.focusOn(point); }));
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  }
}
