//! Layouts of files, as users ask for them.

mod recorded;
mod tools;
mod transcripts;
