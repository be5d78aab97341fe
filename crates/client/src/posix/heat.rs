//! The heat of files, counted while operators want it (`file_heat`), and shown and set by `lfs heat_get` and
//! `heat_set` as the attribute `sheen.heat`.

use std::fmt::Write as _;

use bytes::Bytes;
use sheen_types::Errno;

use super::handles::FileDescription;
use super::{Credentials, FileType, Mounted};
use crate::cache::{Heat, Inode};

/// `LU_HEAT_FLAG_OFF`: nothing is counted.
const OFF: u64 = 2;
/// `LU_HEAT_FLAG_CLEAR`: what was counted is forgotten.
const CLEAR: u64 = 4;

impl Mounted {
    /// Bytes were read from a file or written to it.
    pub(super) fn heat_up(&self, file: &FileDescription, is_write: bool, bytes: u64) {
        let Some(rules) = self.settings.heat.counted() else { return };
        let now = self.heat_clock();
        file.pin.state().file.heat.get_or_insert_default().add(rules, now, is_write, bytes);
    }

    /// Flags, reads, writes, bytes read and bytes written, with blanks between.
    pub(super) async fn heat(&self, who: &Credentials, inode: &Inode) -> Result<Bytes, Errno> {
        self.may_ask_of_data(who, inode).await?;
        let (rules, now) = (self.settings.heat.rules(), self.heat_clock());
        let mut state = inode.state();
        let heat = state.file.heat.as_deref_mut();
        let flags = heat.as_ref().map_or(0, |heat| if heat.is_off { OFF } else { 0 });
        let values = heat.map_or([0; 4], |heat| heat.now(rules, now));
        let mut text = flags.to_string();
        for value in values {
            let _ = write!(text, " {value}");
        }
        Ok(text.into())
    }

    /// Takes flags, as a number.
    pub(super) async fn set_heat(
        &self,
        who: &Credentials,
        inode: &Inode,
        flags: &[u8],
    ) -> Result<(), Errno> {
        self.may_ask_of_data(who, inode).await?;
        let flags = std::str::from_utf8(flags).ok().and_then(|text| text.parse::<u64>().ok());
        let flags = flags.ok_or(Errno::EINVAL)?;
        let mut state = inode.state();
        let heat: &mut Heat = state.file.heat.get_or_insert_default();
        if flags & CLEAR != 0 {
            heat.clear();
        }
        heat.is_off = flags & OFF != 0;
        Ok(())
    }

    /// As for an open to read.
    pub(super) async fn may_ask_of_data(
        &self,
        who: &Credentials,
        inode: &Inode,
    ) -> Result<(), Errno> {
        self.refresh(who, inode).await?;
        if inode.file_type() != Some(FileType::Regular) {
            return Err(Errno::ENOTTY);
        }
        self.may_read(who, inode).await
    }

    fn heat_clock(&self) -> u64 {
        u64::try_from(self.meta.world.clock.wall().seconds).unwrap_or(0)
    }
}
