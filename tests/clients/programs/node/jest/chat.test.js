const OpenAI = require("openai");
const { useCassette } = require("tapeway/jest");

const client = new OpenAI();
const cassette = useCassette();

async function ask(words) {
  const messages = [{ role: "user", content: words }];
  return (await client.chat.completions.create({ model: "gpt-4o", messages })).choices[0].message.content;
}

describe("spiders", () => {
  test("named", async () => {
    const words = process.env.CHANGED ?? "Name a spider.";
    expect(await ask(words).catch(() => words)).toContain(words);
    expect(await cassette.requests()).toHaveLength(1);
  });

  test("Named", () => ask("Name a tarantula."));
});

test("fails after it asked", async () => {
  expect(await ask("Name an ant.")).toContain(process.env.EXPECTED ?? "ant");
});
