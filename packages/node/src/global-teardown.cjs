"use strict";
// The global teardown of Jest, which takes none from its global set-up.

module.exports = require("./global-setup.cjs").globalTeardown;
