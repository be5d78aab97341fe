//! Names in a directory of the file system below, made durable.

use std::fs::File;
use std::path::Path;

use crate::DiskError;

/// Makes names in `dir` durable.
pub(crate) fn sync_directory(dir: &Path) -> Result<(), DiskError> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(DiskError::io("sync", dir))
}
