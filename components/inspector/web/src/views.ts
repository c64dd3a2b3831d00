/** The views by the first part of their address. A view in the navigation has a title and the key after `g`. */
import type { ComponentType } from "preact";
import { ReviewView } from "./review/review";
import type { Route } from "./route";
import { DatasetsView } from "./views/datasets";
import { EpisodeView } from "./views/episode";
import { FindView } from "./views/find";
import { GroupView } from "./views/group";
import { LineageView } from "./views/lineage";
import { LiveView } from "./views/live";
import { TrainedView } from "./views/trained";

export type View = {
  readonly show: ComponentType<{ route: Route }>;
  readonly title?: string;
  readonly key?: string;
  /** Only where the server was started for review. */
  readonly review?: boolean;
  /** Only where no files were given: of the nights and the build of a clone. */
  readonly clone?: boolean;
  /** Shown anew when the index is whole. Not for what is being written or computed. */
  readonly indexed?: boolean;
};

export const VIEWS: Readonly<Record<string, View>> = {
  episodes: { show: FindView, title: "Find", key: "f", indexed: true },
  live: { show: LiveView, title: "Live", key: "l", clone: true },
  data: { show: DatasetsView, title: "Data", key: "d", clone: true },
  lineage: { show: LineageView, title: "Lineage", key: "i", clone: true },
  review: { show: ReviewView, title: "Review", key: "r", review: true },
  episode: { show: EpisodeView, indexed: true },
  group: { show: GroupView, indexed: true },
  rows: { show: TrainedView },
};
