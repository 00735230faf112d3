// The counter's camera: shows what it sees, and reads a voucher's QR code from it.

const PAUSE_MS = 120; // between two looks, for the page to stay responsive
const LONGEST_MS = 120_000; // a forgotten camera stops
const SIDE_PX = 800; // of the picture that is read: enough for a code held into the camera

const FAULTS = {
  NotAllowedError: "denied",
  SecurityError: "denied",
  NotFoundError: "no_camera",
  OverconstrainedError: "no_camera",
  NotReadableError: "in_use",
  AbortError: "in_use",
};

/** The code in a text: behind `code=` of the address in a QR code, or the text itself. */
export function codeIn(text) {
  const [, code] = /[#?]code=([0-9a-z-]{1,40})$/i.exec(text) ?? /^\s*([0-9a-z-]{16,19})\s*$/i.exec(text) ?? [];
  return code ?? null;
}

export class Camera {
  #video;
  #onNote;
  #stream = null;
  #canvas = document.createElement("canvas");
  #scans = 0;

  /** `onNote` is called with what to tell: looking, foreign (another code), or why it ended. */
  constructor(video, onNote) {
    this.#video = video;
    this.#onNote = onNote;
  }

  get isOn() {
    return this.#stream !== null;
  }

  /** Ask for the camera, and look until there is a voucher's code. Return it, or null. */
  async scan() {
    this.stop();
    const scan = this.#scans;
    try {
      if (!navigator.mediaDevices?.getUserMedia) return this.#end(isSecureContext ? "no_camera" : "insecure");
      await this.#open(scan);
      await import("../vendor/jsqr/jsQR.js"); // leaves its function in window
      return await this.#look(scan);
    } catch (error) {
      return scan === this.#scans ? this.#end(FAULTS[error.name] ?? "failed") : null;
    }
  }

  stop() {
    this.#scans += 1;
    for (const track of this.#stream?.getTracks() ?? []) track.stop();
    this.#stream = null;
    this.#video.srcObject = null;
  }

  #end(note) {
    this.stop();
    this.#onNote(note);
    return null;
  }

  async #open(scan) {
    const wanted = { facingMode: "environment", width: { ideal: 1280 }, height: { ideal: 720 } };
    const stream = await navigator.mediaDevices.getUserMedia({ video: wanted, audio: false });
    if (scan !== this.#scans) { // stopped while the browser asked
      for (const track of stream.getTracks()) track.stop();
      return;
    }
    this.#stream = stream;
    stream.getVideoTracks()[0].addEventListener("ended", () => scan === this.#scans && this.#end("in_use"));
    this.#video.srcObject = stream;
    await this.#video.play();
    this.#onNote("looking");
  }

  async #look(scan) {
    const untilMs = performance.now() + LONGEST_MS;
    while (scan === this.#scans) {
      const text = this.#read();
      const code = text && codeIn(text);
      if (code) {
        this.stop();
        return code;
      }
      if (text) this.#onNote("foreign");
      if (performance.now() > untilMs) return this.#end("nothing");
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
    }
    return null;
  }

  /** Return the text of a QR code in the present picture, or null. */
  #read() {
    const { videoWidth, videoHeight } = this.#video;
    if (!videoWidth) return null;
    const scale = Math.min(1, SIDE_PX / Math.max(videoWidth, videoHeight));
    const [width, height] = [Math.round(videoWidth * scale), Math.round(videoHeight * scale)];
    Object.assign(this.#canvas, { width, height });
    const context = this.#canvas.getContext("2d", { willReadFrequently: true });
    context.drawImage(this.#video, 0, 0, width, height);
    const { data } = context.getImageData(0, 0, width, height);
    // Our codes are dark on light.
    return window.jsQR(data, width, height, { inversionAttempts: "dontInvert" })?.data || null;
  }
}
