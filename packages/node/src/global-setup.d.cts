/** What vitest, Jest and Playwright give to a global set-up: only where the project is matters. */
interface RunnerConfig {
  config?: { root: string };
  configFile?: string;
  rootDir?: string;
}

/** Starts the tapeway of the run, or attaches to that of `TAPEWAY_ADMIN_URL`; returns what stops it. */
declare function globalSetup(runner?: RunnerConfig): Promise<() => Promise<void>>;

declare namespace globalSetup {
  export type { RunnerConfig };
  export function globalTeardown(): Promise<void>;
}

export = globalSetup;
