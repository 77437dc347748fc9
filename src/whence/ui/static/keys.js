// Keyboard shortcuts of each view, and their help.

import { place } from "./dom.js";

// Keys act unless the user types or another element handles them.
const taken = (event) => event.ctrlKey || event.metaKey || event.altKey
  || event.target.closest?.("input:not([type=checkbox], [type=radio]), select, textarea, nav, dialog");

// ``of(view)`` returns the actions of a view by key.
export function listenToKeys(view, of) {
  document.addEventListener("keydown", (event) => {
    if (taken(event)) return;
    const act = { "?": help, ...of(view()) }[event.key];
    if (!act || (event.target.type === "radio" && event.key.startsWith("Arrow"))) return;
    event.preventDefault();
    act();
  });
  place("keys").addEventListener("click", help);
  place("words").addEventListener("click", () => place("glossary-of").showModal());
  for (const dialog of document.querySelectorAll("dialog")) {
    dialog.querySelector(".close").addEventListener("click", () => dialog.close());
    dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  }
  place("skip").addEventListener("click", (event) => {
    event.preventDefault();
    const to = place(view() === "explore" ? "explanation" : view());
    to.tabIndex = -1;
    to.focus();
    to.scrollIntoView({ block: "start" });
  });
}

function help() {
  if (!place("help").open) place("help").showModal();
}
