// Has each client ask for what was never recorded; prints who asked how often, for how long, and what it says.
import { createOpenAI } from "@ai-sdk/openai";
import Anthropic from "@anthropic-ai/sdk";
import { ChatOpenAI } from "@langchain/openai";
import { generateText } from "ai";
import OpenAI from "openai";

const [, , proxy] = process.argv;
const model = "gpt-4o";
const messages = [{ role: /** @type {const} */ ("user"), content: "never recorded" }];
const apiKey = "none";

/**
 * The name of each client is its cassette: the test counts the misses there.
 * @param {string} name
 */
const baseURL = (name) => `${proxy}/@${name}/openai/v1`;

/** @type {Record<string, (url: string) => Promise<unknown>>} */
const calls = {
  openai: (url) => new OpenAI({ apiKey, baseURL: url }).chat.completions.create({ model, messages }),
  openai_stream: (url) =>
    new OpenAI({ apiKey, baseURL: url }).chat.completions.create({ model, messages, stream: true }),
  anthropic: () =>
    new Anthropic({ apiKey, baseURL: `${proxy}/@anthropic/anthropic` }).messages.create({
      model: "claude-sonnet-5",
      max_tokens: 9,
      messages,
    }),
  vercel: (url) => generateText({ model: createOpenAI({ apiKey, baseURL: url })(model), messages }),
  langchain: (url) =>
    new ChatOpenAI({ apiKey, model, configuration: { baseURL: url } }).invoke("never recorded"),
  langchain_stream: (url) =>
    new ChatOpenAI({ apiKey, model, configuration: { baseURL: url } }).stream("never recorded"),
};

for (const [name, call] of Object.entries(calls)) {
  const begun = performance.now();
  const said = await call(baseURL(name)).then(
    () => "an answer",
    (error) => String(error),
  );
  console.log(JSON.stringify({ name, seconds: (performance.now() - begun) / 1000, said }));
}
