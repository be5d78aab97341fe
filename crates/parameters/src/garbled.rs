//! Data whose checksum was wrong, in files for inspection (`checksum_dump`), where Lustre has them:
//! `/tmp/lustre-log-checksum_dump-osc-FID:[FIRST-LAST]-OURS-THEIRS`.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use sheen_client::data::{DataTargets, Garbled};

/// `LIBCFS_DEBUG_FILE_PATH_DEFAULT`.
const PLACE: &str = "/tmp/lustre-log";

/// From now on such data is kept; call inside the runtime.
pub(super) fn keep(osts: &Arc<DataTargets>) {
    let runtime = tokio::runtime::Handle::current();
    osts.dump_garbled(Box::new(move |garbled| {
        runtime.spawn_blocking(move || {
            let path = name(PLACE, &garbled);
            match write(Path::new(&path), &garbled) {
                Ok(()) => tracing::warn!(path, "dumped garbled data"),
                // Only the first such data of a place is kept.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => tracing::warn!(path, %error, "cannot dump garbled data"),
            }
        });
    }));
}

fn name(place: &str, garbled: &Garbled) -> String {
    let Garbled { file, extent, sums, .. } = garbled;
    let (start, end, (ours, theirs)) = (extent.start, extent.end, sums);
    format!("{place}-checksum_dump-osc-{file}:[{start}-{end}]-{ours:x}-{theirs:x}")
}

/// Never into a file that is there, or through a link: the place is open to all.
fn write(path: &Path, garbled: &Garbled) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    garbled.data.iter().try_for_each(|piece| file.write_all(piece))?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use sheen_types::{Extent, Fid};

    use super::*;

    #[test]
    fn the_first_garbled_data_of_a_place_is_kept() {
        let folder = format!("sheen-garbled-{}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        std::fs::create_dir(&folder).expect("a directory");
        let garbled = |data: &'static [u8]| Garbled {
            file: Fid::new(0x2_0000_0401, 7),
            extent: Extent { start: 0, end: 4 },
            sums: (0xabc, 0xdef),
            data: vec![Bytes::from_static(data), Bytes::from_static(b"lo")],
        };
        let path = name(&folder.join("log").to_string_lossy(), &garbled(b"hel"));
        assert!(
            path.ends_with("/log-checksum_dump-osc-[0x200000401:0x7:0x0]:[0-4]-abc-def"),
            "{path}"
        );
        write(Path::new(&path), &garbled(b"hel")).expect("written");
        let again = write(Path::new(&path), &garbled(b"xxx"));
        assert_eq!(again.map_err(|error| error.kind()), Err(ErrorKind::AlreadyExists));
        assert_eq!(std::fs::read(&path).expect("there"), b"hello");
        std::fs::remove_dir_all(folder).expect("removed");
    }
}
