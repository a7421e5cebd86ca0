import { defineConfig } from "vitest/config";

export default defineConfig({
  test: { globalSetup: "tapeway/global-setup", setupFiles: "tapeway/vitest", maxWorkers: 2 },
});
