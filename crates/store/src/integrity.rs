//! What a store finds out about the data of its objects: lost, short, or not what was written.

use std::fmt;

use sheen_types::Fid;

/// What is wrong with the data of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Damage {
    /// Its file is gone.
    Lost,
    /// Something else than a file is in its file's place: a FIFO, a device, a socket, a directory, a link.
    NoFile,
    /// Its file ends before what was written.
    Short {
        /// Bytes that must be there.
        expected: u64,
        /// Bytes that are there.
        found: u64,
    },
    /// Its file goes on behind what was written.
    Long {
        /// Bytes that were written.
        expected: u64,
        /// Bytes that are there.
        found: u64,
    },
    /// Bytes are not those that were written.
    Checksum {
        /// Where the block begins.
        offset: u64,
    },
}

impl fmt::Display for Damage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost => out.write_str("its data is lost: the file is not there"),
            Self::NoFile => {
                out.write_str("its data is lost: what is in the place of its file is no file")
            }
            Self::Short { expected, found } => {
                write!(out, "its data is cut: {found} of {expected} bytes are there")
            }
            Self::Long { expected, found } => {
                write!(out, "its data has grown: {found} bytes are there, {expected} were written")
            }
            Self::Checksum { offset } => {
                write!(out, "its data is damaged: the checksum of the block at {offset} differs")
            }
        }
    }
}

/// One damage, and where it lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The object that has the data now.
    pub object: Fid,
    /// The file of the data, as the host names it.
    pub path: String,
    /// What is wrong.
    pub damage: Damage,
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}: {}", self.object, self.path, self.damage)
    }
}

/// What [`crate::Store::verify`] found in one step through an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// In the order of offsets.
    pub findings: Vec<Finding>,
    /// Bytes that were read.
    pub bytes: u64,
    /// Where the next step begins; `None` at the end.
    pub next: Option<u64>,
}

/// Counts of a store since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Integrity {
    /// Blocks whose checksum was compared.
    pub blocks_checked: u64,
    /// Blocks whose checksum differed.
    pub blocks_failed: u64,
    /// How often data was found lost or cut.
    pub files_failed: u64,
    /// Blocks that were read and have no checksum, or one that a crash has made uncertain.
    pub blocks_unknown: u64,
}
