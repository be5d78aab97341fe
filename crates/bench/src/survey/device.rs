//! What a survey asks of the servers of this machine, and what they answer.
//!
//! These are the words that go over a server's control socket; both ends have them from here.

use serde::{Deserialize, Serialize};

/// Which kind of target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// Metadata.
    Mdt,
    /// Objects.
    Ost,
}

/// A test of metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MetadataTest {
    /// Makes files.
    Create,
    /// Finds them by name.
    Lookup,
    /// Finds them by name and reads attributes and layout.
    Getattr,
    /// Finds them by name and gives them an extended attribute.
    Setxattr,
    /// Removes them.
    Destroy,
}

/// What a target's threads do in one test. A thread is an operation in flight.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Work {
    /// Operations on files in the prepared directories, thread i in directory i modulo their number.
    Metadata {
        /// Which operation.
        test: MetadataTest,
        /// How many at once.
        threads: u32,
        /// Files of each thread.
        count: u64,
        /// The number of the first thread's first file.
        start: u64,
        /// OSTs that a created file lies on: 0 for none, -1 for as many as by default.
        stripes: i32,
    },
    /// Transfers to or from the prepared objects; the threads of one object share its places.
    Data {
        /// Or read.
        write: bool,
        /// How many at once; a multiple of the number of objects.
        threads: u32,
        /// Bytes of a transfer, whole pages.
        record: u32,
        /// Transfers of each thread.
        count: u64,
        /// Stamps each page when writing, and looks for the stamps when reading.
        verify: bool,
        /// A write test ends when all bytes are durable.
        sync: bool,
    },
}

impl Work {
    /// How many operations at once.
    #[must_use]
    pub fn threads(&self) -> u32 {
        match self {
            Self::Metadata { threads, .. } | Self::Data { threads, .. } => *threads,
        }
    }
}

/// A question to a server process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    /// Begins a survey of a target; the answer is [`SurveyReply::Attached`]. A caller that asks nothing for
    /// [`LEASE_SECONDS`] is taken for dead: what it made is removed.
    Attach {
        /// As `lustre-MDT0000`.
        target: String,
    },
    /// Makes so many directories on an MDT, so many objects on an OST.
    Prepare {
        /// The survey.
        session: u64,
        /// How many.
        count: u32,
    },
    /// Begins a test.
    Start {
        /// The survey.
        session: u64,
        /// The test.
        work: Work,
    },
    /// Answers [`SurveyReply::Progress`] when the test ends, or a little later.
    Watch {
        /// The survey.
        session: u64,
    },
    /// Ends the test and removes all that was made.
    Clean {
        /// The survey.
        session: u64,
    },
    /// As `Clean`, and ends the survey.
    Detach {
        /// The survey.
        session: u64,
    },
}

/// Seconds of silence after which a survey's tool is taken for dead.
pub const LEASE_SECONDS: u64 = 4;

/// What a server process answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum SurveyReply {
    /// Done.
    Done,
    /// The survey's number.
    Attached {
        /// To be named in all further questions.
        session: u64,
    },
    /// How far the test is.
    Progress(Progress),
}

/// How many threads did something in an interval of a second or more, and how much.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Threads.
    pub active: u32,
    /// Operations a second of all of them.
    pub rate: f64,
}

/// How far a test is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Operations of all threads so far.
    pub operations: u64,
    /// From the start of the first thread to the end of the last one, or to now.
    pub seconds: f64,
    /// The intervals so far; the first second is not among them.
    pub intervals: Vec<Interval>,
    /// Whether it has ended.
    pub ended: bool,
    /// Why it ended early.
    pub failed: Option<String>,
}

/// A target under survey.
pub trait Device {
    /// Makes directories or objects.
    ///
    /// # Errors
    /// A line.
    fn prepare(&mut self, count: u32) -> Result<(), String>;

    /// Begins a test.
    ///
    /// # Errors
    /// A line.
    fn start(&mut self, work: &Work) -> Result<(), String>;

    /// How far the test is; waits a little for its end.
    ///
    /// # Errors
    /// A line, if the server has gone or has given the survey up.
    fn watch(&mut self) -> Result<Progress, String>;

    /// Removes what was made.
    ///
    /// # Errors
    /// A line.
    fn clean(&mut self) -> Result<(), String>;

    /// Removes what was made and ends.
    ///
    /// # Errors
    /// A line.
    fn detach(&mut self) -> Result<(), String>;
}

/// The targets of this machine.
pub trait Devices {
    /// The names of all of a kind that run here.
    ///
    /// # Errors
    /// A line.
    fn targets(&self, kind: Kind) -> Result<Vec<String>, String>;

    /// Begins a survey of one.
    ///
    /// # Errors
    /// A line: no such target here, or another survey of it runs.
    fn attach(&self, target: &str) -> Result<Box<dyn Device>, String>;
}
