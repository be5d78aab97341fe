//! What the users of the file system may see: a model of names and bytes.
//!
//! The model is called when every operation begins and ends, and checks every answer. It shares nothing with
//! the code under test but the types.

mod data;
mod locks;
mod losses;
mod marks;
mod names;
mod register;

pub(crate) use data::{CELL, Cells, Files, Log};
pub(crate) use locks::FileLocks;
pub(crate) use losses::Losses;
pub(crate) use marks::{Mark, Marks};
pub(crate) use names::{Names, Seen};
pub(crate) use register::{Register, Stale, Writer};
