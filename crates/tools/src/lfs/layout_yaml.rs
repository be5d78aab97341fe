//! Layout templates: what `lfs getstripe --yaml` writes, `lfs setstripe --yaml` reads.
//!
//! A template is read as a list of keys and values in the order of its lines, as Lustre's tool
//! reads it: nesting says nothing that the order does not say. Keys that do not matter for a new
//! file (FIDs, generations) are passed over.

use super::layout_request::{ComponentRequest, END_OF_FILE, Kind, LayoutRequest};
use super::options::parse_number;
use sheen_wire::lov::PoolName;

/// Adds the components of the template to `request`.
///
/// # Errors
/// One line about what cannot be read or made.
pub(super) fn read(text: &str, request: &mut LayoutRequest) -> Result<(), String> {
    let mut template = Template::default();
    for (number, line) in text.lines().enumerate() {
        let wrong = |what: &str| format!("line {}: {what}", number + 1);
        for (key, value) in pairs(line).ok_or_else(|| wrong("no 'key: value'"))? {
            template.take(&key, &value, request).map_err(|what| wrong(&what))?;
        }
    }
    template.end(request)
}

/// What has been read of the component that is being read.
#[derive(Default)]
struct Template {
    current: ComponentRequest,
    is_component: bool,
    /// Whether a component is read: it is one from its count of stripes on.
    is_any: bool,
    /// Whether anything is said that a whole layout can have by itself.
    is_said: bool,
}

impl Template {
    fn take(&mut self, key: &str, value: &str, request: &mut LayoutRequest) -> Result<(), String> {
        let number = || value.parse::<i64>().ok().or(parse_number(value).map(|n| n as i64));
        let needed = || number().ok_or_else(|| format!("'{value}' is not a number"));
        let key = key.strip_prefix("lmm_").unwrap_or(key);
        self.is_said |=
            ["stripe_size", "stripe_offset", "pool", "pattern", "l_ost_idx"].contains(&key);
        match key {
            "lcme_id" => {
                self.component(request)?;
                self.is_component = true;
            }
            "lcm_mirror_count" if needed()? > 1 => {
                return Err("mirrored files are not supported by Sheen yet".to_owned());
            }
            "extension_size" => {
                return Err("self-extending layouts are not supported by Sheen yet".to_owned());
            }
            "lcme_extent.e_end" => {
                let at_end = matches!(value, "EOF" | "eof" | "-1");
                self.current.end = Some(if at_end { END_OF_FILE } else { needed()? as u64 });
                self.is_component = true;
            }
            "pattern" => self.current.kind = kind(value)?,
            "pool" => {
                let name = PoolName::new(value.trim_matches(['\'', '"']));
                self.current.pool =
                    Some(name.ok_or_else(|| format!("Invalid Poolname '{value}'"))?);
            }
            "stripe_count" => {
                let count = i16::try_from(needed()?).ok().filter(|count| *count >= -32);
                self.current.count = Some(count.ok_or(format!("invalid stripe count '{value}'"))?);
                self.is_any = true;
            }
            "stripe_size" => self.current.size = Some(needed()? as u64),
            "stripe_offset" => self.current.first = u16::try_from(needed()?).ok(),
            "l_ost_idx" => {
                let index = u16::try_from(needed()?).map_err(|_| "no OST".to_owned())?;
                self.current.osts.push(index);
            }
            _ => {}
        }
        Ok(())
    }

    fn component(&mut self, request: &mut LayoutRequest) -> Result<(), String> {
        let mut component = std::mem::take(&mut self.current);
        if !std::mem::take(&mut self.is_any) {
            return Ok(());
        }
        if component.kind == Kind::Mdt {
            component.size = None;
        }
        request.push(component)
    }

    fn end(mut self, request: &mut LayoutRequest) -> Result<(), String> {
        if !self.is_any && !self.is_said {
            return Err("no layout in it".to_owned());
        }
        if self.is_component {
            return self.component(request);
        }
        request.set_plain(self.current);
        Ok(())
    }
}

fn kind(value: &str) -> Result<Kind, String> {
    match value {
        "raid0" => Ok(Kind::Raid0),
        "mdt" => Ok(Kind::Mdt),
        "raid0,overstriped" => Ok(Kind::Overstriped),
        value => Err(format!("pattern '{value}' is not supported by Sheen yet")),
    }
}

/// The keys and values of a line; `None` if it is no line of a template.
fn pairs(line: &str) -> Option<Vec<(String, String)>> {
    let mut line = line.trim();
    while let Some(item) = line.strip_prefix("- ") {
        line = item.trim_start();
    }
    if line.is_empty() || line.starts_with('#') || line == "---" {
        return Some(Vec::new());
    }
    let (key, value) = line.split_once(':')?;
    let value = value.trim();
    let inner = value.strip_prefix('{').and_then(|value| value.strip_suffix('}'));
    match inner {
        Some(inner) => inner.split(',').map(pair).collect(),
        None => Some(vec![(key.trim().to_owned(), value.to_owned())]),
    }
}

fn pair(text: &str) -> Option<(String, String)> {
    let (key, value) = text.split_once(':')?;
    Some((key.trim().to_owned(), value.trim().to_owned()))
}
