"""The version of tapeway; the package is built from it."""

VERSION = "0.1.0"
