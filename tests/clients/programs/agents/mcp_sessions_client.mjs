// An MCP client; its arguments are the transport, `mcp` or `sse`, and how it ends, `closed` or `left`.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { SSEClientTransport } from "@modelcontextprotocol/sdk/client/sse.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { LoggingMessageNotificationSchema } from "@modelcontextprotocol/sdk/types.js";

const [kind, end] = process.argv.slice(2);
const Transport = kind === "sse" ? SSEClientTransport : StreamableHTTPClientTransport;
const transport = new Transport(new URL(`${process.env.TAPEWAY_URL}/${kind}`));
const client = new Client({ name: "client", version: "1" });
const cities = ["Oslo", "Rome", "Oslo"];
const told = [];
const all = new Promise((resolve) => {
  client.setNotificationHandler(LoggingMessageNotificationSchema, ({ params }) => {
    told.push(params.data);
    if (told.length === cities.length) resolve();
  });
});
await client.connect(transport);
console.log((await client.listTools()).tools.map((each) => each.name).join());
for (const city of cities) {
  console.log((await client.callTool({ name: "weather", arguments: { city } })).content[0].text);
}
await all;
console.log(told.join());
if (end === "closed") {
  await transport.terminateSession?.();
  await client.close();
}
process.exit(0);
