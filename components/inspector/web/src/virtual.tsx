/** Lists of any length: only the rows near the window are in the document, and only their pages are fetched. */
import { elementScroll, observeElementOffset, observeElementRect, Virtualizer } from "@tanstack/virtual-core";
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useReducer, useRef, useState } from "preact/hooks";

type Props = {
  count: number;
  /** Height of a row in pixels before it is measured. */
  estimate: number;
  children: (index: number) => ComponentChildren;
  /** The row that stays in view; the list scrolls when it changes. */
  at?: number | undefined;
  /** Where that row comes to stand: `auto` scrolls only as far as needed. */
  align?: "auto" | "start";
  /** Whether that row is loaded: its height is then final, and the list scrolls to it again. */
  ready?: boolean;
  label: string;
  onRange?: (from: number, to: number) => void;
};

/** The rows of a list inside the page's one scrolling element, `#main`. */
export function VirtualList({ count, estimate, children, at, align = "auto", ready = true, label, onRange }: Props) {
  const [, draw] = useReducer((turn: number, _: undefined) => turn + 1, 0);
  const frame = useRef<HTMLDivElement>(null);
  const [margin, setMargin] = useState(0);
  const options = {
    count,
    estimateSize: () => estimate,
    getScrollElement: () => document.getElementById("main"),
    scrollToFn: elementScroll,
    observeElementRect,
    observeElementOffset,
    scrollMargin: margin,
    // Bars stick to the top and the bottom of the window.
    scrollPaddingStart: 64,
    scrollPaddingEnd: 64,
    overscan: 6,
    onChange: () => draw(undefined),
  };
  const [list] = useState(() => new Virtualizer<HTMLElement, HTMLElement>(options));
  list.setOptions(options);
  useLayoutEffect(() => list._didMount(), [list]);
  useLayoutEffect(() => {
    list._willUpdate();
    // What stands above the list may have grown.
    const main = document.getElementById("main");
    if (!frame.current || !main) return;
    const top = frame.current.getBoundingClientRect().top - main.getBoundingClientRect().top + main.scrollTop;
    if (Math.abs(top - margin) > 1) setMargin(top);
  });
  const rows = list.getVirtualItems();
  const [from, to] = [rows[0]?.index ?? 0, rows.at(-1)?.index ?? -1];
  // biome-ignore lint/correctness/useExhaustiveDependencies: a new function is no new range
  useEffect(() => {
    if (to >= 0) onRange?.(from, to);
  }, [from, to, count]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: rows that are loaded later do not move the window
  useEffect(() => {
    if (at !== undefined && at >= 0 && at < count) list.scrollToIndex(at, { align });
  }, [at, align, ready, count > 0]);
  return (
    <div ref={frame} class="virtual" style={{ height: `${list.getTotalSize()}px` }}>
      <div role="list" aria-label={label} style={{ transform: `translateY(${(rows[0]?.start ?? 0) - margin}px)` }}>
        {rows.map((row) => (
          <div
            key={row.key}
            ref={list.measureElement}
            data-index={row.index}
            role="listitem"
            aria-posinset={row.index + 1}
            aria-setsize={count}
          >
            {children(row.index)}
          </div>
        ))}
      </div>
    </div>
  );
}
