//! Times, users and groups: what `lfs find` asks the system for.

use std::path::Path;

use rustix::fs::{AtFlags, CWD, Statx, StatxFlags};
use sheen_types::Errno;

use super::predicates::Time;
use crate::output::errno;

/// Nanoseconds of a second.
pub(super) const NANOSECONDS: i128 = 1_000_000_000;
const DAY: i64 = 86_400;

/// Seconds since 1970.
#[expect(clippy::disallowed_methods, reason = "a tool that compares times")]
pub(super) fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// The attributes of a path, not of what a symbolic link there names. `lazy` takes what is known.
pub(super) fn status(path: &Path, lazy: bool) -> Result<Statx, Errno> {
    let mut flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    if lazy {
        flags |= AtFlags::STATX_DONT_SYNC;
    }
    rustix::fs::statx(CWD, path, flags, StatxFlags::BASIC_STATS | StatxFlags::BTIME).map_err(errno)
}

/// A time in nanoseconds since 1970; `None` if the file system does not know it.
pub(super) fn of(found: &Statx, time: Time) -> Option<i128> {
    let stamp = match time {
        Time::Access => found.stx_atime,
        Time::Birth if found.stx_mask & StatxFlags::BTIME.bits() == 0 => return None,
        Time::Birth => found.stx_btime,
        Time::Change => found.stx_ctime,
        Time::Modification => found.stx_mtime,
    };
    Some(i128::from(stamp.tv_sec) * NANOSECONDS + i128::from(stamp.tv_nsec))
}

/// A time in words, in nanoseconds since 1970: `@SECONDS`, `2026-11-22 13:00:00` and its beginnings,
/// `13:00` for today. Times are UTC.
pub(super) fn parse(text: &str) -> Option<i128> {
    if let Ok(seconds) = text.strip_prefix('@').unwrap_or(text).parse::<i64>() {
        return Some(i128::from(seconds) * NANOSECONDS);
    }
    let (date, clock) = match text.split_once([' ', 'T']) {
        Some((date, clock)) => (date, clock),
        None if text.contains(':') => ("", text),
        None => (text, ""),
    };
    let days = match date {
        "" if clock.is_empty() => return None,
        "" => i64::try_from(now()).ok()? / DAY,
        date => {
            let mut parts = date.splitn(3, '-').map(|part| part.parse::<i64>().ok());
            let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
            let legal = (1..=12).contains(&month) && (1..=31).contains(&day);
            days_of(year, month, day).filter(|_| legal)?
        }
    };
    let mut seconds = 0;
    for (part, unit) in clock.splitn(3, ':').filter(|part| !part.is_empty()).zip([3600, 60, 1]) {
        seconds += part.parse::<i64>().ok().filter(|part| (0..=60).contains(part))? * unit;
    }
    Some(i128::from(days * DAY + seconds) * NANOSECONDS)
}

/// Days from 1970-01-01 to a date; years begin with March here, so that leap days are last.
fn days_of(year: i64, month: i64, day: i64) -> Option<i64> {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leaps = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    year.checked_mul(365).map(|days| days + leaps + (month * 153 + 2) / 5 + day - 1 - 719_468)
}

/// `Sat Nov 21 03:52:46 2026`, in UTC.
pub(super) fn in_words(nanoseconds: i128) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let seconds = i64::try_from(nanoseconds.div_euclid(NANOSECONDS)).unwrap_or(0);
    let (days, rest) = (seconds.div_euclid(DAY), seconds.rem_euclid(DAY));
    let mut year = 1970 + days.div_euclid(366);
    while days_of(year + 1, 1, 1).is_some_and(|first| first <= days) {
        year += 1;
    }
    let mut month = 1;
    while month < 12 && days_of(year, month + 1, 1).is_some_and(|first| first <= days) {
        month += 1;
    }
    let day = days - days_of(year, month, 1).unwrap_or(0) + 1;
    let (weekday, month) = (DAYS[days.rem_euclid(7) as usize], MONTHS[(month - 1) as usize]);
    let (hours, minutes, seconds) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{weekday} {month} {day:>2} {hours:02}:{minutes:02}:{seconds:02} {year}")
}

/// The lines of `/etc/passwd` or `/etc/group`: name and number.
fn entries(table: &str) -> Vec<(String, u32)> {
    let text = std::fs::read_to_string(table).unwrap_or_default();
    let entry = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?.to_owned();
        Some((name, fields.nth(1)?.parse().ok()?))
    };
    text.lines().filter_map(entry).collect()
}

/// The number of a user or group.
pub(super) fn id_of(table: &str, name: &str) -> Option<u32> {
    entries(table).into_iter().find(|(known, _)| known == name).map(|(_, id)| id)
}

/// The name of a user or group; its number if it has none.
pub(super) fn name_of(table: &str, id: u32) -> String {
    let known = entries(table).into_iter().find(|(_, known)| *known == id);
    known.map_or_else(|| id.to_string(), |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::{NANOSECONDS, in_words, parse};

    #[test]
    fn times_are_read_and_written() {
        let seconds = |text| parse(text).map(|time| time / NANOSECONDS);
        assert_eq!(seconds("@1000000000"), Some(1_000_000_000));
        assert_eq!(seconds("2001-09-09 01:46:40"), Some(1_000_000_000));
        assert_eq!(seconds("2001-09-09 01:46"), Some(999_999_960));
        assert_eq!(seconds("1970-01-01"), Some(0));
        assert_eq!(seconds("2024-02-29"), Some(1_709_164_800));
        for bad in ["", "2001-13-01", "2001-1", "x", "01:99"] {
            assert_eq!(seconds(bad), None, "{bad}");
        }
        assert_eq!(in_words(1_000_000_000 * NANOSECONDS), "Sun Sep  9 01:46:40 2001");
        assert_eq!(in_words(1_709_164_800 * NANOSECONDS), "Thu Feb 29 00:00:00 2024");
        assert_eq!(in_words(0), "Thu Jan  1 00:00:00 1970");
        assert_eq!(in_words(1_735_689_599 * NANOSECONDS), "Tue Dec 31 23:59:59 2024");
    }
}
