//! What operators may set about layouts (`lod.*`, `mdd.*`): the default of files whose creator asks for
//! no layout, how OSTs are chosen, and how much of a file may lie on the MDT.

use sheen_layout::choose::Weighting;
use sheen_layout::plan::{Appending, Defaults, STRIPES_ALL, Striping};
use sheen_types::Errno;
use sheen_types::limits::{STRIPE_COUNT_MAX, STRIPE_SIZE_MIN};
use sheen_wire::lov::PoolName;

/// Bytes of a stripe where no number is given (`LOV_DESC_STRIPE_SIZE_DEFAULT`).
pub(crate) const STRIPE_SIZE_DEFAULT: u32 = 4 << 20;
/// Bytes of a file that may lie on the MDT, as Lustre begins with (`LOD_DOM_DEF_SIZE_KB`)...
const ON_MDT_DEFAULT: u32 = 1 << 20;
/// ...and the most that can be set.
const ON_MDT_MAX: u64 = 1 << 30;
/// How old what an OST said of its space may be, in seconds (Lustre: 5).
const SPACE_AGE_MAX: u32 = 3;

/// The settings, with the checks of Lustre's parameters. Percentages and bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayoutSettings {
    pub(crate) defaults: Defaults,
    pub(crate) weighting: Weighting,
    pub(crate) on_mdt: u32,
    pub(crate) appending: Appending,
    /// Stripes of a file that is to have one on each OST; 0 for just that.
    all_max: u16,
    /// Seconds for which what an OST said of its space is believed.
    space_age_max: u32,
}

impl LayoutSettings {
    pub(crate) fn new(stripe_size: u32, stripe_count: u16) -> Self {
        let defaults = Defaults { stripe_size, stripe_count: stripe_count.max(1), first: None };
        Self {
            defaults,
            weighting: Weighting::default(),
            on_mdt: ON_MDT_DEFAULT,
            appending: Appending { stripe_count: 1, pool: PoolName::default() },
            all_max: 0,
            space_age_max: SPACE_AGE_MAX,
        }
    }

    /// `qos_maxage`: seconds after which an OST is asked for its space and state again.
    #[must_use]
    pub fn qos_maxage(&self) -> u32 {
        self.space_age_max
    }

    /// Sets `qos_maxage`.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for 0.
    pub fn set_qos_maxage(&mut self, seconds: u32) -> Result<(), Errno> {
        match seconds {
            0 => Err(Errno::EINVAL),
            seconds => {
                self.space_age_max = seconds;
                Ok(())
            }
        }
    }

    /// `dom_stripesize`: bytes of a file that may lie on the MDT; 0 for none.
    #[must_use]
    pub fn dom_stripesize(&self) -> u32 {
        self.on_mdt
    }

    /// Sets `dom_stripesize`: rounded down to 64 KiB, but not to 0.
    ///
    /// # Errors
    /// [`Errno::ERANGE`] for more than 1 GiB: nothing changes.
    pub fn set_dom_stripesize(&mut self, bytes: u64) -> Result<(), Errno> {
        // Lustre counts in KiB: what is less than one is nothing.
        let bytes = bytes & !1023;
        if bytes > ON_MDT_MAX {
            return Err(Errno::ERANGE);
        }
        self.on_mdt = match bytes {
            0 => 0,
            bytes => (bytes - bytes % STRIPE_SIZE_MIN).max(STRIPE_SIZE_MIN) as u32,
        };
        Ok(())
    }

    /// `stripesize`.
    #[must_use]
    pub fn stripesize(&self) -> u32 {
        self.defaults.stripe_size
    }

    /// Sets `stripesize`: rounded down to 64 KiB; less than that is the default of 4 MiB.
    ///
    /// # Errors
    /// [`Errno::ERANGE`] for 4 GiB and more.
    pub fn set_stripesize(&mut self, bytes: u64) -> Result<(), Errno> {
        let size = match bytes {
            0..STRIPE_SIZE_MIN => u64::from(STRIPE_SIZE_DEFAULT),
            bytes => bytes - bytes % STRIPE_SIZE_MIN,
        };
        self.defaults.stripe_size = u32::try_from(size).map_err(|_| Errno::ERANGE)?;
        Ok(())
    }

    /// `stripecount`: -1 for all OSTs.
    #[must_use]
    pub fn stripecount(&self) -> i32 {
        match self.defaults.stripe_count {
            STRIPES_ALL => -1,
            count => count.into(),
        }
    }

    /// Sets `stripecount`; 0 is 1.
    ///
    /// # Errors
    /// [`Errno::ERANGE`] for less than -1 and more than 2000.
    pub fn set_stripecount(&mut self, count: i64) -> Result<(), Errno> {
        self.defaults.stripe_count = match count {
            -1 => STRIPES_ALL,
            count => within_stripes(count)?.max(1),
        };
        Ok(())
    }

    /// `max_stripecount`: the most stripes of a file that is to have one on each OST; 0 for no limit.
    #[must_use]
    pub fn max_stripecount(&self) -> u16 {
        self.all_max
    }

    /// Sets `max_stripecount`.
    ///
    /// # Errors
    /// [`Errno::ERANGE`] for less than 0 and more than 2000.
    pub fn set_max_stripecount(&mut self, count: i64) -> Result<(), Errno> {
        self.all_max = within_stripes(count)?;
        Ok(())
    }

    /// What is to be allocated, within `max_stripecount`.
    pub(crate) fn limited(&self, mut striping: Striping) -> Striping {
        let is_all = striping.stripe_count == STRIPES_ALL && !striping.overstriped;
        if is_all && self.all_max > 0 {
            striping.stripe_count = self.all_max;
        }
        striping
    }

    /// `append_stripe_count`: stripes of files that are made with `O_APPEND`; -1 for all OSTs, 0 for as
    /// many as other files have.
    #[must_use]
    pub fn append_stripe_count(&self) -> i32 {
        match self.appending.stripe_count {
            STRIPES_ALL => -1,
            count => count.into(),
        }
    }

    /// Sets `append_stripe_count`.
    ///
    /// # Errors
    /// [`Errno::ERANGE`] for less than -1 and more than 2000.
    pub fn set_append_stripe_count(&mut self, count: i64) -> Result<(), Errno> {
        self.appending.stripe_count = match count {
            -1 => STRIPES_ALL,
            count => within_stripes(count)?,
        };
        Ok(())
    }

    /// `append_pool`: the pool of files that are made with `O_APPEND`; empty for that of other
    /// files.
    #[must_use]
    pub fn append_pool(&self) -> String {
        String::from_utf8_lossy(self.appending.pool.as_bytes()).into_owned()
    }

    /// Sets `append_pool`: "none" for none. A pool that is not there (yet) limits nothing.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for what is too long for a pool's name.
    pub fn set_append_pool(&mut self, name: &str) -> Result<(), Errno> {
        // Words that stand for no pool elsewhere.
        let name = if ["none", "inherit", "ignore"].contains(&name) { "" } else { name };
        self.appending.pool = PoolName::new(name).ok_or(Errno::EINVAL)?;
        Ok(())
    }

    /// `stripeoffset`: the first OST of files; -1 for any.
    #[must_use]
    pub fn stripeoffset(&self) -> i32 {
        self.defaults.first.map_or(-1, i32::from)
    }

    /// Sets `stripeoffset`.
    ///
    /// # Errors
    /// [`Errno::ERANGE`] for less than -1 and more than 2000.
    pub fn set_stripeoffset(&mut self, ost: i64) -> Result<(), Errno> {
        self.defaults.first = match ost {
            -1 => None,
            ost => Some(within_stripes(ost)?),
        };
        Ok(())
    }

    /// `qos_threshold_rr`: how many per cent less than the emptiest OST the fullest may have free
    /// before files go by free space instead of in turn.
    #[must_use]
    pub fn qos_threshold_rr(&self) -> u32 {
        percent(self.weighting.threshold)
    }

    /// Sets `qos_threshold_rr`; 100 for turns always.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for more than 100.
    pub fn set_qos_threshold_rr(&mut self, percent: u32) -> Result<(), Errno> {
        self.weighting.threshold = fraction(percent)?;
        Ok(())
    }

    /// `qos_prio_free`: how many per cent free space counts, against not using one OST twice.
    #[must_use]
    pub fn qos_prio_free(&self) -> u32 {
        percent(self.weighting.free_space)
    }

    /// Sets `qos_prio_free`.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for more than 100.
    pub fn set_qos_prio_free(&mut self, percent: u32) -> Result<(), Errno> {
        self.weighting.free_space = fraction(percent)?;
        Ok(())
    }
}

fn within_stripes(number: i64) -> Result<u16, Errno> {
    let number = u16::try_from(number).map_err(|_| Errno::ERANGE)?;
    match usize::from(number) <= STRIPE_COUNT_MAX {
        true => Ok(number),
        false => Err(Errno::ERANGE),
    }
}

fn percent(fraction: u32) -> u32 {
    (fraction * 100).div_ceil(256)
}

fn fraction(percent: u32) -> Result<u32, Errno> {
    match percent {
        0..=100 => Ok(percent * 256 / 100),
        _ => Err(Errno::EINVAL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_on_the_mdt_is_set_as_lustre_sets_it() {
        let mut settings = LayoutSettings::new(STRIPE_SIZE_DEFAULT, 1);
        let mut set =
            |bytes| settings.set_dom_stripesize(bytes).map(|()| settings.dom_stripesize());
        assert_eq!(set(65536), Ok(65536));
        assert_eq!(set(32768), Ok(65536));
        assert_eq!(set(200_000), Ok(196_608));
        assert_eq!(set(1 << 30), Ok(1 << 30));
        assert_eq!(set(1025 << 20), Err(Errno::ERANGE));
        assert_eq!(settings.dom_stripesize(), 1 << 30);
        settings.set_dom_stripesize(0).unwrap();
        assert_eq!(settings.dom_stripesize(), 0);
    }

    #[test]
    fn defaults_are_set_as_lustre_sets_them() {
        let mut settings = LayoutSettings::new(STRIPE_SIZE_DEFAULT, 1);
        settings.set_stripesize(100_000).unwrap();
        assert_eq!(settings.stripesize(), 65536);
        settings.set_stripesize(5).unwrap();
        assert_eq!(settings.stripesize(), 4 << 20);
        assert_eq!(settings.set_stripesize(1 << 32), Err(Errno::ERANGE));
        for (count, then) in [(-1, -1), (0, 1), (2000, 2000)] {
            settings.set_stripecount(count).unwrap();
            assert_eq!(settings.stripecount(), then);
        }
        assert_eq!(settings.set_stripecount(2001), Err(Errno::ERANGE));
        assert_eq!(settings.set_stripeoffset(-2), Err(Errno::ERANGE));
        settings.set_stripeoffset(3).unwrap();
        assert_eq!(settings.stripeoffset(), 3);
    }

    #[test]
    fn percentages_come_back_as_they_were_set() {
        let mut settings = LayoutSettings::new(STRIPE_SIZE_DEFAULT, 1);
        assert_eq!((settings.qos_threshold_rr(), settings.qos_prio_free()), (17, 91));
        for percent in 0..=100 {
            settings.set_qos_threshold_rr(percent).unwrap();
            settings.set_qos_prio_free(percent).unwrap();
            assert_eq!((settings.qos_threshold_rr(), settings.qos_prio_free()), (percent, percent));
        }
        assert_eq!(settings.set_qos_prio_free(101), Err(Errno::EINVAL));
    }

    #[test]
    fn limits_and_appended_files_are_set_as_lustre_sets_them() {
        let mut settings = LayoutSettings::new(STRIPE_SIZE_DEFAULT, 1);
        assert_eq!((settings.append_stripe_count(), settings.append_pool()), (1, String::new()));
        for count in [-1, 0, 1, 2000] {
            settings.set_append_stripe_count(count).unwrap();
            assert_eq!(i64::from(settings.append_stripe_count()), count);
        }
        assert_eq!(settings.set_append_stripe_count(-2), Err(Errno::ERANGE));
        assert_eq!(settings.set_append_stripe_count(2001), Err(Errno::ERANGE));
        settings.set_append_pool("logs").unwrap();
        assert_eq!(settings.append_pool(), "logs");
        assert_eq!(settings.set_append_pool("averyverylongone"), Err(Errno::EINVAL));
        settings.set_append_pool("none").unwrap();
        assert_eq!(settings.append_pool(), "");

        let all = Striping { stripe_count: STRIPES_ALL, ..Striping::default() };
        assert_eq!((settings.max_stripecount(), settings.limited(all.clone())), (0, all.clone()));
        settings.set_max_stripecount(3).unwrap();
        assert_eq!(settings.limited(all.clone()).stripe_count, 3);
        let many = Striping { stripe_count: 7, ..Striping::default() };
        assert_eq!(settings.limited(many.clone()), many, "a file with a number of its own gets it");
        let over = Striping { overstriped: true, ..all };
        assert_eq!(settings.limited(over.clone()), over);
        assert_eq!(settings.set_max_stripecount(-1), Err(Errno::ERANGE));
    }
}
