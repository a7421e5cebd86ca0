import { askAI, askAnthropic, askLangChain, askOpenAI, streamOpenAI } from "./clients";
import { beforeAll, describe, expect, test } from "vitest";
import { useCassette, withCassette } from "tapeway/vitest";

const cassette = useCassette();
const changed = process.env["CHANGED"] ?? "Name a spider.";

test("openai", async () => {
  expect(await askOpenAI(changed)).toContain(changed);
  const [sent] = await cassette.requests();
  expect(sent).toMatchObject({ method: "POST", path: "/v1/chat/completions" });
  expect(sent?.body).toMatchObject({ messages: [{ content: changed }] });
});

test("a miss that the code handles", async () => {
  await askOpenAI(changed).catch(() => "unknown");
});

test("openai, streamed", async () => {
  expect(await streamOpenAI("Name a fly.")).toContain("Name a fly.");
});

test.each([
  ["anthropic", askAnthropic],
  ["ai", askAI],
  ["langchain", askLangChain],
])("%s", async (name, ask) => {
  expect(await ask(`Name a bee, ${name}.`)).toContain(`Name a bee, ${name}.`);
});

describe("shared", () => {
  useCassette("shared/by-two");

  test("first", async () => {
    expect(await askOpenAI("Name a wasp.")).toContain("wasp");
  });

  test("second", async () => {
    expect(await askOpenAI("Name a wasp.")).toContain("wasp");
  });
});

describe("rules", () => {
  useCassette(undefined, { rules: { ignore: ["body.user"] } });

  test("another user", async () => {
    expect(await askOpenAI("Who am I?", `user-${process.pid}`)).toContain("Who am I?");
  });
});

describe("set-up", () => {
  let found: string | null | undefined;
  beforeAll(async () => {
    found = await withCassette("shared/set-up", () => askOpenAI("Set it up."));
  });

  test("asks before its tests", () => expect(found).toContain("Set it up."));
});

describe("names", () => {
  test("Alike", () => askOpenAI("upper"));
  test("alike", () => askOpenAI("lower"));
  test("twice", () => askOpenAI("once"));
  test("twice", () => askOpenAI("once more"));
});

test("fails after it asked", async () => {
  expect(await askOpenAI("Name an ant.")).toContain(process.env["EXPECTED"] ?? "ant");
});

test.runIf(process.env["RETRIED"])("passes at the second try", { retry: 1 }, async ({ task }) => {
  await askOpenAI("Name a tick.");
  expect(task.result?.retryCount).toBe(1);
});
