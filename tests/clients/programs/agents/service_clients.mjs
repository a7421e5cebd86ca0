// Clients of services for Node.js, each asked for a whole answer and a streamed one. The arguments name
// clients. Clients of Bedrock take a base URL where `tapeway run` sets one.
import https from "node:https";
import Anthropic from "@anthropic-ai/sdk";
import { AnthropicBedrock } from "@anthropic-ai/bedrock-sdk";
import {
  BedrockRuntimeClient,
  ConverseCommand,
  ConverseStreamCommand,
  InvokeModelCommand,
  InvokeModelWithResponseStreamCommand,
} from "@aws-sdk/client-bedrock-runtime";
import { google } from "@ai-sdk/google";
import { NodeHttpHandler } from "@smithy/node-http-handler";
import { openai as openaiModel } from "@ai-sdk/openai";
import { generateText, streamText } from "ai";
import OpenAI from "openai";

const PROMPT = "hello";
const MESSAGES = [{ role: "user", content: PROMPT }];
const CLAUDE = { model: "claude-sonnet-5", max_tokens: 99, messages: MESSAGES };
const ON_BEDROCK = "anthropic.claude-sonnet-5-v1:0";

async function openai() {
  const client = new OpenAI({ maxRetries: 0 });
  const asked = { model: "gpt-4o-mini", messages: MESSAGES };
  const answer = await client.chat.completions.create(asked);
  let streamed = "";
  for await (const part of await client.chat.completions.create({ ...asked, stream: true })) {
    streamed += part.choices[0]?.delta.content ?? "";
  }
  return [answer.choices[0].message.content, streamed];
}

async function claude(client, asked) {
  const answer = await client.messages.create(asked);
  let streamed = "";
  for await (const event of await client.messages.create({ ...asked, stream: true })) {
    streamed += event.delta?.text ?? "";
  }
  return [answer.content[0].text, streamed];
}

async function vercel(model) {
  const asked = { model, prompt: PROMPT, maxRetries: 0 };
  return [(await generateText(asked)).text, await streamText(asked).text];
}

async function aws() {
  // The client's own handler speaks HTTP/2 alone.
  const requestHandler = new NodeHttpHandler({ httpsAgent: new https.Agent({ proxyEnv: process.env }) });
  const client = new BedrockRuntimeClient({ requestHandler, maxAttempts: 1 });
  const converse = { modelId: ON_BEDROCK, messages: [{ role: "user", content: [{ text: PROMPT }] }] };
  const body = JSON.stringify({ anthropic_version: "bedrock-2023-05-31", max_tokens: 99, messages: MESSAGES });
  const invoke = { modelId: ON_BEDROCK, contentType: "application/json", body };
  const said = [(await client.send(new ConverseCommand(converse))).output.message.content[0].text, "", "", ""];
  for await (const event of (await client.send(new ConverseStreamCommand(converse))).stream) {
    said[1] += event.contentBlockDelta?.delta.text ?? "";
  }
  const invoked = await client.send(new InvokeModelCommand(invoke));
  said[2] = JSON.parse(new TextDecoder().decode(invoked.body)).content[0].text;
  for await (const event of (await client.send(new InvokeModelWithResponseStreamCommand(invoke))).body) {
    said[3] += JSON.parse(new TextDecoder().decode(event.chunk.bytes)).delta?.text ?? "";
  }
  return said;
}

const clients = {
  openai,
  anthropic: () => claude(new Anthropic({ maxRetries: 0 }), CLAUDE),
  vercel: () => vercel(openaiModel.chat("gpt-4o-mini")),
  google: () => vercel(google("gemini-3-flash")),
  aws,
  "anthropic-bedrock": () => claude(new AnthropicBedrock({ maxRetries: 0 }), { ...CLAUDE, model: ON_BEDROCK }),
};

for (const name of process.argv.slice(2)) {
  console.log(name, JSON.stringify(await clients[name]()));
}
