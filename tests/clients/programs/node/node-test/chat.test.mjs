import assert from "node:assert/strict";
import { describe, test } from "node:test";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { useCassette, withCassette } from "tapeway/node-test";

const openai = new OpenAI();
const anthropic = new Anthropic();
const cassette = useCassette();

async function ask(words) {
  const messages = [{ role: "user", content: words }];
  return (await openai.chat.completions.create({ model: "gpt-4o", messages })).choices[0].message.content;
}

test("spider", async () => {
  const words = process.env.CHANGED ?? "Name a spider.";
  assert.match(await ask(words).catch(() => words), /spider/);
  assert.equal((await cassette.requests()).length, 1);
});

test("with subtests", async (t) => {
  await t.test("one", () => ask("one"));
  await t.test("two", async () => {
    const messages = [{ role: "user", content: "two" }];
    await anthropic.messages.create({ model: "claude-sonnet-5", max_tokens: 9, messages });
  });
});

test("fails after it asked", async () => {
  assert.ok((await ask("Name an ant.")).includes(process.env.EXPECTED ?? "ant"));
});

describe("at once", { concurrency: true }, () => {
  for (const words of ["a", "b", "c"]) {
    test(words, () => withCassette(`concurrent/${words}`, () => ask(words)));
  }
  if (process.env.ASTRAY) test("astray", () => ask("Where am I?").catch(() => "lost"));
});

if (process.env.ASTRAY) test("spider", () => ask("Name another spider."));
