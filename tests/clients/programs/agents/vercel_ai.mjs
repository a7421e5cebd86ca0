// Vercel's AI SDK on three APIs, whole and streamed.
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const inputSchema = z.object({ city: z.string() });
const weather = tool({ description: "Weather.", inputSchema, execute: ({ city }) => `sunny in ${city}` });
const population = tool({ description: "People.", inputSchema, execute: ({ city }) => `many in ${city}` });
const openai = createOpenAI();
const anthropic = createAnthropic({ baseURL: `${process.env.ANTHROPIC_BASE_URL}/v1` });

for (const model of [openai("gpt-4o"), openai.chat("gpt-4o"), anthropic("claude-sonnet-5")]) {
  const asked = { model, tools: { weather, population }, prompt: "Tell me of Málaga, in pairs", stopWhen: stepCountIs(5) };
  console.log((await generateText(asked)).text);
  console.log(await streamText(asked).text);
}
