// What is shown at an address that no view has.
import { el } from "./dom.js";
import { View } from "./view.js";

export class NowhereView extends View {
  constructor(page) {
    super(page, "No such page");
  }

  show() {
    const address = el("code", {}, location.hash);
    this.put(el("p", { class: "note" }, "This page has no view at ", address, ". ", el("a", { href: "#/map" }, "Show the map")));
  }
}
