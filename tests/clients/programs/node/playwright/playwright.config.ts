import { defineConfig } from "@playwright/test";

export default defineConfig({
  globalSetup: "tapeway/global-setup",
  fullyParallel: true,
  reporter: "line",
  workers: 2,
});
