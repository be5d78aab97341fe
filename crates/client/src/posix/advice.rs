//! Advice about a file (`LL_IOC_LADVISE`): what will be read and what not, for the OSTs; that the locks of an open file
//! do not grow; locks that are asked for ahead of use.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sheen_types::{Errno, Extent, LockMode};
use sheen_wire::ost::{LadviseFlags, LadviseHdr, LuLadvise};

use super::handles::FileDescription;
use super::{FileHandle, FileSystem, Mounted};
use crate::boxed;
use crate::data::DataFile;
use crate::types::{Advice, AdviceKind};

/// `LU_LADVISE_MAX`: behind `ahead`, which is a name for [`LuLadvise::LOCKAHEAD`] and no advice of its own.
const ADVICE_MAX: u16 = 6;
/// `LAH_COUNT_MAX`.
const COUNT_MAX: usize = 1024;
/// `MODE_READ_USER` and `MODE_WRITE_USER`.
const MODES: [LockMode; 2] = [LockMode::Pr, LockMode::Pw];

impl FileSystem {
    /// Takes the advice of `advice` one after the other, up to the first that fails, and notes in locks that were asked
    /// for ahead what has become of them.
    ///
    /// # Errors
    /// `EINVAL` for a wrong header, range, mode or flag, `EFBIG` for too many, `EOPNOTSUPP` for advice that is not
    /// known or that a server does not take, `ENOTTY` for what is no regular file.
    #[boxed]
    pub async fn advise(
        &self,
        handle: FileHandle,
        header: &LadviseHdr,
        advice: &mut [LuLadvise],
    ) -> Result<(), Errno> {
        let file = self.regular(handle)?;
        if header.magic != LadviseHdr::MAGIC || header.count < 1 {
            return Err(Errno::EINVAL);
        }
        if header.count as usize >= COUNT_MAX {
            return Err(Errno::EFBIG);
        }
        for one in advice {
            check(one)?;
            match one.advice {
                LuLadvise::LOCKNOEXPAND => {
                    let grows = flags_of(one).contains(LadviseFlags::UNSET);
                    file.locks_exactly.store(!grows, Ordering::Relaxed);
                    // As in Lustre: what stands behind it is not looked at.
                    return Ok(());
                }
                LuLadvise::LOCKAHEAD => one.value3 = self.0.lock_ahead(&file, one).await?,
                _ => self.0.advise_osts(&file, header.flags, one).await?,
            }
        }
        Ok(())
    }
}

/// `lla_peradvice_flags`.
fn flags_of(advice: &LuLadvise) -> LadviseFlags {
    LadviseFlags(advice.value2.into())
}

/// As Lustre's client checks it (`ll_ladvise_sanity`).
fn check(advice: &LuLadvise) -> Result<(), Errno> {
    let has_mode = (1..=MODES.len()).contains(&usize::from(advice.value1));
    let legal = match advice.advice {
        0 | ADVICE_MAX.. => return Err(Errno::EOPNOTSUPP),
        LuLadvise::LOCKNOEXPAND => LadviseFlags::UNSET,
        LuLadvise::LOCKAHEAD if !has_mode => return Err(Errno::EINVAL),
        _ => LadviseFlags::ASYNC,
    };
    let is_range = advice.advice == LuLadvise::LOCKNOEXPAND || advice.start < advice.end;
    let is_legal = legal.contains(flags_of(advice)) && is_range;
    is_legal.then_some(()).ok_or(Errno::EINVAL)
}

impl Mounted {
    /// Answers `lla_lockahead_result`.
    async fn lock_ahead(&self, file: &FileDescription, advice: &LuLadvise) -> Result<u32, Errno> {
        let in_background = flags_of(advice).contains(LadviseFlags::ASYNC);
        let mode = MODES[usize::from(advice.value1) - 1];
        // As in Lustre the last page of the range is the one with its end.
        let range = Extent { start: advice.start, end: advice.end };
        let ask = |data: Arc<dyn DataFile>| async move {
            data.lock_ahead(range, mode, in_background).await
        };
        Ok(self.with_data(&file.who, &file.pin, ask).await?.map_or(0, |locked| locked as u32))
    }

    async fn advise_osts(
        &self,
        file: &FileDescription,
        flags: LadviseFlags,
        advice: &LuLadvise,
    ) -> Result<(), Errno> {
        let kind = AdviceKind::from_number(advice.advice).ok_or(Errno::EOPNOTSUPP)?;
        let asked = Advice { kind, in_background: flags.contains(LadviseFlags::ASYNC) };
        let range = Extent { start: advice.start, end: advice.end - 1 };
        let ask = |data: Arc<dyn DataFile>| async move { data.advise(asked, range).await };
        self.with_data(&file.who, &file.pin, ask).await.map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_is_refused_as_lustre_refuses_it() {
        let lock =
            LuLadvise { advice: LuLadvise::LOCKAHEAD, value1: 2, end: 1, ..LuLadvise::default() };
        let noexpand = LuLadvise { advice: LuLadvise::LOCKNOEXPAND, ..LuLadvise::default() };
        let read =
            LuLadvise { advice: LuLadvise::WILLREAD, start: 5, end: 9, ..LuLadvise::default() };
        for legal in [
            lock.clone(),
            LuLadvise { value1: 1, value2: 1, ..lock },
            noexpand.clone(),
            LuLadvise { value2: 2, ..noexpand },
            read.clone(),
            LuLadvise { end: u64::MAX, ..read },
            LuLadvise { advice: LuLadvise::DONTNEED, value2: 1, ..read },
        ] {
            assert_eq!(check(&legal), Ok(()), "{legal:?}");
        }
        for (wrong, errno) in [
            (LuLadvise { advice: 0, ..read }, Errno::EOPNOTSUPP),
            (LuLadvise { advice: 6, ..read }, Errno::EOPNOTSUPP),
            (LuLadvise { value1: 0, ..lock }, Errno::EINVAL),
            (LuLadvise { value1: 3, ..lock }, Errno::EINVAL),
            (LuLadvise { value2: 2, ..lock }, Errno::EINVAL),
            (LuLadvise { start: 1, ..lock }, Errno::EINVAL),
            (LuLadvise { value2: 1, ..noexpand }, Errno::EINVAL),
            (LuLadvise { end: 5, ..read }, Errno::EINVAL),
            (LuLadvise { value2: 4, ..read }, Errno::EINVAL),
        ] {
            assert_eq!(check(&wrong), Err(errno), "{wrong:?}");
        }
    }
}
