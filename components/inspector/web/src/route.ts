/** Addresses of views. The place and every filter stand in the fragment, `#/episodes?where=…`, so that a link is the state. */
import { useEffect, useState } from "preact/hooks";

export type Query = Readonly<Record<string, string>>;
export type Route = { readonly parts: readonly string[]; readonly query: Query };

export function parseRoute(hash: string): Route {
  const [path = "", search = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const parts = path.split("/").filter(Boolean).map(decode);
  return { parts, query: Object.fromEntries(new URLSearchParams(search)) };
}

/** The fragment of a view; empty and undefined values of the query are left out. */
export function link(
  parts: readonly (string | number)[],
  query: Record<string, string | number | undefined> = {},
): string {
  const path = parts.map((part) => encodeURIComponent(part)).join("/");
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== "");
  const search = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return `#/${path}${search && `?${search}`}`;
}

/** Open another view, or the same with another query. `replace` leaves no step in the history: for what is typed or scrolled. */
export function go(to: string, replace = false): void {
  if (to === location.hash) return;
  if (replace) {
    history.replaceState(null, "", to);
    dispatchEvent(new HashChangeEvent("hashchange"));
  } else {
    location.hash = to;
  }
}

export function useRoute(): Route {
  const [route, setRoute] = useState(() => parseRoute(location.hash));
  useEffect(() => {
    const follow = () => setRoute(parseRoute(location.hash));
    addEventListener("hashchange", follow);
    return () => removeEventListener("hashchange", follow);
  }, []);
  return route;
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
