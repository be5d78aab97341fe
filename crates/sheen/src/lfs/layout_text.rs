//! Layouts as `lfs getstripe` prints them.

use sheen_wire::lov::{CompFlags, LovComp, LovComponent, LovEa, LovMd, LovOstData, LovPattern};

/// What stands for 0 stripes in a directory's default, unless the file system says otherwise.
const STRIPE_COUNT_DEFAULT: u16 = 1;
/// What stands for a stripe size of 0 in a directory's default.
const STRIPE_SIZE_DEFAULT: u32 = 4 << 20;

/// Which fields are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fields {
    /// Magic, FID sequence, FID object number, FID.
    pub(super) identity: bool,
    /// The FID alone.
    pub(super) fid: bool,
    /// Number of stripes.
    pub(super) count: bool,
    /// Bytes of a stripe.
    pub(super) size: bool,
    /// How bytes map to stripes.
    pub(super) pattern: bool,
    /// Generation of the layout.
    pub(super) generation: bool,
    /// The first OST.
    pub(super) offset: bool,
    /// The pool, if there is one.
    pub(super) pool: bool,
    /// The stripes.
    pub(super) objects: bool,
}

impl Fields {
    /// What is printed without options.
    pub(super) const USUAL: Self = Self {
        identity: false,
        fid: false,
        count: true,
        size: true,
        pattern: true,
        generation: true,
        offset: true,
        pool: true,
        objects: true,
    };

    /// A single field is printed without its label, and without the file's name.
    pub(super) fn is_single(&self) -> bool {
        let fields = [self.fid, self.count, self.size, self.pattern, self.generation];
        let fields = fields.into_iter().chain([self.offset, self.pool, self.objects]);
        !self.identity && !self.objects && fields.filter(|wanted| *wanted).count() == 1
    }
}

/// How to print.
#[derive(Clone, Copy, Debug)]
pub(super) struct Style {
    /// What to print.
    pub(super) fields: Fields,
    /// A directory's default: one line, without what only files have.
    pub(super) is_default: bool,
    /// Zeros stay zeros.
    pub(super) raw: bool,
}

/// The text of a layout, an empty line at its end.
pub(super) fn text(layout: &LovEa, style: Style) -> String {
    match layout {
        LovEa::Plain(plain) => {
            let mut text = header(plain, style, "");
            if style.fields.objects && !style.is_default && !plain.stripes.is_empty() {
                text += &objects(plain);
            }
            text + "\n"
        }
        LovEa::Composite(composite) => components(composite, style),
        LovEa::Foreign(foreign) => format!(
            "lfm_magic:         0x0BD70BD0\nlfm_length:        {}\nlfm_type:          {:#010x}\n\
             lfm_flags:         {:#010x}\n\n",
            foreign.value.len(),
            foreign.kind,
            foreign.flags,
        ),
    }
}

/// `raid0`, `mdt`, with what else is set behind commas.
fn pattern(pattern: LovPattern) -> String {
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

/// Label and value of each wanted field.
fn fields(layout: &LovMd, style: Style, made: bool) -> Vec<(&'static str, String)> {
    let (header, wanted) = (&layout.header, style.fields);
    let mut fields = Vec::new();
    let mut put = |wanted: bool, label: &'static str, value: String| {
        if wanted {
            fields.push((label, value));
        }
    };
    let is_file = !style.is_default;
    let fid = header.oi.file();
    put(wanted.identity && is_file, "magic:         ", format!("0x{:08X}", header.magic.0));
    put(wanted.identity && is_file, "seq:           ", format!("{:#x}", fid.seq));
    put(wanted.identity && is_file, "object_id:     ", format!("{:#x}", fid.oid));
    put((wanted.identity || wanted.fid) && is_file, "fid:           ", fid.to_string());
    let substitute = style.is_default && !style.raw && !header.pattern.contains(LovPattern::MDT);
    let count = match header.stripe_count {
        0 if substitute => STRIPE_COUNT_DEFAULT,
        count => count,
    };
    put(wanted.count, "stripe_count:  ", (count as i16).to_string());
    let size = match header.stripe_size {
        0 if substitute => STRIPE_SIZE_DEFAULT,
        size => size,
    };
    put(wanted.size, "stripe_size:   ", size.to_string());
    put(wanted.pattern, "pattern:       ", pattern(header.pattern));
    put(wanted.generation && is_file, "layout_gen:    ", header.layout_gen.to_string());
    let first = layout.stripes.first().map(|stripe| stripe.ost_idx.to_string());
    let offset = match (header.layout_gen, first) {
        (_, Some(first)) if made => first,
        (u16::MAX, _) => "-1".to_owned(),
        (wish, _) if style.is_default => wish.to_string(),
        _ if header.pattern.contains(LovPattern::MDT) && made => "0".to_owned(),
        _ => "-1".to_owned(),
    };
    let label = match header.pattern.contains(LovPattern::MDT) {
        true => "mdt_index:     ",
        false => "stripe_offset: ",
    };
    put(wanted.offset, label, offset);
    let pool = String::from_utf8_lossy(layout.pool.as_bytes()).into_owned();
    put(wanted.pool && !layout.pool.is_empty(), "pool:          ", pool);
    fields
}

fn header(layout: &LovMd, style: Style, indent: &str) -> String {
    let fields = fields(layout, style, true);
    assemble(&fields, style, indent)
}

/// A file's fields stand below each other, those of a default beside each other.
fn assemble(fields: &[(&str, String)], style: Style, indent: &str) -> String {
    if style.fields.is_single() {
        let values: Vec<&str> = fields.iter().map(|(_, value)| value.as_str()).collect();
        return format!("{indent}{}\n", values.join(" "));
    }
    if fields.is_empty() {
        return String::new();
    }
    if style.is_default {
        let gap = if indent.is_empty() { " ".to_owned() } else { format!(" {indent}") };
        let texts: Vec<String> =
            fields.iter().map(|(label, value)| format!("{label}{value}")).collect();
        return format!("{indent}{}\n", texts.join(&gap));
    }
    fields.iter().map(|(label, value)| format!("{indent}lmm_{label}{value}\n")).collect()
}

fn objects(layout: &LovMd) -> String {
    let mut text = String::from("\tobdidx\t\t objid\t\t objid\t\t group\n");
    for stripe in &layout.stripes {
        let (id, seq) = (stripe.oi.id(), stripe.oi.seq());
        text += &format!("\t{:>6}\t{id:>14}\t{id:>#13x}\t{seq:>#14x}\n", stripe.ost_idx);
    }
    text
}

/// A single field is that of the last component that has objects, or of the last.
fn components(composite: &LovComp, style: Style) -> String {
    let (header, components) = (&composite.header, &composite.components);
    if style.fields.is_single() {
        let made = components.iter().rev().find(|component| is_made(component));
        let Some(told) = made.or(components.last()) else { return String::new() };
        return assemble(&fields(&told.layout, style, is_made(told)), style, "") + "\n";
    }
    let mut text = format!("  lcm_layout_gen:    {}\n", header.layout_gen);
    text += &format!("  lcm_mirror_count:  {}\n", u32::from(header.mirror_count) + 1);
    text += &format!("  lcm_entry_count:   {}\n", components.len());
    for component in components {
        text += &self::component(component, style);
    }
    text
}

fn is_made(component: &LovComponent) -> bool {
    component.entry.flags.contains(CompFlags::INIT)
}

fn component(component: &LovComponent, style: Style) -> String {
    let (entry, made) = (&component.entry, is_made(component));
    let (id, mirror) = match style.is_default {
        true => ("N/A".to_owned(), "N/A".to_owned()),
        false => (entry.id.to_string(), (entry.id >> 16 & 0x7fff).to_string()),
    };
    let end = if entry.end == u64::MAX { "EOF".to_owned() } else { entry.end.to_string() };
    let mut text = format!(
        "    lcme_id:             {id}\n    lcme_mirror_id:      {mirror}\n    \
         lcme_flags:          {}\n    lcme_extent.e_start: {}\n    lcme_extent.e_end:   {end}\n",
        flags(entry.flags),
        entry.start,
    );
    text += &assemble(&fields(&component.layout, style, made), style, "      ");
    if style.fields.objects && !style.is_default && made && !component.layout.stripes.is_empty() {
        text += "      lmm_objects:\n";
        for (number, stripe) in component.layout.stripes.iter().enumerate() {
            text += &format!("      - {number:>3}: {}\n", object(stripe));
        }
    }
    text + "\n"
}

/// An object that has no FID is shown by its old pair of names.
fn object(stripe: &LovOstData) -> String {
    let index = stripe.ost_idx;
    let fid = u16::try_from(index).ok().and_then(|index| stripe.oi.fid(index));
    let fid = fid.map_or_else(
        || format!("[{:#x}:{:#x}:0x0]", stripe.oi.seq(), stripe.oi.id()),
        |fid| fid.to_string(),
    );
    format!("{{ l_ost_idx: {index:>3}, l_fid: {fid} }}")
}

fn flags(flags: CompFlags) -> String {
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
