// Messages between the tabs of one browser: a sale has changed, so ask the server.

export class Tabs {
  /** `onChange` is called when another tab says that something changed. */
  constructor(saleId, onChange) {
    this.name = `seckill-${saleId}`;
    this.onChange = onChange;
    this.channel = null;
    this.open();
    // A page in the back-forward cache must not listen.
    window.addEventListener("pagehide", () => this.close());
    window.addEventListener("pageshow", () => this.open());
  }

  notify() {
    this.channel?.postMessage("changed");
  }

  open() {
    if (this.channel || !("BroadcastChannel" in window)) return;
    this.channel = new BroadcastChannel(this.name);
    this.channel.addEventListener("message", () => this.onChange());
  }

  close() {
    this.channel?.close();
    this.channel = null;
  }
}
