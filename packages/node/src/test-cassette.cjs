"use strict";
// What `useCassette` gives to a test: its cassette, and what the code under test sent.

const { connected } = require("./session.cjs");
const { TapewayError } = require("./admin.cjs");

class TestCassette {
  get name() {
    return this._take.cassette;
  }

  get mode() {
    return this._take.mode;
  }

  requests() {
    return this._take.requests();
  }

  get _take() {
    const take = connected().current;
    if (take) return take;
    throw new TapewayError("no test runs that has a cassette of its own", "no_test");
  }
}

module.exports = { TestCassette };
