//! The object storage service: objects, grants, bulk.
