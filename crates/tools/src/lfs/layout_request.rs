//! What the options of `lfs setstripe` and `lfs migrate` request, as the MDT understands it.
//!
//! Options build up one component; `-E` ends it where the next begins. A component takes over
//! stripe size, stripe count and pool of the one before it. Nothing here asks a server: what
//! Lustre's tool refuses by itself is refused here, with its exit codes.

use sheen_types::Errno;
use sheen_types::limits::STRIPE_COUNT_MAX;
use sheen_wire::lov::{
    LovComp, LovCompEntry, LovComponent, LovEa, LovMagic, LovMd, LovMdHeader, LovOstData,
    LovPattern, PoolName,
};

use super::options::{Opt, Takes, parse_number, refused};
use super::size::parse_size;
use crate::output::Fault;

/// Options that describe a layout.
pub(super) const OPTIONS: &[Opt] = &[
    Opt {
        short: Some('E'),
        names: &["component-end", "comp-end"],
        takes: Takes::Value("END"),
        help: "End of a component, with K, M, G or T; -1 or eof for the end of the file. \
            The options that follow apply to this component",
    },
    Opt {
        short: Some('L'),
        names: &["layout"],
        takes: Takes::Value("mdt|raid0"),
        help: "Data on the MDT (first component only), or on OSTs",
    },
    Opt {
        short: Some('c'),
        names: &["stripe-count", "stripe_count"],
        takes: Takes::Value("COUNT"),
        help: "Number of stripes; 0 for the default, -1 for all OSTs",
    },
    Opt {
        short: Some('C'),
        names: &["overstripe-count"],
        takes: Takes::Value("COUNT"),
        help: "Number of stripes, several on an OST if necessary; -N for N on each OST (up to 32)",
    },
    Opt {
        short: Some('S'),
        names: &["stripe-size", "stripe_size"],
        takes: Takes::Value("SIZE"),
        help: "Stripe size in bytes, a multiple of 64K; 0 for the default",
    },
    Opt {
        short: Some('i'),
        names: &["stripe-index", "stripe_index"],
        takes: Takes::Value("INDEX"),
        help: "Index of the first OST; -1 for any",
    },
    Opt {
        short: Some('o'),
        names: &["ost", "ost-list", "ost_list"],
        takes: Takes::Value("INDEX,..."),
        help: "Indexes of the OSTs, as 0,2-4; an OST given twice holds two stripes",
    },
    Opt {
        short: Some('p'),
        names: &["pool"],
        takes: Takes::Value("POOL"),
        help: "Name of the pool; \"\", inherit or none for that of the directory, ignore for no pool",
    },
    refused(Some('z'), &["extension-size", "ext-size"], Takes::Value("SIZE")),
    refused(Some('N'), &["mirror-count"], Takes::Maybe("COUNT")),
    refused(None, &["ec", "ec-stripe-count"], Takes::Value("DATA+PARITY")),
    refused(None, &["ec-expert"], Takes::Value("DATA+PARITY")),
];

/// Stripes and components begin and end on multiples of this (`LOV_MIN_STRIPE_SIZE`).
const UNIT: u64 = 64 << 10;
/// A smaller size without a unit means KiB.
const KIB_BELOW: u64 = 4096;
/// The end of the file.
pub(super) const END_OF_FILE: u64 = u64::MAX;
/// The longest Data-on-MDT component that may be requested.
const DOM_SIZE_MAX: u64 = 1 << 30;
/// "Any OST", as the first OST of a request.
pub(super) const ANY_OST: u16 = u16::MAX;
/// The magic of a plain request, without and with a pool.
pub(super) const PLAIN: LovMagic = LovMagic::V1;
pub(super) const PLAIN_WITH_POOL: LovMagic = LovMagic::V3;
/// Most stripes of `-C` on each OST.
const OVERSTRIPES_MAX: i64 = 32;

/// Where bytes lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    /// On OSTs, at most one stripe on each.
    #[default]
    Raid0,
    /// On OSTs, several stripes on each if need be.
    Overstriped,
    /// On the MDT.
    Mdt,
}

/// One component, or a plain layout, as far as it is requested.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ComponentRequest {
    /// Bytes of a stripe.
    pub(super) size: Option<u64>,
    /// Stripes: -1 for all OSTs, -2 to -32 for so many on each.
    pub(super) count: Option<i16>,
    /// The first OST.
    pub(super) first: Option<u16>,
    /// Where bytes lie.
    pub(super) kind: Kind,
    /// The pool.
    pub(super) pool: Option<PoolName>,
    /// The OSTs, in order.
    pub(super) osts: Vec<u16>,
    /// The first byte behind the component; none for a plain layout.
    pub(super) end: Option<u64>,
}

impl ComponentRequest {
    /// What the component behind this one takes over.
    fn heir(&self) -> Self {
        let size = self.size.filter(|_| self.kind != Kind::Mdt);
        Self { size, count: self.count, pool: self.pool, ..Self::default() }
    }

    fn is_given(&self) -> bool {
        *self != Self { pool: self.pool, osts: self.osts.clone(), ..Self::default() }
    }

    /// The plain layout that this describes.
    fn layout(&self) -> LovMd {
        let pattern = match self.kind {
            Kind::Raid0 => LovPattern::RAID0,
            Kind::Overstriped => LovPattern::RAID0 | LovPattern::OVERSTRIPING,
            Kind::Mdt => LovPattern::MDT,
        };
        let magic = match (self.osts.is_empty(), self.pool) {
            (false, _) => LovMagic::SPECIFIC,
            (true, Some(_)) => LovMagic::V3,
            (true, None) => LovMagic::V1,
        };
        let stripe_count = match self.osts.len() {
            0 => self.count.unwrap_or(0) as u16,
            osts => osts as u16,
        };
        let header = LovMdHeader {
            magic,
            pattern,
            stripe_size: self.size.unwrap_or(0) as u32,
            stripe_count,
            layout_gen: self.first.or(self.osts.first().copied()).unwrap_or(ANY_OST),
            ..LovMdHeader::default()
        };
        let stripe = |ost: &u16| LovOstData { ost_idx: u32::from(*ost), ..LovOstData::default() };
        let stripes = self.osts.iter().map(stripe).collect();
        LovMd { header, pool: self.pool.unwrap_or_default(), stripes }
    }
}

/// Builds a layout from options in order.
#[derive(Clone, Debug)]
pub(super) struct LayoutRequest {
    command: &'static str,
    current: ComponentRequest,
    done: Vec<LovComponent>,
    /// Whether some `-C` came: counts below -1 are fine from then on.
    overstriped: bool,
}

impl LayoutRequest {
    /// Requests nothing yet. `command` is the name in error messages.
    pub(super) fn new(command: &'static str) -> Self {
        Self { command, current: ComponentRequest::default(), done: Vec::new(), overstriped: false }
    }

    /// Whether anything is requested.
    pub(super) fn is_given(&self) -> bool {
        !self.done.is_empty()
            || self.current.is_given()
            || !self.current.osts.is_empty()
            || self.current.pool.is_some()
    }

    /// Whether there are components.
    pub(super) fn is_composite(&self) -> bool {
        !self.done.is_empty() || self.current.end.is_some()
    }

    /// Takes an option of [`OPTIONS`]; false for any other.
    ///
    /// # Errors
    /// A fault for a value or an order that Lustre's tool refuses.
    pub(super) fn option(&mut self, name: &str, value: &str) -> Result<bool, Fault> {
        match name {
            "component-end" => self.next_component(value)?,
            "layout" => self.layout(value)?,
            "stripe-count" => self.current.count = Some(self.count(value)?),
            "overstripe-count" => {
                self.not_on_mdt("-C|--overstripe-count")?;
                self.overstriped = true;
                self.current.kind = Kind::Overstriped;
                self.current.count = Some(self.count(value)?);
            }
            "stripe-size" => self.current.size = Some(self.size("stripe size", value)?),
            "stripe-index" => self.current.first = self.first(value)?,
            "ost" => self.osts(value)?,
            "pool" => self.current.pool = self.pool(value)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Adds a component that does not come from options.
    pub(super) fn push(&mut self, component: ComponentRequest) -> Result<(), String> {
        let part = self.component(component)?;
        self.done.push(part);
        Ok(())
    }

    /// Takes a plain layout that does not come from options.
    pub(super) fn set_plain(&mut self, component: ComponentRequest) {
        self.current = component;
    }

    /// The layout. Without any option it is a plain one that leaves all to the defaults.
    ///
    /// # Errors
    /// A fault for components that cannot be, with Lustre's exit codes.
    pub(super) fn finish(mut self) -> Result<LovEa, Fault> {
        if self.current.end.is_none() {
            return if self.done.is_empty() { self.plain() } else { Ok(composite(self.done)) };
        }
        let component = std::mem::take(&mut self.current);
        match self.component(component) {
            Ok(part) => self.done.push(part),
            Err(what) => {
                let text = format!("{}: invalid layout: {what}", self.command);
                return Err(Fault::new(Errno::EINVAL, text));
            }
        }
        Ok(composite(self.done))
    }

    fn plain(self) -> Result<LovEa, Fault> {
        let component = self.current;
        let (command, errno) = (self.command, Errno::EINVAL);
        if component.kind == Kind::Mdt {
            let text = format!(
                "{command}: Invalid pattern: '-L mdt', must be specified with -E: {errno} ({})",
                errno.0
            );
            return Err(Fault::new(errno, text));
        }
        if let Some(size) = component.size.filter(|size| u32::try_from(*size).is_err()) {
            let text = format!("stripe size '{size}' over 4GB limit: {errno} ({})", errno.0);
            return Err(Fault::new(errno, format!("{command}: error: {text}")));
        }
        count_fits(&component).map_err(|text| Fault::usage(format!("{command}: {text}")))?;
        Ok(LovEa::Plain(component.layout()))
    }

    fn next_component(&mut self, value: &str) -> Result<(), Fault> {
        if self.current.end.is_some() {
            let heir = self.current.heir();
            let component = std::mem::replace(&mut self.current, heir);
            let part = self.component(component).map_err(|what| {
                Fault::usage(format!("{}: invalid layout: {what}", self.command))
            })?;
            self.done.push(part);
        }
        let end = match value {
            "-1" | "eof" | "EOF" => END_OF_FILE,
            value => self.size("component end", value)?,
        };
        self.current.end = (end != 0).then_some(end);
        Ok(())
    }

    /// Checks one component and makes it; it begins where the last one ends.
    fn component(&self, mut component: ComponentRequest) -> Result<LovComponent, String> {
        let start = self.done.last().map_or(0, |part| part.entry.end);
        let end = component.end.unwrap_or(END_OF_FILE);
        if start == END_OF_FILE {
            return Err("Add component failed: Invalid argument".to_owned());
        }
        if end < start {
            return Err(format!("Set extent [{start}, {end}) failed: Invalid argument"));
        }
        if component.kind == Kind::Mdt {
            fits_the_mdt(&mut component, end - start)?;
        }
        if let Some(size) = component.size.filter(|size| u32::try_from(*size).is_err()) {
            return Err(format!("Set stripe size {size} failed: Invalid argument"));
        }
        count_fits(&component)?;
        if let Some(first) = component.first
            && !component.osts.is_empty()
            && !component.osts.contains(&first)
        {
            return Err(format!("Invalid stripe offset '{first}', not in the target list"));
        }
        let entry = LovCompEntry { start, end, ..LovCompEntry::default() };
        Ok(LovComponent { entry, layout: component.layout() })
    }

    fn layout(&mut self, value: &str) -> Result<(), Fault> {
        let command = self.command;
        let refused = |errno, text: &str| Err(Fault::new(errno, format!("{command}: {text}")));
        match value {
            "mdt" if !self.done.is_empty() => {
                refused(Errno::EINVAL, "'mdt' layout can be only the first one")
            }
            "mdt" if self.current.end.is_some_and(|end| end > DOM_SIZE_MAX) => {
                refused(Errno::EFBIG, "'mdt' layout size is too big")
            }
            "mdt" => {
                (self.current.kind, self.current.size) = (Kind::Mdt, None);
                Ok(())
            }
            "raid0" => Ok(()),
            value => {
                let text =
                    format!("layout '{value}' is unknown, supported layouts are: 'mdt', 'raid0'");
                refused(Errno::EINVAL, &text)
            }
        }
    }

    fn count(&self, text: &str) -> Result<i16, Fault> {
        let least = if self.overstriped { -OVERSTRIPES_MAX } else { -1 };
        let most = STRIPE_COUNT_MAX as i64;
        let count = signed(text).filter(|count| (least..=most).contains(count));
        count.map(|count| count as i16).ok_or_else(|| self.invalid("stripe count", text))
    }

    /// Bytes, a multiple of 64 KiB; small numbers are KiB.
    fn size(&self, what: &str, text: &str) -> Result<u64, Fault> {
        let size = parse_size(text).map(|size| if size < KIB_BELOW { size << 10 } else { size });
        size.filter(|size| size % UNIT == 0).ok_or_else(|| self.invalid(what, text))
    }

    fn first(&self, text: &str) -> Result<Option<u16>, Fault> {
        match signed(text) {
            Some(-1) => Ok(None),
            Some(index) => {
                let index = u16::try_from(index).ok().filter(|index| *index != ANY_OST);
                index.map(Some).ok_or_else(|| self.invalid("stripe offset", text))
            }
            None => Err(self.invalid("stripe offset", text)),
        }
    }

    fn osts(&mut self, text: &str) -> Result<(), Fault> {
        if self.current.kind == Kind::Mdt {
            self.not_on_mdt("-o|--ost")?;
        }
        let mut osts = std::mem::take(&mut self.current.osts);
        osts.extend(indexes(text).ok_or_else(|| self.invalid("OST target(s)", text))?);
        if osts.len() > STRIPE_COUNT_MAX {
            return Err(self.invalid("OST target(s)", text));
        }
        let mut sorted = osts.clone();
        sorted.sort_unstable();
        if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
            self.current.kind = Kind::Overstriped;
        }
        self.current.osts = osts;
        Ok(())
    }

    /// The pool's name, without the file system's before it.
    fn pool(&self, text: &str) -> Result<Option<PoolName>, Fault> {
        let name = text.split_once('.').map_or(text, |(_, name)| name);
        if ["", "inherit", "none"].contains(&name) {
            return Ok(None);
        }
        PoolName::new(name).map(Some).ok_or_else(|| {
            let errno = Errno::EINVAL;
            let text = format!("Invalid Poolname '{name}': {errno} ({})", errno.0);
            Fault::new(errno, format!("{}: {text}", self.command))
        })
    }

    fn not_on_mdt(&self, option: &str) -> Result<(), Fault> {
        match self.current.kind {
            Kind::Mdt => {
                let text = format!("{}: {option} incompatible with DoM layout", self.command);
                Err(Fault::usage(text))
            }
            _ => Ok(()),
        }
    }

    fn invalid(&self, what: &str, text: &str) -> Fault {
        Fault::usage(format!("{}: invalid {what} '{text}'", self.command))
    }
}

/// A Data-on-MDT component has a size and nothing else.
fn fits_the_mdt(component: &mut ComponentRequest, length: u64) -> Result<(), String> {
    component.first = component.first.filter(|first| *first != 0);
    component.count = component.count.filter(|count| *count != 0);
    let wrong = |option, value: String| {
        Err(format!("Option '{option}' can't be specified with Data-on-MDT component: {value}"))
    };
    if let Some(count) = component.count {
        return wrong("stripe-count", count.to_string());
    }
    if let Some(size) = component.size.filter(|size| *size != length) {
        return wrong("stripe-size", size.to_string());
    }
    if !component.osts.is_empty() {
        return wrong("ost-list", component.osts.len().to_string());
    }
    if let Some(first) = component.first {
        return wrong("stripe-offset", first.to_string());
    }
    if let Some(pool) = component.pool {
        return wrong("pool", format!("'{}'", String::from_utf8_lossy(pool.as_bytes())));
    }
    // The MDT cuts what is too long for it, but the field holds no more than this.
    component.size = Some(length.min(u64::from(u32::MAX) & !(UNIT - 1)));
    Ok(())
}

/// A count and a list of OSTs must agree.
fn count_fits(component: &ComponentRequest) -> Result<(), String> {
    match component.count {
        Some(count) if count > 0 && !component.osts.is_empty() => {
            let osts = component.osts.len();
            match count as usize == osts {
                true => Ok(()),
                false => Err(format!("stripe_count({count}) != nr_tgts({osts})")),
            }
        }
        _ => Ok(()),
    }
}

fn signed(text: &str) -> Option<i64> {
    let magnitude = parse_number(text.strip_prefix('-').unwrap_or(text))?;
    let magnitude = i64::try_from(magnitude).ok()?;
    Some(if text.starts_with('-') { -magnitude } else { magnitude })
}

/// Targets in `0,2-4`, numbers decimal or hexadecimal with 0x; `None` if it is no such list.
pub(super) fn indexes(text: &str) -> Option<Vec<u16>> {
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(hex) => u16::from_str_radix(hex, 16).ok(),
        None => text.parse::<u16>().ok(),
    };
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let range = number(first)?..=number(last)?;
        (!range.is_empty() && *range.end() != ANY_OST).then_some(range)
    };
    let ranges: Option<Vec<_>> = text.split(',').map(range).collect();
    Some(ranges?.into_iter().flatten().collect())
}

/// Components as a layout.
pub(super) fn composite(components: Vec<LovComponent>) -> LovEa {
    let mut composite = LovComp { components, ..LovComp::default() };
    composite.header.magic = LovMagic::COMP_V1;
    LovEa::Composite(composite)
}

/// What is wrong with components behind each other, as the library says it before it asks the MDT.
pub(super) fn fault_of(components: &[LovComponent]) -> Option<&'static str> {
    let mut before = 0;
    for (number, part) in components.iter().enumerate() {
        let (entry, header) = (&part.entry, &part.layout.header);
        if number > 0 && header.pattern.contains(LovPattern::MDT) {
            return Some("DoM component should be the first one in a file/mirror");
        }
        if number > 0 && entry.end < before {
            return Some("Component end is before end of previous component");
        }
        if entry.start == entry.end {
            return Some("Zero length components must be followed by extension");
        }
        let size = u64::from(header.stripe_size);
        if size != 0 && entry.end != END_OF_FILE && entry.end % size != 0 {
            return Some("The component end must be aligned by the stripe size");
        }
        if entry.start != before {
            return Some("Components not adjacent (end != next->start)");
        }
        before = entry.end;
    }
    None
}

#[cfg(test)]
#[path = "layout_request_tests.rs"]
mod tests;
