//! Extended attributes of an object, as they were at one moment.

use std::cmp::Ordering;
use std::sync::Arc;

use bytes::Bytes;

use crate::Attributes;

/// An object as it was at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WholeObject {
    /// As [`crate::Store::recorded_attributes`] has them: size and blocks of a data object mean nothing.
    pub attributes: Attributes,
    /// All of them.
    pub xattrs: Xattrs,
}

/// Extended attributes in the order of their names. A clone shares them and costs no allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Xattrs(Option<Arc<Vec<Xattr>>>);

/// Name, which is UTF-8, and value. In one piece of memory with those of its object, where they were read together.
type Xattr = (Bytes, Bytes);

impl Xattrs {
    /// The value of one.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Bytes> {
        let found = self.place(name).ok()?;
        Some(self.all()[found].1.clone())
    }

    /// Sets one, or removes it.
    pub fn set(&mut self, name: &str, value: Option<Bytes>) {
        let place = self.place(name);
        if place.is_err() && value.is_none() {
            return;
        }
        let all = Arc::make_mut(self.0.get_or_insert_default());
        match (place, value) {
            (Ok(found), Some(value)) => all[found].1 = value,
            (Err(place), Some(value)) => {
                all.insert(place, (Bytes::copy_from_slice(name.as_bytes()), value));
            }
            (Ok(found), None) => drop(all.remove(found)),
            (Err(_), None) => {}
        }
    }

    /// The names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.iter().map(|(name, _)| name)
    }

    /// Names and values, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Bytes)> {
        let text = |name| str::from_utf8(name).unwrap_or_default();
        self.all().iter().map(move |(name, value)| (text(name), value))
    }

    /// What is read from one piece of memory: each name and value a part of it. `None` if a name is no text, or they are
    /// not sorted.
    #[must_use]
    pub fn of_parts(parts: Vec<(Bytes, Bytes)>) -> Option<Self> {
        let is_text = |(name, _): &Xattr| str::from_utf8(name).is_ok();
        let is_sorted = parts.is_sorted_by(|one, other| one.0 < other.0);
        let is_sound = is_sorted && parts.iter().all(is_text);
        is_sound.then(|| Self((!parts.is_empty()).then(|| Arc::new(parts))))
    }

    fn all(&self) -> &[Xattr] {
        self.0.as_ref().map_or(&[], |all| all)
    }

    fn place(&self, name: &str) -> Result<usize, usize> {
        let order = |held: &Xattr| -> Ordering { held.0[..].cmp(name.as_bytes()) };
        self.all().binary_search_by(order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    #[test]
    fn they_stay_sorted_and_a_clone_is_of_its_moment() {
        let mut xattrs = Xattrs::default();
        for name in ["user.b", "trusted.lov", "user.a"] {
            xattrs.set(name, Some(bytes("1")));
        }
        let before = xattrs.clone();
        xattrs.set("user.a", Some(bytes("2")));
        xattrs.set("trusted.lov", None);
        xattrs.set("none", None);
        assert_eq!(xattrs.names().collect::<Vec<_>>(), ["user.a", "user.b"]);
        assert_eq!((xattrs.get("user.a"), xattrs.get("trusted.lov")), (Some(bytes("2")), None));
        assert_eq!(before.get("user.a"), Some(bytes("1")));
        assert_eq!(before.names().count(), 3);
    }

    #[test]
    fn parts_that_are_no_text_or_out_of_order_are_refused() {
        let part = |name| (Bytes::copy_from_slice(name), Bytes::new());
        let read = Xattrs::of_parts(vec![part(b"a"), part(b"b")]).expect("sound");
        assert_eq!(read.names().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(Xattrs::of_parts(vec![part(b"b"), part(b"a")]), None);
        assert_eq!(Xattrs::of_parts(vec![part(b"a"), part(b"a")]), None);
        assert_eq!(Xattrs::of_parts(vec![part(b"\xff")]), None);
        assert_eq!(Xattrs::of_parts(Vec::new()), Some(Xattrs::default()));
    }
}
