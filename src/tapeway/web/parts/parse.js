// JSON texts as values: small ones at once, large ones in a worker.

const LARGE = 256 * 1024;
const WORKER = new URL("./parse-worker.js", import.meta.url).href;

// The policy of the page lets scripts start from this one address.
const policy = globalThis.trustedTypes?.createPolicy("tapeway", {
  createScriptURL: (address) => {
    if (address === WORKER) return address;
    throw new TypeError("no other script is started");
  },
});

let worker;
let last = 0;
const waiting = new Map();

// The value of a JSON text. Rejects with what is wrong with it.
export function parseJson(text) {
  return text.length < LARGE ? Promise.resolve().then(() => JSON.parse(text)) : parseApart(text);
}

function parseApart(text) {
  worker ??= started();
  last += 1;
  return new Promise((resolve, reject) => {
    waiting.set(last, { text, resolve, reject });
    worker.postMessage({ number: last, text });
  });
}

function started() {
  const made = new Worker(policy ? policy.createScriptURL(WORKER) : WORKER, { type: "module" });
  // Its file may not be to be had, while the server is gone: then the page parses, and asks later.
  made.addEventListener("error", () => {
    worker = undefined;
    for (const { text, resolve, reject } of waiting.values()) Promise.resolve().then(() => JSON.parse(text)).then(resolve, reject);
    waiting.clear();
  });
  made.addEventListener("message", ({ data: { number, value, error } }) => {
    const { resolve, reject } = waiting.get(number);
    waiting.delete(number);
    if (error === undefined) resolve(value);
    else reject(new Error(error));
  });
  return made;
}
