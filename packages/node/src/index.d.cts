/** What requests do: see the modes of `tapeway serve`. */
export type Mode = "replay" | "record" | "auto" | "passthrough";

/** What is to go wrong with a replayed answer: see docs/faults.md. */
export interface Fault {
  name: string;
  do: "429" | "500" | "503" | "529" | "error_event" | "reset" | "end" | "stall" | "slow" | "repeat" | "corrupt" | "timeout" | "close";
  match?: { method?: string; path?: string; model?: string; cassette?: string; index?: number };
  times?: number;
  after?: string;
  retry_after?: number;
  seconds?: number;
  code?: number;
}

/** How a test's cassette is used. `rules` have the keys of `[rules]` and are stored in the cassette;
 * `faults` are laid over what is replayed in the test, and stored nowhere.
 */
export interface CassetteOptions {
  mode?: Mode | undefined;
  rules?: Record<string, unknown> | undefined;
  faults?: Fault[] | undefined;
}

/** A request that the code under test sent, without secrets; `body` is parsed. */
export interface SentRequest {
  id: string;
  method: string;
  route: string;
  path: string;
  headers: [string, string][];
  body: unknown;
}

/** The cassette of the test that runs. */
export interface TestCassette {
  readonly name: string;
  readonly mode: Mode;
  /** What was sent in this test so far, oldest first, in replay too. */
  requests(): Promise<SentRequest[]>;
}

/** Point the requests of each test of the file, or of the suite around the call, at a cassette.
 *
 * Without a name, each test has one of its own; with one, the tests share it.
 */
export type UseCassette = (name?: string, options?: CassetteOptions) => TestCassette;

/** Run `fn`, whose fetched requests go to this cassette alone: for tests that run at the same time.
 *
 * Rejects with CassetteError if one missed.
 */
export declare function withCassette<T>(
  name: string,
  fn: () => T | Promise<T>,
  options?: CassetteOptions,
): Promise<T>;

/** Options of `tapeway serve` in camel case, such as `adminListen`, beside the two of `serve` itself. */
export interface ServeOptions {
  /** The command that is tapeway, such as `["python3", "-m", "tapeway"]`; else `TAPEWAY_BIN`, or `tapeway`. */
  command?: string | string[];
  /** The folder it works in, that of tapeway.toml. */
  folder?: string;
  mode?: Mode;
  cassette?: string;
  store?: string;
  /** The token that its admin API is to take, and `tapeway` sends. */
  adminToken?: string;
  storeToken?: string;
  upstream?: string;
  route?: string[];
  [option: string]: string | number | boolean | string[] | undefined;
}

/** A tapeway that runs. Methods reject with TapewayError. */
export interface Tapeway {
  readonly url: string;
  readonly adminUrl: string;
  /** The variables that lead SDKs to it: `Object.assign(process.env, tapeway.environment)`. */
  readonly environment: Record<string, string>;
  readonly admin: AdminClient;
  /** The mode, after it was set if one is given. */
  mode(mode?: Mode): Promise<Mode>;
  /** Make a cassette the active one, in a new take. */
  insert(cassette: string, mode?: Mode): Promise<void>;
  /** Write the final form of a cassette (the active one), unload it, and return its report. */
  eject(cassette?: string, options?: { prune?: boolean }): Promise<CassetteReport>;
  report(): Promise<{ cassettes: CassetteReport[]; upstream_connections: number }>;
  /** Let it finish calls in flight, and wait for its end. */
  stop(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

export interface CassetteReport {
  name: string;
  replayed: number;
  recorded: number;
  live: number;
  misses: { method: string; path: string; message: string; suggestion: string | null; times: number }[];
  unused: { index: number; method: string; path: string }[];
  [more: string]: unknown;
}

/** A tapeway of one's own, on free ports. It ends with this process, however that ends. */
export declare function serve(options?: ServeOptions): Promise<Tapeway>;

/** The admin API at a URL. */
export declare class AdminClient {
  constructor(url: string, token?: string);
  readonly url: string;
  /** The parsed answer of a call below `/api/v1/`. Rejects with TapewayError. */
  call(
    method: "GET" | "PUT" | "POST" | "DELETE",
    path: string,
    sent?: { body?: unknown; query?: Record<string, string> },
  ): Promise<any>;
}

/** A tapeway did not start or refused a call; `code` is that of its error, and stable. */
export declare class TapewayError extends Error {
  readonly code: string;
  /** The HTTP status, 0 where there was no answer. */
  readonly status: number;
}

/** A test missed, or sent a request past its cassette: the message says what and why. */
export declare class CassetteError extends TapewayError {}
