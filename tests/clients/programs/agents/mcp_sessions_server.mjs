// An MCP server over both HTTP transports, at /mcp and /sse; its argument is its port.
import { randomUUID } from "node:crypto";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { SSEServerTransport } from "@modelcontextprotocol/sdk/server/sse.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import express from "express";
import { z } from "zod";

const sessions = {};

async function serve(transport) {
  const server = new McpServer({ name: "tools", version: "1" }, { capabilities: { logging: {} } });
  server.registerTool("weather", { inputSchema: { city: z.string() } }, async ({ city }) => {
    const params = { level: "info", data: `looked at ${city}` };
    await server.server.notification({ method: "notifications/message", params });
    return { content: [{ type: "text", text: `sunny in ${city}` }] };
  });
  await server.connect(transport);
}

const app = express();
app.use(express.json());
app.all("/mcp", async (request, response) => {
  let transport = sessions[request.headers["mcp-session-id"]];
  if (transport === undefined) {
    transport = new StreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      onsessioninitialized: (id) => { sessions[id] = transport; },
    });
    await serve(transport);
  }
  await transport.handleRequest(request, response, request.body);
});
app.get("/sse", async (request, response) => {
  const transport = new SSEServerTransport("/messages", response);
  sessions[transport.sessionId] = transport;
  await serve(transport);
});
app.post("/messages", async (request, response) => {
  await sessions[request.query.sessionId].handlePostMessage(request, response, request.body);
});
app.listen(Number(process.argv[2]), "127.0.0.1", () => console.log("listening"));
