import type { Fixtures } from "@playwright/test";
import type { CassetteOptions, TestCassette } from "./index.cjs";

export { withCassette } from "./index.cjs";

export interface TestFixtures {
  /** A cassette that tests share; by default each has its own. */
  cassetteName: string | undefined;
  cassetteOptions: CassetteOptions;
  cassette: TestCassette;
}

export interface WorkerFixtures {
  /** The proxy, through this worker's slot: for an application that is started for the worker. */
  tapeway: { url: string; adminUrl: string; slot: string };
}

export declare const fixtures: Fixtures<TestFixtures, WorkerFixtures>;
