// Word between the tabs of one browser: something of a sale has changed, so ask the shop.

export class Tabs {
  #name;
  #hear;
  #channel = null;

  /** `hear` is called, without a word of what it is, when another tab says that something changed. */
  constructor(saleId, hear) {
    this.#name = `seckill-${saleId}`;
    this.#hear = hear;
    this.#open();
    // A page that is kept to go back to must not listen meanwhile.
    window.addEventListener("pagehide", () => this.#close());
    window.addEventListener("pageshow", () => this.#open());
  }

  tell() {
    this.#channel?.postMessage("changed");
  }

  #open() {
    if (this.#channel || !("BroadcastChannel" in window)) return;
    this.#channel = new BroadcastChannel(this.#name);
    this.#channel.addEventListener("message", () => this.#hear());
  }

  #close() {
    this.#channel?.close();
    this.#channel = null;
  }
}
