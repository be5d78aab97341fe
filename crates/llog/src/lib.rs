//! Configuration logs: records, and the cluster map they describe.
