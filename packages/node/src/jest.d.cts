import type { UseCassette } from "./index.cjs";

export { withCassette } from "./index.cjs";
export declare const useCassette: UseCassette;
