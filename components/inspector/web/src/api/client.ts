/** The typed client of the server's API. Paths, parameters and answers come from its OpenAPI document (`npm run types`). */
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import type { paths } from "./schema";

type Get<P extends keyof paths> = paths[P] extends { get: infer G } ? G : never;
export type Path = { [P in keyof paths]: paths[P] extends { get: object } ? P : never }[keyof paths];
export type Answer<P extends Path> =
  Get<P> extends { responses: { 200: { content: { "application/json": infer A } } } } ? A : never;
type Given<V> = [Exclude<V, undefined>] extends [never] ? unknown : Exclude<V, undefined>;
type Part<P extends Path, K extends "path" | "query"> =
  Get<P> extends { parameters: infer A } ? (K extends keyof A ? Given<A[K]> : unknown) : unknown;
/** Parameters of a path and of its query in one object. */
export type Params<P extends Path> = Part<P, "path"> & Part<P, "query">;

/** An answer that is not the one that was asked for: `message` is the server's one line. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

/** The address of a path with its parameters: those named in braces stand in the path, the others in the query. */
export function address(path: string, params: Record<string, unknown> = {}): string {
  const query = new URLSearchParams();
  let place = path;
  for (const [name, value] of Object.entries(params)) {
    if (value === undefined || value === null || value === "") continue;
    if (place.includes(`{${name}}`)) place = place.replace(`{${name}}`, encodeURIComponent(String(value)));
    else for (const each of Array.isArray(value) ? value : [value]) query.append(name, String(each));
  }
  const search = query.toString();
  return search ? `${place}?${search}` : place;
}

/** GET a path. Raises ApiError where the server refuses or does not answer. */
export async function get<P extends Path>(path: P, params: Params<P>, signal?: AbortSignal): Promise<Answer<P>> {
  return (await request("GET", address(path, params as Record<string, unknown>), undefined, signal)) as Answer<P>;
}

/** One request; `body` is sent as JSON. */
export async function request(method: string, url: string, body?: unknown, signal?: AbortSignal): Promise<unknown> {
  const init: RequestInit = { method, headers: { accept: "application/json" }, credentials: "same-origin" };
  if (signal) init.signal = signal;
  if (body !== undefined) {
    init.body = JSON.stringify(body);
    init.headers = { ...init.headers, "content-type": "application/json" };
  }
  const response = await fetch(url, init).catch((error: unknown) => {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError(0, "The server does not answer. Was it stopped? Start it again: ratchet inspect");
  });
  if (response.ok) return response.json();
  if (response.status === 401) throw new ApiError(401, "No credential. Open the link that `ratchet inspect` printed.");
  const answer: unknown = await response.json().catch(() => null);
  const line = answer && typeof answer === "object" && "error" in answer ? String(answer.error) : response.statusText;
  throw new ApiError(response.status, line);
}

export type Loaded<T> = { readonly data?: T; readonly error?: ApiError; readonly loading: boolean };

/** The answer of a path, asked again when its parameters change; the last answer stays until the next arrives.
 * `every`: milliseconds after which it is asked again. `params` null: not yet. */
export function useGet<P extends Path>(path: P, params: Params<P> | null, every?: number): Loaded<Answer<P>> {
  const key = params && address(path, params as Record<string, unknown>);
  const [state, setState] = useState<Loaded<Answer<P>> & { of?: string | null }>({ loading: true });
  // biome-ignore lint/correctness/useExhaustiveDependencies: `key` stands for path and params
  useEffect(() => {
    if (params === null) return;
    const abort = new AbortController();
    let timer = 0;
    const ask = () =>
      get(path, params, abort.signal)
        .then(
          (data) => setState({ data, of: key, loading: false }),
          (error: unknown) => {
            if (abort.signal.aborted) return;
            // An answer about something else would stand below the error as if it were this one's.
            setState((last) => ({ ...(last.of === key && last), error: asApiError(error), loading: false }));
          },
        )
        .finally(() => {
          if (every && !abort.signal.aborted) timer = window.setTimeout(ask, every);
        });
    setState(({ data, of }) => ({ ...(data !== undefined && of !== undefined && { data, of }), loading: true }));
    void ask();
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  }, [key, every]);
  return state;
}

function asApiError(error: unknown): ApiError {
  return error instanceof ApiError ? error : new ApiError(0, String(error));
}

export type Paged<T> = {
  readonly total: number | undefined;
  readonly error: ApiError | undefined;
  readonly loading: boolean;
  item(index: number): T | undefined;
  /** Fetch the pages of these rows, and forget pages far from them. */
  want(from: number, to: number): void;
};

const PAGE = 50;
const KEPT_PAGES = 40;

/** A list of any length by pages of `size` rows. `load` gives one page; a new `key` begins a new list. */
export function usePaged<T>(
  key: string | null,
  load: (offset: number, limit: number, signal: AbortSignal) => Promise<{ total: number; items: readonly T[] }>,
  size = PAGE,
): Paged<T> {
  const [, draw] = useState(0);
  const list = useRef<PageStore<T>>();
  if (list.current?.key !== key) {
    list.current?.abort.abort();
    list.current = new PageStore(key, list.current?.total, size, () => draw((turn) => turn + 1));
  }
  const store = list.current as PageStore<T>;
  store.load = load;
  useEffect(() => {
    if (key !== null) store.want(0, 0);
  }, [key, store]);
  useEffect(() => () => list.current?.abort.abort(), []);
  const want = useCallback((from: number, to: number) => store.want(from, to), [store]);
  return { total: store.total, error: store.error, loading: store.open > 0, item: (index) => store.item(index), want };
}

class PageStore<T> {
  readonly abort = new AbortController();
  readonly pages = new Map<number, readonly T[] | null>();
  error: ApiError | undefined;
  open = 0;
  load: (offset: number, limit: number, signal: AbortSignal) => Promise<{ total: number; items: readonly T[] }> =
    async () => ({
      total: 0,
      items: [],
    });

  constructor(
    readonly key: string | null,
    public total: number | undefined,
    readonly size: number,
    readonly changed: () => void,
  ) {}

  item(index: number): T | undefined {
    return this.pages.get(Math.floor(index / this.size))?.[index % this.size];
  }

  want(from: number, to: number): void {
    const [first, last] = [Math.floor(from / this.size), Math.floor(to / this.size)];
    for (let page = first; page <= last; page++) if (!this.pages.has(page)) void this.fetch(page);
    for (const page of this.pages.keys()) {
      if (this.pages.size <= KEPT_PAGES) break;
      if (page < first - KEPT_PAGES / 4 || page > last + KEPT_PAGES / 4) this.pages.delete(page);
    }
  }

  private async fetch(page: number): Promise<void> {
    this.pages.set(page, null);
    this.open++;
    try {
      const { total, items } = await this.load(page * this.size, this.size, this.abort.signal);
      this.pages.set(page, items);
      this.total = total;
      this.error = undefined;
    } catch (error) {
      this.pages.delete(page);
      if (!this.abort.signal.aborted) this.error = asApiError(error);
      if (![...this.pages.values()].some(Boolean)) this.total = undefined; // it is that of the list before
    }
    this.open--;
    if (!this.abort.signal.aborted) this.changed();
  }
}
