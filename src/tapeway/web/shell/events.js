// Server-sent events of a response that `fetch` got.

// The data of the events, parsed, as many at a time as arrived together. The first batch may be
// empty: it says that the stream has begun.
export async function* serverEvents(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    yield blocks.map(dataOf).filter((each) => each !== null);
  }
}

function dataOf(block) {
  const data = block.split("\n").filter((line) => line.startsWith("data:"));
  return data.length === 0 ? null : JSON.parse(data.map((line) => line.slice(5)).join("\n"));
}
