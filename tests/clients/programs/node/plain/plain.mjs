// A program without a test runner: records in mode auto, or replays.
import OpenAI from "openai";
import { serve } from "tapeway";

const mode = process.argv[2] === "replay" ? "replay" : "auto";
const tapeway = await serve({ mode, cassette: "plain", adminToken: "a-token-of-its-own" });
Object.assign(process.env, tapeway.environment);

await new OpenAI().chat.completions.create({
  model: "gpt-4o",
  messages: [{ role: "user", content: "Name a spider." }],
});
console.log(JSON.stringify(await tapeway.eject()));
await tapeway.stop();
