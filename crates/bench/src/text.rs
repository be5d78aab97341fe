//! Numbers, sizes and dates as the benchmarks write and read them.

use std::io::Write as _;

use sheen_types::Errno;

use crate::backend::Space;

/// Bytes of a MiB.
pub(crate) const MIB: f64 = 1_048_576.0;

/// `8`, `4k`, `2m`, `1G`, `1t` as a number.
///
/// # Errors
/// For anything else, and beyond 2^63.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is not a size");
    let (digits, shift) = match text.char_indices().next_back().ok_or_else(wrong)? {
        (_, digit) if digit.is_ascii_digit() => (text, 0),
        (at, unit) => {
            let shift = "kmgtp".find(unit.to_ascii_lowercase()).ok_or_else(wrong)?;
            (&text[..at], 10 * (shift + 1))
        }
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    let size = number.checked_mul(1 << shift).filter(|size| i64::try_from(*size).is_ok());
    size.ok_or_else(wrong)
}

/// A size as IOR prints it: `1 MiB`, `1.50 GiB`, `262144 bytes`.
pub(crate) fn human(bytes: u64) -> String {
    for (shift, unit) in [(40, "TiB"), (30, "GiB"), (20, "MiB")] {
        let whole = 1u64 << shift;
        if bytes >= whole && bytes.is_multiple_of(whole) {
            return format!("{} {unit}", bytes >> shift);
        }
        if bytes >= whole {
            return format!("{:.2} {unit}", bytes as f64 / whole as f64);
        }
    }
    format!("{bytes} bytes")
}

/// Year, month from 1, day from 1 of a day since 1970-01-01.
fn civil(day: i64) -> (i64, usize, i64) {
    // Years that begin in March, so that a leap day is the last one; eras of 400 years.
    let shifted = day + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (year + era * 400 + i64::from(month <= 2), month as usize, day)
}

fn time_of_day(seconds: i64) -> String {
    let of_day = seconds.rem_euclid(86_400);
    format!("{:02}:{:02}:{:02}", of_day / 3600, of_day / 60 % 60, of_day % 60)
}

/// `03/19/2026 17:55:06`, in UTC.
pub(crate) fn timestamp(seconds: i64) -> String {
    let (year, month, day) = civil(seconds.div_euclid(86_400));
    format!("{month:02}/{day:02}/{year} {}", time_of_day(seconds))
}

/// Seed of data as users and io500 give it: 32 bits, which C's tools take for a number with a sign.
///
/// # Errors
/// For anything else.
pub(crate) fn seed(text: &str) -> Result<u32, String> {
    let signed = || text.parse().map(i32::cast_unsigned);
    text.parse().or_else(|_| signed()).map_err(|_| format!("'{text}' is not a 32-bit number"))
}

/// `2026-03-19@17:55`, in UTC: a part of a file's name.
pub(crate) fn file_date(seconds: i64) -> String {
    let (year, month, day) = civil(seconds.div_euclid(86_400));
    format!("{year}-{month:02}-{day:02}@{}", &time_of_day(seconds)[..5])
}

/// `Thu Mar 19 17:42:44 2026`, in UTC.
pub(crate) fn date(seconds: i64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let days = seconds.div_euclid(86_400);
    let (year, month, day) = civil(days);
    let name = DAYS[days.rem_euclid(7) as usize];
    format!("{name} {} {day:2} {} {year}", MONTHS[month - 1], time_of_day(seconds))
}

/// Where a benchmark works and how full it is there, in two lines.
pub(crate) fn space(path: &str, space: Space) -> String {
    let used = |free: u64, all: u64| (1.0 - free as f64 / all.max(1) as f64) * 100.0;
    let (mut size, mut unit) = (space.bytes as f64 / (1u64 << 30) as f64, "GiB");
    if size > 1024.0 {
        (size, unit) = (size / 1024.0, "TiB");
    }
    format!(
        "{:<20}: {path}\n{:<20}: {size:.1} {unit}   Used FS: {:.1}%   Inodes: {:.1} Mi   Used Inodes: \
         {:.1}%\n",
        "Path",
        "FS",
        used(space.bytes_free, space.bytes),
        space.files as f64 / MIB,
        used(space.files_free, space.files),
    )
}

/// As C's `%e` with so many digits behind the point: an exponent of at least two digits with its sign.
pub(crate) fn exponential(number: f64, digits: usize) -> String {
    let text = format!("{number:.digits$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, digits) = match exponent.strip_prefix('-') {
        Some(digits) => ('-', digits),
        None => ('+', exponent),
    };
    format!("{mantissa}e{sign}{digits:0>2}")
}

/// Adds to a file of results.
pub(crate) fn append(path: &str, text: &str) -> Result<(), String> {
    let file = std::fs::File::options().append(true).open(path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| format!("cannot write {path}: {error}"))
}

/// What failed, where and why, in a line.
pub(crate) fn failed(what: &str, path: &str, errno: Errno) -> String {
    format!("cannot {what} {path}: {}", errno.message())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        let sizes = ["8", "4k", "2M", "1g", "3t"].map(|text| size(text).unwrap());
        assert_eq!(sizes, [8, 4096, 2 << 20, 1 << 30, 3 << 40]);
        for text in ["", "k", "1x", "-1", "1.5m", "9999999999999g", "k1"] {
            assert!(size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_printed_as_by_ior() {
        let printed = [262_144, 1 << 20, 3 << 29, 120 << 30, 2 << 40].map(human);
        assert_eq!(printed, ["262144 bytes", "1 MiB", "1.50 GiB", "120 GiB", "2 TiB"]);
    }

    #[test]
    fn small_and_large_numbers_are_printed_as_by_the_c_library() {
        let printed = [0.0, 1234.56, 0.000_123].map(|number| exponential(number, 6));
        assert_eq!(printed, ["0.000000e+00", "1.234560e+03", "1.230000e-04"]);
        let printed = [0.000_012_345_6, 1.5, 2e-120].map(|number| exponential(number, 4));
        assert_eq!(printed, ["1.2346e-05", "1.5000e+00", "2.0000e-120"]);
    }

    #[test]
    fn dates_are_printed_as_by_the_c_library() {
        assert_eq!(date(1_773_942_164), "Thu Mar 19 17:42:44 2026");
        assert_eq!(timestamp(1_773_942_906), "03/19/2026 17:55:06");
        assert_eq!(date(951_782_400), "Tue Feb 29 00:00:00 2000");
        assert_eq!(date(1_680_192_000 - 86_400 * 28), "Thu Mar  2 16:00:00 2023");
    }
}
