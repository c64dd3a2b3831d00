/** The frame of every view: navigation, the keys between views, and errors. */
import { useEffect, useState } from "preact/hooks";
import { type Answer, useGet } from "./api/client";
import { bytes, plural } from "./format";
import { Keyboard, useKeys } from "./keys";
import { go, link, useRoute } from "./route";
import { plainText, Text } from "./text";
import { Clone } from "./ui";
import { VIEWS } from "./views";

const INDEXING_MS = 1_000;
const RESTING_MS = 30_000;

export function App() {
  const route = useRoute();
  const [indexing, setIndexing] = useState(false);
  const home = useGet("/api/home", {}, indexing ? INDEXING_MS : RESTING_MS);
  const running = home.data?.index.running ?? false;
  useEffect(() => setIndexing(running), [running]);
  const name = route.parts[0] ?? "episodes";
  const view = VIEWS[name];
  const clone = home.data?.clone !== false;
  const shown = Object.entries(VIEWS).filter(
    ([, each]) => each.title && (!each.review || home.data?.mode === "review") && (!each.clone || clone),
  );
  useKeys(
    Object.fromEntries(
      shown.map(([path, each]) => [`g ${each.key}`, [() => go(link([path])), `go to ${each.title}`] as const]),
    ),
  );
  // biome-ignore lint/correctness/useExhaustiveDependencies: another view begins at its top, with the focus in it
  useEffect(() => {
    document.title = `${plainText(route.parts.join(" "))} · Ratchet inspector`;
    const main = document.getElementById("main");
    main?.scrollTo(0, 0);
  }, [route.parts.join("/")]);
  return (
    <>
      <button type="button" class="skip" onClick={() => document.getElementById("main")?.focus()}>
        Skip to content
      </button>
      <header class="top">
        <a class="brand" href={link(["episodes"])}>
          <img src="/favicon.svg" alt="" width="22" height="22" />
          <strong>Ratchet</strong>
        </a>
        <nav aria-label="Views">
          {shown.map(([path, each]) => (
            <a key={path} href={link([path])} aria-current={path === name ? "page" : undefined}>
              {each.title}
            </a>
          ))}
        </nav>
        <span class="soft home">{home.data && <Text>{home.data.name}</Text>}</span>
      </header>
      <main id="main" tabIndex={-1}>
        {home.error && (
          <p class="error" role="alert">
            <Text>{home.error.message}</Text>
          </p>
        )}
        {/* What is being written in a view stays while the server does not answer. */}
        {home.error && !home.data ? null : view ? (
          <Clone.Provider value={clone}>
            {home.data && <Sources home={home.data} />}
            {/* What was listed while the index grew is listed again when it is whole. */}
            <view.show key={view.indexed ? `${name} ${running}` : name} route={route} />
          </Clone.Provider>
        ) : (
          <p class="error">There is no such view.</p>
        )}
      </main>
      <Keyboard />
    </>
  );
}

/** How far the index is, and which sources are damaged. */
function Sources({ home }: { home: Answer<"/api/home"> }) {
  const { index, damage } = home;
  return (
    <>
      {index.error && (
        <p class="error" role="alert">
          <Text>{index.error}</Text>
        </p>
      )}
      {index.running && (
        <p class="indexing soft" role="status">
          <progress max={Math.max(1, index.total_bytes)} value={index.indexed_bytes} aria-label="Index" />
          Reading: {bytes(index.indexed_bytes)} of {bytes(index.total_bytes)}. Lists hold what was read so far.
        </p>
      )}
      {damage.length > 0 && (
        <details class="damage">
          <summary>{plural(damage.length, "damaged shard")}</summary>
          <ul>
            {damage.map((line) => (
              <li key={line}>
                <Text>{line}</Text>
              </li>
            ))}
          </ul>
        </details>
      )}
    </>
  );
}
