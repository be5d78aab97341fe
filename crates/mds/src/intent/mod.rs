//! LDLM_ENQUEUE with an intent: an operation that hands a lock to the client, one file each.

mod getattr;
mod getxattr;
mod layout;
mod lease;
mod open;
mod open_data;
mod open_new;
mod reopen;
