// Built when they are imported, before it is known which test runs.
import Anthropic from "@anthropic-ai/sdk";
import { openai } from "@ai-sdk/openai";
import { ChatOpenAI } from "@langchain/openai";
import { generateText } from "ai";
import OpenAI from "openai";

const ofOpenAI = new OpenAI();
const ofAnthropic = new Anthropic();
const ofLangChain = new ChatOpenAI({ model: "gpt-4o" });

export async function askOpenAI(words: string, user = "nobody"): Promise<string | null | undefined> {
  const messages = [{ role: "user" as const, content: words }];
  const answer = await ofOpenAI.chat.completions.create({ model: "gpt-4o", messages, user });
  return answer.choices[0]?.message.content;
}

export async function streamOpenAI(words: string): Promise<string> {
  const messages = [{ role: "user" as const, content: words }];
  const stream = await ofOpenAI.chat.completions.create({ model: "gpt-4o", messages, stream: true });
  let text = "";
  for await (const chunk of stream) text += chunk.choices[0]?.delta.content ?? "";
  return text;
}

export async function askAnthropic(words: string): Promise<string> {
  const stream = ofAnthropic.messages.stream({
    model: "claude-sonnet-5",
    max_tokens: 100,
    messages: [{ role: "user", content: words }],
  });
  return stream.finalText();
}

export async function askAI(words: string): Promise<string> {
  return (await generateText({ model: openai("gpt-4o"), prompt: words })).text;
}

export async function askLangChain(words: string): Promise<string> {
  return (await ofLangChain.invoke(words)).text;
}
