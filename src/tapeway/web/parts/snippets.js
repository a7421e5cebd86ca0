// A recorded request as a command or program. It names the variable of the key, and holds no key.

const KEYS = {
  anthropic: ["x-api-key", "", "ANTHROPIC_API_KEY"],
  gemini: ["x-goog-api-key", "", "GEMINI_API_KEY"],
  azure: ["api-key", "", "AZURE_OPENAI_API_KEY"],
  openai: ["Authorization", "Bearer ", "OPENAI_API_KEY"],
  mistral: ["Authorization", "Bearer ", "MISTRAL_API_KEY"],
  groq: ["Authorization", "Bearer ", "GROQ_API_KEY"],
  openrouter: ["Authorization", "Bearer ", "OPENROUTER_API_KEY"],
  deepseek: ["Authorization", "Bearer ", "DEEPSEEK_API_KEY"],
  xai: ["Authorization", "Bearer ", "XAI_API_KEY"],
  together: ["Authorization", "Bearer ", "TOGETHER_API_KEY"],
};
const SKIPPED = /^(host|content-length|connection|accept-encoding|user-agent|transfer-encoding|x-stainless-.*)$/i;
const SECRET = /^(authorization|proxy-authorization|cookie|x-api-key|x-goog-api-key|api-key)$/i;

// `{method, url, headers, text, key}`: what a snippet is made of. `text` is null where the body is
// no text or not whole.
function parts(view) {
  const { body, headers } = view.request;
  return {
    method: view.method,
    url: view.url,
    headers: headers.filter(([name]) => !SKIPPED.test(name) && !SECRET.test(name)),
    text: body.kind === "empty" ? "" : body.cut ? null : body.text,
    key: KEYS[view.route],
  };
}

export const SNIPPETS = { curl, Python: python, fetch: javascript };

function curl(view) {
  const { method, url, headers, text, key } = parts(view);
  const lines = [`curl -X ${quoted(method)} ${quoted(url)}`];
  for (const [name, value] of headers) lines.push(`-H ${quoted(`${name}: ${value}`)}`);
  if (key) lines.push(`-H "${key[0]}: ${key[1]}$${key[2]}"`);
  if (text === null) lines.push("--data-binary @body");
  else if (text !== "") lines.push(`--data-binary ${quoted(text)}`);
  return `${lines.join(" \\\n  ")}\n`;
}

function quoted(text) {
  return /^[A-Za-z0-9_./:-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

function python(view) {
  const { method, url, headers, text, key } = parts(view);
  const sent = headers.map(([name, value]) => `    (${literal(name)}, ${literal(value)}),`);
  if (key) sent.push(`    (${literal(key[0])}, ${key[1] ? `${literal(key[1])} + ` : ""}os.environ[${literal(key[2])}]),`);
  const body = text === null ? 'open("body", "rb")' : text === "" ? "None" : `${literal(text)}.encode()`;
  return `import os

import httpx

headers = [
${sent.join("\n")}
]
response = httpx.request(${literal(method)}, ${literal(url)}, headers=headers, content=${body})
print(response.status_code, response.text)
`;
}

function javascript(view) {
  const { method, url, headers, text, key } = parts(view);
  const sent = headers.map(([name, value]) => `  [${literal(name)}, ${literal(value)}],`);
  if (key) sent.push(`  [${literal(key[0])}, ${key[1] ? `${literal(key[1])} + ` : ""}process.env.${key[2]}],`);
  const body = text === null ? 'await readFile("body")' : literal(text);
  return `${text === null ? 'import { readFile } from "node:fs/promises";\n\n' : ""}const headers = [
${sent.join("\n")}
];
const response = await fetch(${literal(url)}, {
  method: ${literal(method)},
  headers,${text === "" ? "" : `\n  body: ${body},`}
});
console.log(response.status, await response.text());
`;
}

// JSON's strings are strings of Python and JavaScript too, but for lone surrogates, which are escaped.
function literal(text) {
  return JSON.stringify(text);
}
