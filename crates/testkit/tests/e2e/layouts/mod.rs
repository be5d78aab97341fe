//! Layouts of files, as users ask for them.

mod appends;
mod facts;
mod help;
mod recorded;
mod talk_dom;
mod talk_overstriping;
mod tools;
mod transcripts;
