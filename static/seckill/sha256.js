// What the checks of published files share.

const encoder = new TextEncoder();

/** SHA-256 of a text, as hexadecimal digits. */
export async function sha256(text) {
  const bytes = new Uint8Array(await crypto.subtle.digest("SHA-256", encoder.encode(text)));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Read the lines "# name: value" that a file begins with, and the lines after them. */
export function readHead(text, names) {
  const lines = text.trimEnd().split("\n");
  const head = {};
  names.forEach((name, number) => {
    const start = `# ${name}:`;
    if (!lines[number]?.startsWith(start)) throw new Error(`no ${name}`);
    head[name] = lines[number].slice(start.length).trim();
  });
  return { head, lines: lines.slice(names.length) };
}
