//! The message table as text, for the protocol documents.

use std::fmt::Write;

use super::{FormatFlags, Select, TABLE};
use crate::slot::{FieldInfo, FieldKind};

/// The whole table in Markdown: one row per message.
#[must_use]
pub fn markdown_table() -> String {
    let mut out = String::from(
        "| message | opcode | selected by | portals | flags | request | reply |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for format in TABLE {
        let _ = writeln!(
            out,
            "| {} | {} {:?} | {} | {:?}, {:?} | {} | {} | {} |",
            format.name,
            format.opcode.0,
            format.opcode,
            select_text(format.select),
            format.request_portal,
            format.reply_portal,
            flags_text(format.flags),
            fields_text(format.request),
            fields_text(format.reply),
        );
    }
    out
}

fn flags_text(flags: FormatFlags) -> String {
    // A bar would end the cell.
    if flags == FormatFlags::default() {
        String::new()
    } else {
        format!("{flags:?}").replace('|', ", ")
    }
}

fn select_text(select: Select) -> String {
    match select {
        Select::Any => String::new(),
        Select::Reint(op) => format!("REINT_{op:?}"),
        Select::ReintSymlink => "REINT_CREATE of a symbolic link".to_owned(),
        Select::Intent(bits) => format!("intent {bits:?}"),
        Select::Key(key) => format!("key `{key}`"),
        Select::Buffers(count) => format!("{count} buffers or more"),
    }
}

fn fields_text(fields: &[FieldInfo]) -> String {
    let texts = fields.iter().map(|field| {
        let grows = if field.growable { "+" } else { "" };
        match (field.kind, field.size) {
            (FieldKind::Required, 0) => field.name.to_owned(),
            (FieldKind::Required, size) => format!("{} ({size}{grows})", field.name),
            (FieldKind::Optional, 0) => format!("[{}]", field.name),
            (FieldKind::Optional, size) => format!("[{} ({size}{grows})]", field.name),
            (FieldKind::Array, size) => format!("{} ({size} each)", field.name),
            (FieldKind::Opaque, _) => format!("[{}]", field.name),
        }
    });
    texts.collect::<Vec<_>>().join(", ")
}
