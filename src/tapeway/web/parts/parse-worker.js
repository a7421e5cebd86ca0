// Parses JSON away from the page, so that a large body does not hold it up.

addEventListener("message", ({ data: { number, text } }) => {
  try {
    postMessage({ number, value: JSON.parse(text) });
  } catch (error) {
    postMessage({ number, error: error.message });
  }
});
