// tapeway in a container, from Node.js: npm install --save-dev testcontainers openai
import assert from "node:assert/strict";
import path from "node:path";
import { after, before, test } from "node:test";
import OpenAI from "openai";
import { GenericContainer, Wait } from "testcontainers";

let container;
let proxy;

before(async () => {
  container = await new GenericContainer("tapeway")
    .withEnvironment({ TAPEWAY_MODE: "replay" })
    .withBindMounts([{ source: path.resolve("cassettes"), target: "/cassettes", mode: "ro" }])
    .withExposedPorts(8080)
    .withWaitStrategy(Wait.forLogMessage('"event":"ready"'))
    .start();
  proxy = `http://${container.getHost()}:${container.getMappedPort(8080)}`;
});

after(() => container.stop());

test("names a spider", async () => {
  const client = new OpenAI({ baseURL: `${proxy}/@spider/openai/v1`, apiKey: "replay-needs-no-key" });
  const answer = await client.responses.create({ model: "gpt-4o", input: "Name a spider." });
  assert.match(answer.output_text, /spider/);
});
