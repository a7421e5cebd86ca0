/** Stops the tapeway of the run, for Jest. */
declare function globalTeardown(): Promise<void>;

export = globalTeardown;
