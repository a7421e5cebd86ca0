// Addresses of the page: `#/journal/ID?outcome=miss`. Each view has one, so that it can be linked.

export function address(...parts) {
  return `#/${parts.map((each) => encodeURIComponent(each)).join("/")}`;
}

export function withQuery(hash, query) {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== "") parameters.set(name, value);
  }
  const text = parameters.toString();
  return text === "" ? hash : `${hash}?${text}`;
}

// `{parts, query}` of an address; nothing in it is trusted to be well-formed.
export function parse(hash) {
  const [way, search = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const parts = way.split("/").filter(Boolean).map(decoded);
  return { parts, query: Object.fromEntries(new URLSearchParams(search)) };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

// Go to another address in the place of this one: Back does not return here.
export function replace(hash) {
  history.replaceState(history.state, "", hash);
  dispatchEvent(new HashChangeEvent("hashchange"));
}

// Change the address of the view that is open without opening it anew.
export function replaceQuery(query) {
  const hash = location.hash.split("?")[0] || "#/journal";
  history.replaceState(history.state, "", withQuery(hash, query));
}
