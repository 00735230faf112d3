// The work that some tokens ask for: find a nonce that gives the SHA-256 of the token's text a number
// of leading zero bits. The module is its own worker, so that the page stays responsive.

const K = new Int32Array(64);
const START = new Int32Array(8);
const BLOCK = 64;
const DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz";
const COUNTER = 7; // digits of the counter: 36^7 tries are more than anybody needs
const END = 9; // bytes that end the message: a mark, and its length

// The constants are the fractions of roots of the first primes (FIPS 180-4, 4.2.2 and 5.3.3).
const fraction = (root) => (root - Math.floor(root)) * 2 ** 32;
for (let number = 2, found = 0; found < 64; number += 1) {
  let factor = 2;
  while (number % factor) factor += 1;
  if (factor === number) {
    if (found < 8) START[found] = fraction(Math.sqrt(number));
    K[found] = fraction(Math.cbrt(number));
    found += 1;
  }
}

const words = new Int32Array(64);

/** Add one block of bytes to a state of SHA-256. */
function compress(state, bytes, into) {
  for (let i = 0; i < 16; i += 1) {
    const at = i * 4;
    words[i] = (bytes[at] << 24) | (bytes[at + 1] << 16) | (bytes[at + 2] << 8) | bytes[at + 3];
  }
  for (let i = 16; i < 64; i += 1) {
    const x = words[i - 15];
    const y = words[i - 2];
    const s0 = ((x >>> 7) | (x << 25)) ^ ((x >>> 18) | (x << 14)) ^ (x >>> 3);
    const s1 = ((y >>> 17) | (y << 15)) ^ ((y >>> 19) | (y << 13)) ^ (y >>> 10);
    words[i] = (words[i - 16] + s0 + words[i - 7] + s1) | 0;
  }
  let a = state[0];
  let b = state[1];
  let c = state[2];
  let d = state[3];
  let e = state[4];
  let f = state[5];
  let g = state[6];
  let h = state[7];
  for (let i = 0; i < 64; i += 1) {
    const s1 = ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7));
    const t1 = (h + s1 + ((e & f) ^ (~e & g)) + K[i] + words[i]) | 0;
    const s0 = ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10));
    const t2 = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
    h = g;
    g = f;
    f = e;
    e = (d + t1) | 0;
    d = c;
    c = b;
    b = a;
    a = (t1 + t2) | 0;
  }
  into[0] = state[0] + a;
  into[1] = state[1] + b;
  into[2] = state[2] + c;
  into[3] = state[3] + d;
  into[4] = state[4] + e;
  into[5] = state[5] + f;
  into[6] = state[6] + g;
  into[7] = state[7] + h;
}

/** Return a token with its work done. Hash until it fits: 2^bits times on average. */
export function doWork(token, bits) {
  let text = `${token}~`;
  // Zeros at the front of the nonce leave all that changes in one block: one step per try.
  const over = (text.length % BLOCK) + COUNTER + END - BLOCK;
  if (over > 0) text += "0".repeat(BLOCK - (text.length % BLOCK));
  const whole = text.length - (text.length % BLOCK);
  const bytes = new TextEncoder().encode(text);
  const before = Int32Array.from(START);
  for (let at = 0; at < whole; at += BLOCK) compress(before, bytes.subarray(at, at + BLOCK), before);
  const last = new Uint8Array(BLOCK);
  last.set(bytes.subarray(whole));
  const from = text.length - whole;
  last[from + COUNTER] = 0x80;
  new DataView(last.buffer).setUint32(BLOCK - 4, (text.length + COUNTER) * 8);
  const after = new Int32Array(8);
  for (let count = 0; ; count += 1) {
    let rest = count;
    for (let at = from + COUNTER - 1; at >= from; at -= 1) {
      last[at] = DIGITS.charCodeAt(rest % 36);
      rest = Math.floor(rest / 36);
    }
    compress(before, last, after);
    if (Math.clz32(after[0]) >= bits) {
      return text + String.fromCharCode(...last.subarray(from, from + COUNTER));
    }
  }
}

const isPage = typeof document !== "undefined";

if (!isPage) {
  addEventListener("message", ({ data }) => postMessage(doWork(data.token, data.bits)));
}

const doing = new Map(); // from a token to its promised text

/** Return the text of a token with its work, which is begun once and kept. */
export function workOnce(token) {
  const bits = Number(/-w(\d+):[^~]*$/.exec(token)[1]);
  if (!doing.has(token)) {
    doing.clear(); // a page has one token at a time
    doing.set(token, inWorker(token, bits));
  }
  return doing.get(token);
}

function inWorker(token, bits) {
  return new Promise((resolve) => {
    let worker;
    try {
      worker = new Worker(import.meta.url, { type: "module" });
    } catch {
      return resolve(doWork(token, bits)); // no workers: the page waits
    }
    const end = (text) => {
      worker.terminate();
      resolve(text);
    };
    worker.addEventListener("message", ({ data }) => end(data));
    worker.addEventListener("error", () => end(doWork(token, bits)));
    // oxlint-disable-next-line unicorn/require-post-message-target-origin -- a worker takes none
    return worker.postMessage({ token, bits });
  });
}
