/** Lineage: from a model to the rollouts that trained it, and from a rollout to the models that it is in. */
import { useEffect, useState } from "preact/hooks";
import { type Answer, useGet } from "../api/client";
import { go, link, type Route } from "../route";
import { Text } from "../text";
import { Badge, Loading, Problem } from "../ui";

type Lineage = Answer<"/api/lineage">;
type Node = Lineage["up"][number];

const PLACES: Record<string, (id: string) => string> = {
  episode: (id) => link(["episode", id]),
  group: (id) => link(["group", id]),
  row: (id) => link(["rows", ...id.split("/")]),
};

export function LineageView({ route }: { route: Route }) {
  const { kind = "", id = "" } = route.query;
  const { data, error } = useGet("/api/lineage", { kind, id });
  const [text, setText] = useState(id);
  useEffect(() => setText(id), [id]);
  return (
    <>
      <header class="head">
        <h1>Lineage</h1>
        <form
          class="row"
          onSubmit={(event) => {
            event.preventDefault();
            go(link(["lineage"], { id: text }));
          }}
        >
          <input
            type="search"
            aria-label="A model, dataset, row, night or episode"
            placeholder="A model, dataset, row, night or episode"
            class="mono grow"
            value={text}
            onInput={(event) => setText(event.currentTarget.value)}
          />
          <button type="submit">Trace</button>
        </form>
      </header>
      <Problem error={error} />
      {!data && !error && <Loading what="the lineage" />}
      {data && !data.node && (
        <Side title="Start from" nodes={[...data.up, ...data.down]} empty="Nothing was built here yet." />
      )}
      {data?.node && (
        <div class="lineage">
          <Side title="Made from" nodes={data.up} empty="Nothing before it is known." />
          <section>
            <h2>This</h2>
            <NodeCard node={data.node} />
          </section>
          <Side title="Went into" nodes={data.down} empty="Nothing was made of it." />
        </div>
      )}
      {data?.unknown.map((line) => (
        <p class="soft" key={line}>
          <Text>{line}</Text>
        </p>
      ))}
    </>
  );
}

function Side({ title, nodes, empty }: { title: string; nodes: readonly Node[]; empty: string }) {
  return (
    <section>
      <h2>{title}</h2>
      {nodes.length === 0 && <p class="soft">{empty}</p>}
      {nodes.map((node) => (
        <NodeCard key={`${node.kind}/${node.id}`} node={node} />
      ))}
    </section>
  );
}

function NodeCard({ node }: { node: Node }) {
  const open = PLACES[node.kind]?.(node.id);
  return (
    <article class="node">
      <div class="row">
        <Badge kind="accent">{node.kind}</Badge>
        <a class="id" href={link(["lineage"], { kind: node.kind, id: node.id })}>
          <Text>{node.label}</Text>
        </a>
        {open && (
          <a class="push" href={open}>
            open
          </a>
        )}
      </div>
      {node.note && (
        <p class="soft">
          <Text>{node.note}</Text>
        </p>
      )}
    </article>
  );
}
