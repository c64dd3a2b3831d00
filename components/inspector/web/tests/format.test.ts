import { expect, test } from "vitest";
import { address } from "../src/api/client";
import { bytes, cut, duration, exact } from "../src/format";
import { link, parseRoute } from "../src/route";

test.each([
  [0, "0"],
  [1, "1"],
  [0.5, "0.5"],
  [1 / 3, "0.3333…"],
  [2 / 3, "0.6666…"],
  [0.999999, "0.9999…"],
  [-0.0034332275390625, "-0.003433…"],
  [1e-7, "1e-7"],
  [12.3456789, "12.3456…"],
  [123456, "123456"],
])("%d is cut and never rounded: %s", (value, shown) => expect(cut(value)).toBe(shown));

test("the exact text of a number reads back as the same number", () => {
  for (const value of [1 / 3, Math.PI, 1e-300, -0, 5e-324, 0.1 + 0.2])
    expect(Object.is(Number(exact(value)), value)).toBe(true);
});

test("durations and sizes have units", () => {
  expect([0.84, 59.6, 185, 7620].map(duration)).toEqual(["0.8 s", "1 min 00 s", "3 min 05 s", "2 h 07 min"]);
  expect([512, 2048, 50 * 2 ** 20].map(bytes)).toEqual(["512 bytes", "2.0 KiB", "50.0 MiB"]);
});

test("a link holds the place and its filters, and reads back as both", () => {
  const to = link(["episode", "a/b ?#%"], { turn: 3, where: "success == false & x = '?'", empty: "" });
  expect(parseRoute(to)).toEqual({
    parts: ["episode", "a/b ?#%"],
    query: { turn: "3", where: "success == false & x = '?'" },
  });
});

test("an address that was cut or written by hand opens nothing worse than an unknown view", () => {
  expect(parseRoute("#/episode/%E0%A4%A").parts).toEqual(["episode", "%E0%A4%A"]);
  expect(parseRoute("")).toEqual({ parts: [], query: {} });
});

test("parameters stand in the path or the query of a request, encoded", () => {
  expect(address("/api/episodes/{id}/turns", { id: "a/../b", offset: 0, where: undefined })).toBe(
    "/api/episodes/a%2F..%2Fb/turns?offset=0",
  );
});
