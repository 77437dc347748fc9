// The visitor's own image or text: chosen, pasted, typed or dropped. What cannot be explained is said where it was given, and the page stays.

import { h, place } from "./dom.js";

const IMAGES = ["image/png", "image/jpeg", "image/webp", "image/bmp", "image/gif"];
const TEXT = "text/plain; charset=utf-8";
const ZONES = ["tests-list", "shown"];

// ``explain(body, type)`` explains an upload; it fails, and changes nothing, where that cannot be done.
export class Uploads {
  constructor(kind, explain) {
    Object.assign(this, { kind, explain, asked: 0 });
    this.words = kind === "image" ? "This model takes images: PNG, JPEG, WebP, BMP or GIF." : "This model takes plain text.";
    this.note = h("p", { class: "own-note", role: "alert" });
    place(`own-${kind}`).hidden = false;
    const upload = place("upload");
    upload.addEventListener("change", () => { const files = [...upload.files]; upload.value = ""; if (files.length) this.take(files, place("own-image"), false); });
    place("own-text").addEventListener("submit", (event) => { event.preventDefault(); this.send(place("text").value, TEXT, place("own-text"), false); });
    document.addEventListener("paste", (event) => this.paste(event));
    for (const name of ["dragenter", "dragover", "dragleave", "drop"]) document.addEventListener(name, (event) => this.drag(event));
    for (const id of ZONES) place(id).dataset.drop = `Drop ${kind === "image" ? "an image" : "a text file"} to explain it`;
  }

  // Files over the page: the list and the explanation take them, and nowhere else do they replace the page.
  drag(event) {
    if (!event.dataTransfer?.types.includes("Files")) return;
    const zone = ZONES.map(place).find((each) => each.contains(event.target)), left = event.type === "dragleave" && event.relatedTarget === null;
    event.preventDefault();
    event.dataTransfer.dropEffect = zone ? "copy" : "none";
    document.documentElement.classList.toggle("dropping", event.type !== "drop" && !left);
    for (const id of ZONES) place(id).classList.toggle("over", place(id) === zone && event.type !== "drop" && !left);
    if (event.type === "drop" && zone) this.take([...event.dataTransfer.files], zone, true);
  }

  paste(event) {
    if (place("explore").hidden) return null;
    const files = [...(event.clipboardData?.files ?? [])];
    if (files.length) return this.take(files, place("shown"), true);
    const text = event.clipboardData?.getData("text/plain").trim();
    if (!text || this.kind !== "text" || event.target.closest?.("input, textarea")) return null;
    place("text").value = text;
    return this.send(text, TEXT, place("shown"), true);
  }

  async take(files, where, above) {
    const [file] = files, name = `“${file?.name || "what you pasted"}”`;
    if (files.length !== 1) return this.say(`Got ${files.length} files. Give one at a time.`, where, above);
    if (this.kind === "image" && IMAGES.includes(file.type)) return this.send(file, file.type, where, above, name);
    if (this.kind === "text" && (file.type.startsWith("text/") || (!file.type && /\.(txt|md|text)$/i.test(file.name)))) return this.send(file, TEXT, where, above, name);
    return this.say(`${name} is ${this.kind === "image" ? "no image that can be read" : "no text"}. ${this.words}`, where, above);
  }

  async send(body, type, where, above, name = "") {
    const mine = ++this.asked;
    this.say(name ? `Reading ${name} …` : "Reading …", where, above, false);
    try {
      await this.explain(body, type);
      if (mine === this.asked) this.note.remove();
    } catch (error) {
      if (mine === this.asked) this.say(name ? `${name}: ${error.message}` : error.message, where, above);
    }
  }

  // Write a sentence above or below what was used.
  say(words, where, above, wrong = true) {
    this.note.classList.toggle("error", wrong);
    this.note.replaceChildren(words, ...wrong ? [" ", h("button", { type: "button", "aria-label": "Close this message", onclick: () => this.note.remove() }, "close")] : []);
    if (above) where.prepend(this.note); else where.append(this.note);
    this.note.scrollIntoView({ block: "nearest" });
  }
}
