const OpenAI = require("openai");
const { useCassette, withCassette } = require("tapeway/jest");

const client = new OpenAI();
useCassette();

async function ask(words) {
  const messages = [{ role: "user", content: words }];
  return (await client.chat.completions.create({ model: "gpt-4o", messages })).choices[0].message.content;
}

test.concurrent.each(["one", "two", "three"])("asks %s", async (words) => {
  await withCassette(`concurrent/${words}`, async () => expect(await ask(words)).toContain(words));
});

if (process.env.ASTRAY) {
  test.concurrent("astray", async () => {
    await ask("Where am I?").catch(() => "lost");
  });
}
