//! Layouts as `lfs getstripe` prints them, as text and as YAML.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use sheen_wire::lov::{
    CompFlags, LovComp, LovCompEntry, LovCompHeader, LovComponent, LovEa, LovForeign, LovMagic,
    LovMd, LovOstData, LovPattern,
};

use super::compare::Bound;
use super::components::Flags;
use super::layout_request::{ANY_OST, END_OF_FILE};

/// What stands for 0 stripes in a directory's default, unless the file system says otherwise.
const STRIPE_COUNT_DEFAULT: u16 = 1;
/// What stands for a stripe size of 0 in a directory's default.
const STRIPE_SIZE_DEFAULT: u32 = 4 << 20;
/// Bytes in a unit of an extension's size.
const EXTENSION_UNIT: u64 = 1 << 10;
/// The pool's name that stands for none.
const POOL_IGNORE: &[u8] = b"ignore";

/// Which fields are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fields(u32);

impl Fields {
    /// Magic, FID sequence, FID object number, FID.
    pub(super) const IDENTITY: Self = Self(1);
    /// The FID alone.
    pub(super) const FID: Self = Self(1 << 1);
    /// Number of stripes.
    pub(super) const COUNT: Self = Self(1 << 2);
    /// Bytes of a stripe.
    pub(super) const SIZE: Self = Self(1 << 3);
    /// How bytes map to stripes.
    pub(super) const PATTERN: Self = Self(1 << 4);
    /// Generation of the layout.
    pub(super) const GENERATION: Self = Self(1 << 5);
    /// The first OST.
    pub(super) const OFFSET: Self = Self(1 << 6);
    /// The pool, if there is one.
    pub(super) const POOL: Self = Self(1 << 7);
    /// The stripes.
    pub(super) const OBJECTS: Self = Self(1 << 8);
    /// Number of components.
    pub(super) const COMPONENTS: Self = Self(1 << 9);
    /// A component's id.
    pub(super) const ID: Self = Self(1 << 10);
    /// A component's flags.
    pub(super) const FLAGS: Self = Self(1 << 11);
    /// A component's first byte.
    pub(super) const START: Self = Self(1 << 12);
    /// The first byte behind a component.
    pub(super) const END: Self = Self(1 << 13);
    /// Number of mirrors.
    pub(super) const MIRRORS: Self = Self(1 << 14);
    /// A component's mirror.
    pub(super) const MIRROR_ID: Self = Self(1 << 15);
    /// The size by which a component grows.
    pub(super) const EXTENSION: Self = Self(1 << 16);

    /// What is printed without options.
    pub(super) const USUAL: Self = Self((1 << 17) - 1 - Self::IDENTITY.0 - Self::FID.0);

    /// Both.
    #[must_use]
    pub(super) fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    fn has(self, field: Self) -> bool {
        self.0 & field.0 != 0
    }

    /// A field that is wanted alone is printed without its label.
    fn is_only(self, field: Self) -> bool {
        self == field
    }

    /// Whether fields of components are wanted, and not just everything.
    fn chooses_components(self) -> bool {
        const OWN: Fields = Fields(0b1_1111 << 9);
        Fields(self.0 & !Self::IDENTITY.0) != Self::USUAL && self.has(OWN)
    }
}

/// Which components are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Filter {
    /// With this id.
    pub(super) id: Option<u32>,
    /// With and without these flags.
    pub(super) flags: Option<Flags>,
    /// Beginning so.
    pub(super) start: Option<Bound>,
    /// Ending so.
    pub(super) end: Option<Bound>,
}

impl Filter {
    fn is_any(&self) -> bool {
        *self != Self::default()
    }

    /// Whether the component is wanted.
    pub(super) fn takes(&self, entry: &LovCompEntry) -> bool {
        self.id.is_none_or(|id| id == entry.id)
            && self.flags.is_none_or(|flags| flags.fit(entry.flags))
            && self.start.is_none_or(|bound| bound.fits(entry.start))
            && self.end.is_none_or(|bound| bound.fits(entry.end))
    }
}

/// How to print.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Style {
    /// What to print.
    pub(super) fields: Fields,
    /// Of which components.
    pub(super) filter: Filter,
    /// Only what lies on this OST.
    pub(super) ost: Option<u32>,
    /// A directory's default: one line, without what only files have.
    pub(super) is_default: bool,
    /// Zeros stay zeros.
    pub(super) raw: bool,
    /// As YAML that `lfs setstripe --yaml` reads.
    pub(super) yaml: bool,
    /// Indexes of targets as hexadecimal numbers.
    pub(super) hex: bool,
}

impl Style {
    fn has_name_line(&self) -> bool {
        let alone = self.is_default && self.fields.is_only(Fields::OBJECTS);
        !self.yaml && !alone
    }

    /// Whether nothing of a layout is printed.
    fn leaves_out(&self, layout: &LovEa) -> bool {
        self.ost.is_some_and(|ost| self.is_default || !lies_on(layout, ost))
    }

    fn index(&self, index: u32) -> String {
        if self.hex && index > 0 { format!("{index:#x}") } else { index.to_string() }
    }

    /// Only the component that counts: the last one that has objects.
    fn wants_last_only(&self) -> bool {
        let fields = Fields(self.fields.0 & !Fields::IDENTITY.0);
        fields != Fields::USUAL && !self.filter.is_any()
    }
}

/// The text of a layout as [`text`] has it, behind a line with the bytes of the file's name.
pub(super) fn text_of_file(layout: &LovEa, name: Option<&Path>, style: Style) -> Vec<u8> {
    let name = name.filter(|_| style.has_name_line() && !style.leaves_out(layout));
    let mut out = name.map_or(Vec::new(), |name| name.as_os_str().as_bytes().to_vec());
    out.extend(name.map(|_| b'\n'));
    out.extend(text(layout, style).bytes());
    out
}

/// The text of a layout, an empty line at its end unless it is YAML. Empty if nothing of it lies on
/// the wanted OST.
pub(super) fn text(layout: &LovEa, style: Style) -> String {
    if style.leaves_out(layout) {
        return String::new();
    }
    match layout {
        LovEa::Plain(plain) if style.filter.is_any() || style.fields.chooses_components() => {
            components(&as_composite(plain, style), true, style)
        }
        LovEa::Plain(plain) => plain_text(plain, style, Place::Alone),
        LovEa::Composite(composite) => components(composite, false, style),
        LovEa::Foreign(foreign) => foreign_text(foreign, style),
    }
}

fn lies_on(layout: &LovEa, ost: u32) -> bool {
    let plain = |plain: &LovMd| plain.stripes.iter().any(|stripe| stripe.ost_idx == ost);
    match layout {
        LovEa::Plain(layout) => plain(layout),
        LovEa::Composite(all) => {
            all.components.iter().any(|part| is_made(&part.entry) && plain(&part.layout))
        }
        LovEa::Foreign(_) => false,
    }
}

/// A plain layout as the one component it is.
fn as_composite(plain: &LovMd, style: Style) -> LovComp {
    let flags = if style.is_default { CompFlags::default() } else { CompFlags::INIT };
    let entry = LovCompEntry { flags, end: END_OF_FILE, ..LovCompEntry::default() };
    let generation = if style.is_default { 0 } else { plain.header.layout_gen.into() };
    LovComp {
        header: LovCompHeader { layout_gen: generation, ..LovCompHeader::default() },
        components: vec![LovComponent { entry, layout: plain.clone() }],
    }
}

fn foreign_text(foreign: &LovForeign, style: Style) -> String {
    let value = String::from_utf8_lossy(&foreign.value);
    let detail = style.fields.has(Fields::IDENTITY).then(|| {
        format!(
            "lfm_magic:         0x0BD70BD0\nlfm_length:          {}\nlfm_type:          {:#010X}\n\
             lfm_flags:          {:#010X}\n",
            foreign.value.len(),
            foreign.kind,
            foreign.flags,
        )
    });
    format!("{}lfm_value:     '{value}'\n\n", detail.unwrap_or_default())
}

/// `raid0`, `mdt`, with what else is set behind commas.
pub(super) fn pattern(pattern: LovPattern) -> String {
    let kind = match pattern {
        pattern if pattern.contains(LovPattern::MDT) => "mdt",
        pattern if pattern.contains(LovPattern::RAID0) => "raid0",
        pattern if pattern.contains(LovPattern::PARITY) => "parity",
        _ => return format!("{:x}", pattern.0),
    };
    let flags = [
        (LovPattern::OVERSTRIPING, ",overstriped"),
        (LovPattern::COMPRESS, ",compress"),
        (LovPattern::RELEASED, ",released"),
    ];
    let set = flags.iter().filter(|(flag, _)| pattern.contains(*flag)).map(|(_, name)| *name);
    kind.to_owned() + &set.collect::<String>()
}

/// Where a plain layout stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// It is all there is.
    Alone,
    /// In a component; with its state.
    In(CompFlags),
}

impl Place {
    fn has_objects(self) -> bool {
        matches!(self, Self::Alone)
            || matches!(self, Self::In(flags) if flags.contains(CompFlags::INIT))
    }

    fn is_extension(self) -> bool {
        matches!(self, Self::In(flags) if flags.contains(CompFlags::EXTENSION))
    }

    fn indent(self) -> &'static str {
        if self == Self::Alone { "" } else { "      " }
    }
}

fn plain_text(layout: &LovMd, style: Style, place: Place) -> String {
    let mut text = assemble(&fields(layout, style, place), style, place.indent());
    let on_osts = !layout.header.pattern.contains(LovPattern::MDT)
        && !layout.header.pattern.contains(LovPattern::RELEASED);
    let has_objects = place.has_objects() && on_osts && !layout.stripes.is_empty();
    if style.fields.has(Fields::OBJECTS) {
        if style.is_default {
            text += &requested_osts(layout, style);
        } else if has_objects {
            text += &objects(layout, style, place);
        }
    }
    if style.yaml { text } else { text + "\n" }
}

/// Which field, its label and its value.
type Field = (Fields, &'static str, String);

/// Label and value of each wanted field.
fn fields(layout: &LovMd, style: Style, place: Place) -> Vec<Field> {
    let (header, mut fields) = (&layout.header, Vec::new());
    let mut put = |field: Fields, label: &'static str, value: String| {
        if style.fields.has(field) {
            fields.push((field, label, value));
        }
    };
    let (is_file, extension) = (!style.is_default, place.is_extension());
    let fid = header.oi.file();
    if is_file {
        put(Fields::IDENTITY, "magic:         ", format!("0x{:08X}", header.magic.0));
        put(Fields::IDENTITY, "seq:           ", format!("{:#x}", fid.seq));
        put(Fields::IDENTITY, "object_id:     ", format!("{:#x}", fid.oid));
        let shown = fid.to_string();
        let shown = if style.yaml { shown.trim_matches(['[', ']']).to_owned() } else { shown };
        put(Fields::IDENTITY.with(Fields::FID), "fid:           ", shown);
    }
    let substitute = style.is_default && !style.raw && !header.pattern.contains(LovPattern::MDT);
    let count = match header.stripe_count {
        _ if extension => 0,
        0 if substitute => STRIPE_COUNT_DEFAULT,
        count => count,
    };
    put(Fields::COUNT, "stripe_count:  ", (count as i16).to_string());
    let size = match header.stripe_size {
        0 if substitute => STRIPE_SIZE_DEFAULT,
        size => size,
    };
    if extension {
        let size = u64::from(size) * EXTENSION_UNIT;
        put(Fields::EXTENSION, "extension_size: ", size.to_string());
    } else {
        put(Fields::SIZE, "stripe_size:   ", size.to_string());
    }
    put(Fields::PATTERN, "pattern:       ", pattern(header.pattern));
    if is_file {
        let generation = if place.has_objects() { header.layout_gen } else { 0 };
        put(Fields::GENERATION, "layout_gen:    ", generation.to_string());
    }
    let on_mdt = header.pattern.contains(LovPattern::MDT);
    let label = if on_mdt { "mdt_index:     " } else { "stripe_offset: " };
    put(Fields::OFFSET, label, offset(layout, style, place));
    let named = !layout.pool.is_empty() && (style.raw || layout.pool.as_bytes() != POOL_IGNORE);
    if named {
        let pool = String::from_utf8_lossy(layout.pool.as_bytes()).into_owned();
        put(Fields::POOL, "pool:          ", pool);
    }
    fields
}

/// The first OST, or the MDT of data on it; -1 for any.
fn offset(layout: &LovMd, style: Style, place: Place) -> String {
    let on_mdt = layout.header.pattern.contains(LovPattern::MDT);
    let requested = match layout.header.layout_gen {
        ANY_OST => None,
        index => Some(u32::from(index)),
    };
    let index = match layout.stripes.first() {
        Some(stripe) if !style.is_default && !on_mdt && place.has_objects() => Some(stripe.ost_idx),
        None if !style.is_default && !on_mdt && place.has_objects() => None,
        _ => requested,
    };
    index.map_or_else(|| "-1".to_owned(), |index| style.index(index))
}

/// A file's fields stand below each other, those of a default beside each other.
fn assemble(fields: &[Field], style: Style, indent: &str) -> String {
    let beside = style.is_default && !style.yaml;
    let prefix = if style.is_default { "" } else { "lmm_" };
    let texts: Vec<String> = fields
        .iter()
        .map(|(field, label, value)| {
            match style.fields.is_only(*field) || style.fields.is_only(Fields::FID) {
                true => value.clone(),
                false => format!("{indent}{prefix}{label}{value}"),
            }
        })
        .collect();
    match (texts.is_empty(), beside) {
        (true, _) => String::new(),
        (_, true) => texts.join(" ") + "\n",
        (_, false) => texts.join("\n") + "\n",
    }
}

fn objects(layout: &LovMd, style: Style, place: Place) -> String {
    let alone = place == Place::Alone;
    let mut text = match (alone, style.yaml) {
        (false, _) => "      lmm_objects:\n".to_owned(),
        (true, true) => "lmm_objects:\n".to_owned(),
        (true, false) => "\tobdidx\t\t objid\t\t objid\t\t group\n".to_owned(),
    };
    for (number, stripe) in layout.stripes.iter().enumerate() {
        if style.ost.is_some_and(|ost| ost != stripe.ost_idx) {
            continue;
        }
        let index = style.index(stripe.ost_idx);
        text += &match (style.yaml, alone) {
            (true, _) => {
                let fid = object(stripe);
                let fid = fid.trim_matches(['[', ']']);
                format!("      - l_ost_idx: {index}\n        l_fid:     {fid}\n")
            }
            (false, false) => {
                let width = if style.hex { 5 } else { 3 };
                let fid = object(stripe);
                format!("      - {number:>3}: {{ l_ost_idx: {index:>width$}, l_fid: {fid} }}\n")
            }
            (false, true) => {
                let (id, seq) = (stripe.oi.id(), stripe.oi.seq());
                let mark = if style.ost.is_some() { " *" } else { "" };
                format!("\t{index:>6}\t{id:>14}\t{id:>#13x}\t{seq:>#14x}{mark}\n")
            }
        };
    }
    text
}

/// The OSTs that a default names.
fn requested_osts(layout: &LovMd, style: Style) -> String {
    if layout.header.magic != LovMagic::SPECIFIC || style.yaml {
        return String::new();
    }
    let line = |stripe: &LovOstData| {
        let (index, none) = (style.index(stripe.ost_idx), "N/A");
        format!("\t{index:>6}\t{none:>14}\t{none:>13}\t{none:>14}\n")
    };
    let title = "\tobdidx\t\t objid\t\t objid\t\t group\n";
    title.to_owned() + &layout.stripes.iter().map(line).collect::<String>()
}

/// An object that has no FID is shown by its old pair of names.
fn object(stripe: &LovOstData) -> String {
    let fid = u16::try_from(stripe.ost_idx).ok().and_then(|index| stripe.oi.fid(index));
    let old = || format!("[{:#x}:{:#x}:0x0]", stripe.oi.seq(), stripe.oi.id());
    fid.map_or_else(old, |fid| fid.to_string())
}

/// The header and the components that are wanted. `forged` says that it is a plain layout.
fn components(composite: &LovComp, forged: bool, style: Style) -> String {
    let all = &composite.components;
    let mut text = composite_header(composite, forged, style);
    let on_ost = |part: &LovComponent| match style.ost {
        Some(ost) => {
            is_made(&part.entry) && part.layout.stripes.iter().any(|stripe| stripe.ost_idx == ost)
        }
        None => true,
    };
    if !style.wants_last_only() {
        let wanted = all.iter().filter(|part| style.filter.takes(&part.entry) && on_ost(part));
        text.extend(wanted.map(|part| component(part, style)));
        return text;
    }
    let first_unmade = all.iter().position(|part| !is_made(&part.entry)).unwrap_or(all.len());
    let last = if first_unmade == 0 { all.len() } else { first_unmade };
    let extension = all.iter().find(|part| part.entry.flags.contains(CompFlags::EXTENSION));
    let shown = extension.filter(|_| style.fields.has(Fields::EXTENSION));
    let shown = shown.or_else(|| last.checked_sub(1).map(|number| &all[number]));
    text + &shown.map(|part| component(part, style)).unwrap_or_default()
}

fn composite_header(composite: &LovComp, forged: bool, style: Style) -> String {
    let (header, mut text) = (&composite.header, String::new());
    let indent = if style.yaml { "" } else { "  " };
    if style.fields.has(Fields::IDENTITY) {
        let state = match header.flags & 3 {
            1 => "ro",
            2 => "wp",
            3 => "sp",
            _ => "0",
        };
        let state = if style.is_default { "" } else { state };
        text += &format!(
            "composite_header:\n  lcm_magic:         0x{:08X}\n  lcm_size:          {}\n  \
             lcm_flags:         {state}\n",
            header.magic.0, header.size,
        );
    }
    let (mirrors, entries) = match forged {
        true => (1, 0),
        false => (u32::from(header.mirror_count) + 1, composite.components.len()),
    };
    let values = [
        (Fields::GENERATION, "lcm_layout_gen:    ", header.layout_gen.to_string()),
        (Fields::MIRRORS, "lcm_mirror_count:  ", mirrors.to_string()),
        (Fields::COMPONENTS, "lcm_entry_count:   ", entries.to_string()),
    ];
    for (field, label, value) in values {
        if style.fields.is_only(field) {
            text += &format!("{value}\n");
        } else if style.fields.has(field) {
            text += &format!("{indent}{label}{value}\n");
        }
    }
    if style.fields.has(Fields::IDENTITY) || style.yaml {
        text += "components:\n";
    }
    text
}

fn is_made(entry: &LovCompEntry) -> bool {
    entry.flags.contains(CompFlags::INIT)
}

fn component(component: &LovComponent, style: Style) -> String {
    let entry = &component.entry;
    let (id, mirror) = match entry.id {
        0 => ("N/A".to_owned(), "N/A".to_owned()),
        id => (id.to_string(), (id >> 16 & 0x7fff).to_string()),
    };
    let end = if entry.end == END_OF_FILE { "EOF".to_owned() } else { entry.end.to_string() };
    let detail = style.fields.has(Fields::IDENTITY);
    let mut text = String::new();
    let values = [
        (Fields::ID, "lcme_id:             ", id),
        (Fields::MIRROR_ID, "lcme_mirror_id:      ", mirror),
        (Fields::FLAGS, "lcme_flags:          ", flags(entry.flags)),
        (Fields::START, "lcme_extent.e_start: ", entry.start.to_string()),
        (Fields::END, "lcme_extent.e_end:   ", end),
    ];
    for (field, label, value) in values {
        let is_item = field == Fields::ID && (style.yaml || detail);
        if is_item {
            text += &format!("  - {label}{value}\n");
        } else if style.fields.is_only(field) {
            text += &format!("{value}\n");
        } else if style.fields.has(field) {
            text += &format!("    {label}{value}\n");
        }
    }
    if style.yaml {
        text += "    sub_layout:\n";
    } else if detail {
        text += &format!(
            "    lcme_offset:         {}\n    lcme_size:           {}\n    sub_layout:\n",
            entry.offset, entry.size
        );
    }
    text + &plain_text(&component.layout, style, Place::In(entry.flags))
}

/// Flags as Lustre's tools name them.
pub(super) fn flags(flags: CompFlags) -> String {
    let names = [
        (CompFlags::INIT, "init"),
        (CompFlags::STALE, "stale"),
        (CompFlags::PREF_RD, "prefrd"),
        (CompFlags::PREF_WR, "prefwr"),
        (CompFlags::OFFLINE, "offline"),
        (CompFlags::NOSYNC, "nosync"),
        (CompFlags::EXTENSION, "extension"),
        (CompFlags::PARITY, "parity"),
        (CompFlags::COMPRESS, "compress"),
        (CompFlags::NOCOMPR, "nocompr"),
    ];
    let set: Vec<&str> =
        names.iter().filter(|(flag, _)| flags.contains(*flag)).map(|(_, name)| *name).collect();
    if set.is_empty() { "0".to_owned() } else { set.join(",") }
}

#[cfg(test)]
#[path = "layout_text_tests.rs"]
mod tests;
