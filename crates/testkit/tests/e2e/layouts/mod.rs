//! Layouts of files, as users ask for them.

mod facts;
mod recorded;
mod talk_dom;
mod talk_overstriping;
mod tools;
mod transcripts;
