// Clients of WebSocket services for Node.js, each asked for a conversation of two turns. The argument
// names the client, and every message of the service is printed.
import https from "node:https";
import { GoogleGenAI } from "@google/genai";
import { createClient } from "graphql-ws";
import OpenAI from "openai";
import { OpenAIRealtimeWebSocket } from "openai/realtime/websocket";
import { OpenAIRealtimeWS } from "openai/realtime/ws";
import { ResponsesWS } from "openai/resources/responses/ws";
import WebSocket from "ws";

const BASE = process.env.OPENAI_BASE_URL?.replace(/\/v1\/?$/, "");
const PROMPTS = ["hello", "and again"];

async function responses() {
  const client = new OpenAI({ apiKey: process.env.OPENAI_API_KEY, maxRetries: 0 });
  const socket = new ResponsesWS(client);
  const said = [];
  for (const input of PROMPTS) {
    const parent = said.at(-1)?.response.id;
    await new Promise((resolve, reject) => {
      const heard = (event) => {
        said.push(event);
        if (event.type === "response.completed") {
          socket.off("event", heard);
          resolve();
        }
      };
      socket.on("error", reject);
      socket.on("event", heard);
      socket.send({
        type: "response.create",
        model: "gpt-5-codex",
        input,
        ...(parent && { previous_response_id: parent }),
      });
    });
  }
  socket.close();
  return said;
}

async function graphql() {
  const client = createClient({
    url: `${BASE.replace(/^http/, "ws")}/graphql`,
    webSocketImpl: WebSocket,
    connectionParams: { token: process.env.OPENAI_API_KEY },
    retryAttempts: 0,
  });
  const said = [];
  for (const text of PROMPTS) {
    const query = `subscription { said(text: "${text}") }`;
    for await (const each of client.iterate({ query })) {
      said.push(each);
    }
  }
  await client.dispose();
  return said;
}

async function live() {
  const client = new GoogleGenAI({
    apiKey: process.env.OPENAI_API_KEY,
    httpOptions: { baseUrl: BASE },
  });
  const said = [];
  let ended = (event) => event && console.error("connection ended:", event.reason || event.message);
  const session = await client.live.connect({
    model: "gemini-live-2.5",
    config: { responseModalities: ["TEXT"] },
    callbacks: {
      onmessage(message) {
        said.push(message);
        if (message.serverContent?.turnComplete) {
          ended();
        }
      },
      onerror: (event) => ended(event),
      onclose: (event) => ended(event),
    },
  });
  for (const text of PROMPTS) {
    const turn = new Promise((resolve, reject) => {
      ended = (event) => (event ? reject(event.reason || event.message) : resolve());
    });
    session.sendClientContent({ turns: [{ role: "user", parts: [{ text }] }] });
    await turn;
  }
  session.close();
  return said;
}

async function talk(socket) {
  const said = [];
  await new Promise((resolve, reject) => {
    socket.on("error", reject);
    socket.on("event", (event) => {
      said.push(event);
      if (event.type === "session.created") {
        const content = [{ type: "input_text", text: PROMPTS[0] }];
        socket.send({
          type: "conversation.item.create",
          item: { type: "message", role: "user", content },
        });
        socket.send({ type: "response.create" });
      } else if (event.type === "response.done") {
        resolve();
      }
    });
  });
  socket.close();
  return said;
}

const model = "gpt-realtime";

// With the WebSocket of Node.js, which heeds the variables that name a proxy.
const realtime = () => talk(new OpenAIRealtimeWebSocket({ model }, new OpenAI()));

// The package `ws` heeds an agent alone.
const realtimeByPackage = () => {
  const agent = new https.Agent({ proxyEnv: process.env });
  return talk(new OpenAIRealtimeWS({ model, options: { agent } }, new OpenAI()));
};

const CLIENTS = { responses, graphql, live, realtime, realtimeByPackage };
console.log(JSON.stringify(await CLIENTS[process.argv[2]]()));
