import { get } from "node:http";
import { askOpenAI } from "./clients";
import { describe, expect, test } from "vitest";
import { useCassette, withCassette } from "tapeway/vitest";

useCassette();

test.concurrent.each(Array.from({ length: 8 }, (_, index) => index))("round %i", async (round) => {
  await withCassette(`concurrent/${round}`, async () => {
    for (const words of ["first", "second"]) {
      expect(await askOpenAI(`${words} of ${round}`)).toContain(`${words} of ${round}`);
    }
  });
});

test.concurrent("the same cassette at the same time", async () => {
  const both = ["one", "two"].map((words) => withCassette("concurrent/same", () => askOpenAI(words)));
  expect(await Promise.all(both)).toEqual([expect.stringContaining("one"), expect.stringContaining("two")]);
});

describe.runIf(process.env["ASTRAY"])("astray", () => {
  test.concurrent("with fetch", async () => {
    await askOpenAI("Where am I?").catch(() => "lost");
  });

  test.concurrent("past fetch", async () => {
    const url = `${process.env["OPENAI_BASE_URL"]}/models`;
    const status = await withCassette("concurrent/astray", () => {
      return new Promise((resolve) => get(url, (response) => resolve(response.resume().statusCode)));
    });
    expect(status).toBe(404);
  });
});
