import assert from "node:assert/strict";
import test from "node:test";
import { check } from "./check.mjs";

test("pure functions of the console", async () => {
  globalThis.addEventListener ||= () => {}; // modules with a page import these
  assert.deepEqual(await check((name) => import(`../assets/${name}`)), []);
});
