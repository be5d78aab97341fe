//! What other nodes may make the MGS keep, with reasons. The MGS's own node is not limited.

/// File systems in all, when another node registers the first target of one. Each costs an MGS some logs and
/// a table; Lustre has no limit, and sites keep a handful at one MGS.
pub(crate) const FILE_SYSTEMS_MAX: usize = 64;

/// Targets that one node, by its NID, serves in all file systems, when it registers one more. A machine with a
/// target for each of its disks has a hundred or so; each target adds records to the logs of the client and of
/// every MDT, and a registration copies them.
pub(crate) const TARGETS_PER_NODE_MAX: usize = 256;
