//! An OST on a store in memory, asked by clients without a network.

mod advice;
mod created;
mod data;
mod echo;
mod grants;
mod harness;
mod known_mdts;
mod late;
mod names;
mod replays;
mod sizes;
