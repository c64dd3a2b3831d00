"""A store of trajectories: shards, and one SQLite index over them.

- A record is identified by `episode_id`: the same record again changes nothing; different content under the same id is a
  conflict, which is set aside.
- Equal contents under different ids are kept and counted as duplicates.
- The shards are authoritative: a lost or damaged index is rebuilt from them.
- One process writes (StoreWriter), any number read (TrajectoryStore); none sees a batch that is still being written.
  `store_writer` says what is durable when.

Not guaranteed: an order between processes, and network file systems, whose locks may not work.
"""
