//! Which capabilities a server believes of users other than root.

use std::fmt;
use std::str::FromStr;

use super::Capability;
use crate::Errno;

/// The names that `enable_cap_mask` knows, as Lustre spells them.
const NAMES: [(&str, Capability); 9] = [
    ("cap_chown", Capability::Chown),
    ("cap_dac_override", Capability::DacOverride),
    ("cap_dac_read_search", Capability::DacReadSearch),
    ("cap_fowner", Capability::FileOwner),
    ("cap_fsetid", Capability::SetId),
    ("cap_linux_immutable", Capability::LinuxImmutable),
    ("cap_sys_admin", Capability::SysAdmin),
    ("cap_sys_resource", Capability::SysResource),
    ("cap_mknod", Capability::Mknod),
];

/// Capabilities that a client's users keep: what the parameter `enable_cap_mask` says. None at
/// first. One that is not of the file system (`cap_sys_admin`) is never among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CapabilityMask(u32);

impl CapabilityMask {
    const ALLOWED: u32 = {
        let (mut all, mut at) = (0, 0);
        while at < NAMES.len() {
            if !matches!(NAMES[at].1, Capability::SysAdmin) {
                all |= 1 << NAMES[at].1 as u32;
            }
            at += 1;
        }
        all
    };

    /// The capabilities of `bits` that are kept.
    #[must_use]
    pub fn of_bits(bits: u32) -> Self {
        Self(bits & Self::ALLOWED)
    }

    /// As requests carry capabilities.
    #[must_use]
    pub fn bits(self) -> u32 {
        self.0
    }

    /// Changes it as a text says: a number, or names between commas or blanks, `all` or `none`, each
    /// of which replaces what was unless `+` or `-` stands before it.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for a name that is none.
    pub fn changed(self, text: &str) -> Result<Self, Errno> {
        let text = text.trim();
        if let Some(number) = number(text) {
            return Ok(Self::of_bits(number as u32));
        }
        let spaced = text.replace('+', " +").replace('-', " -");
        let mut words = spaced.split(|c: char| c.is_whitespace() || c == ',');
        let (mut bits, mut is_first, mut sign) = (self.0, true, None);
        while let Some(word) = words.find(|word| !word.is_empty()) {
            let name = word.strip_prefix(['+', '-']).unwrap_or(word);
            sign = if name == word { sign } else { word.chars().next() };
            if name.is_empty() {
                continue;
            }
            if is_first && sign.is_none() {
                bits = 0;
            }
            is_first = false;
            bits = match sign.take() {
                Some('-') => bits & !named(name)?,
                _ if name.eq_ignore_ascii_case("none") => 0,
                _ => bits | named(name)?,
            };
        }
        if sign.is_some() { Err(Errno::EINVAL) } else { Ok(Self::of_bits(bits)) }
    }
}

/// As C reads a number of any base.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None if text.len() > 1 && text.starts_with('0') => u64::from_str_radix(text, 8).ok(),
        None => text.parse().ok(),
    }
}

fn named(name: &str) -> Result<u32, Errno> {
    if name.eq_ignore_ascii_case("all") {
        return Ok(u32::MAX);
    }
    if name.eq_ignore_ascii_case("none") {
        return Ok(0);
    }
    let found = NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    found.map(|(_, one)| 1 << *one as u32).ok_or(Errno::EINVAL)
}

impl fmt::Display for CapabilityMask {
    /// Names between commas in the order of their numbers, or `0`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held = NAMES.iter().filter(|(_, one)| self.0 & 1 << *one as u32 != 0);
        let names: Vec<&str> = held.map(|(name, _)| *name).collect();
        out.write_str(if names.is_empty() { "0" } else { "" })?;
        out.write_str(&names.join(","))
    }
}

impl FromStr for CapabilityMask {
    type Err = Errno;

    fn from_str(text: &str) -> Result<Self, Errno> {
        Self::default().changed(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_is_read_and_shown_as_lustre_does() {
        let none = CapabilityMask::default();
        assert_eq!((none.to_string(), none.bits()), ("0".to_owned(), 0));
        let mask = none.changed("+cap_chown+cap_fowner\n").unwrap();
        assert_eq!((mask.to_string(), mask.bits()), ("cap_chown,cap_fowner".to_owned(), 0b1001));
        let relative = [
            ("-cap_chown", "cap_fowner"),
            ("+cap_mknod", "cap_chown,cap_fowner,cap_mknod"),
            ("CAP_DAC_OVERRIDE, cap_fsetid", "cap_dac_override,cap_fsetid"),
            ("+ cap_mknod -cap_chown", "cap_fowner,cap_mknod"),
            ("0xf", "cap_chown,cap_dac_override,cap_dac_read_search,cap_fowner"),
            ("017", "cap_chown,cap_dac_override,cap_dac_read_search,cap_fowner"),
            ("0", "0"),
            ("none", "0"),
            ("cap_sys_admin", "0"),
        ];
        for (text, shown) in relative {
            assert_eq!(mask.changed(text).unwrap().to_string(), shown, "{text}");
        }
        let all = none.changed("all").unwrap();
        assert_eq!(all.bits(), 1 << 27 | 1 << 24 | 1 << 9 | 0x1f, "no more than the file system's");
        for wrong in ["cap_sleep", "+", "cap_chown,x", "-", "0xg"] {
            assert_eq!(mask.changed(wrong), Err(Errno::EINVAL), "{wrong}");
        }
    }
}
