import OpenAI from "openai";
import { expect, test as base } from "@playwright/test";
import { fixtures } from "tapeway/playwright";

const test = base.extend(fixtures);
const client = new OpenAI();

async function ask(words: string) {
  const messages = [{ role: "user" as const, content: words }];
  return (await client.chat.completions.create({ model: "gpt-4o", messages })).choices[0]?.message.content;
}

test("spider", async ({ cassette }) => {
  const words = process.env["CHANGED"] ?? "Name a spider.";
  expect(await ask(words).catch(() => words)).toContain(words);
  expect(await cassette.requests()).toHaveLength(1);
});

test("an application behind the worker's slot", async ({ request, tapeway }) => {
  const answer = await request.get(`${tapeway.url}/openai/v1/models`);
  expect(answer.headers()["tapeway-cassette"]).toMatch(/^chat\.spec\/an-application/);
});

test.describe("shared", () => {
  test.use({ cassetteName: "shared/one" });
  test("named", async ({ cassette }) => {
    await ask("Name a wasp.");
    expect(cassette.name).toBe("shared/one");
  });
});

test("fails after it asked", async () => {
  expect(await ask("Name an ant.")).toContain(process.env["EXPECTED"] ?? "ant");
});
