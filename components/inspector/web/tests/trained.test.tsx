import { render } from "preact-render-to-string";
import { expect, test } from "vitest";
import { ApiError } from "../src/api/client";
import { DriftLine, largest } from "../src/views/trained";

const data = { places: [7, 8, 1204], values: [0.0001, -0.5, 0.25], mean: 0.25, largest: 0.5, note: "3 replies" };
const line = (of: Partial<Parameters<typeof DriftLine>[0]>) =>
  render(
    <DriftLine
      asked
      drift={{ loading: false }}
      worst={[]}
      compute={() => undefined}
      choose={() => undefined}
      {...of}
    />,
  );

test("tokens are listed by the size of their drift, whatever its sign, without those of mere rounding", () => {
  expect(largest(data)).toEqual([8, 1204]);
});

test("drift is offered, then awaited, then told or refused, in one line each", () => {
  expect(line({ asked: false })).toContain("<button");
  expect(line({ drift: { loading: true } })).toContain('role="status"');
  expect(line({ drift: { loading: false, error: new ApiError(404, "no <weights>") } })).toContain("no &lt;weights>");
  const told = line({ drift: { loading: false, data }, worst: largest(data) });
  expect(told.replace(/<[^>]+>/g, "")).toBe(
    "drift of 3 tokens: mean size 0.25, largest 0.5-0.5 token 80.25 token 1,2043 replies",
  );
});
