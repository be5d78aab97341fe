//! What the roles may ask of the world: clock, randomness, connections, tasks.
