"use strict";

const { AdminClient, TapewayError } = require("./admin.cjs");
const { serve } = require("./server.cjs");
const { withCassette } = require("./session.cjs");
const { CassetteError } = require("./takes.cjs");

module.exports = { AdminClient, CassetteError, TapewayError, serve, withCassette };
