//! Striped directories, as their stores say: each stripe is listed by its master and says the same of itself, and each name
//! lies in the stripe that it hashes to.

use std::collections::BTreeMap;

use sheen_layout::directory::{
    DirectoryLayout, Holder, NamePlaces, UnknownHash, parse_stripe_name, stripe_name,
};
use sheen_store::{Attributes, FileKind, Store, StoreError};
use sheen_types::{Fid, HashMap};
use sheen_wire::lmv::LmvEa;

use super::{Entry, Home, Walk};
use crate::directory::{Child, key};
use crate::orphans::fid_key;
use crate::restripe::RESTRIPING;
use crate::xattrs;

/// What the stripes of a directory have as it has it, beside owner and mode.
pub(crate) const SHARED_XATTRS: [&str; 4] =
    [xattrs::ACL_ACCESS, xattrs::ACL_DEFAULT, xattrs::LOV, xattrs::DEFAULT_LMV];

/// What a directory says of stripes: nothing, a layout, or why that cannot be read.
pub(crate) type SaidLayout = Option<Result<DirectoryLayout, String>>;

/// The layout that an inode has, if it is there.
///
/// # Errors
/// Those of the store.
pub(crate) fn layout_of(store: &dyn Store, fid: Fid) -> Result<SaidLayout, StoreError> {
    let value = match store.xattr(fid, xattrs::LMV) {
        Ok(Some(value)) => value,
        Ok(None) | Err(StoreError::NoObject(_)) => return Ok(None),
        Err(error) => return Err(error),
    };
    let read = LmvEa::decode(&value).map_err(|error| error.to_string());
    Ok(Some(read.and_then(|ea| DirectoryLayout::from_ea(&ea).map_err(|error| error.to_string()))))
}

/// Where a name that lies in a stripe belongs instead; `None` if it is where it belongs.
pub(crate) fn other_stripe(
    layout: &DirectoryLayout,
    number: u32,
    name: &[u8],
) -> Result<Option<u32>, UnknownHash> {
    let NamePlaces { now, before } = layout.places(name)?;
    let is_here = number == now || before == Some(number);
    Ok((!is_here).then_some(now))
}

/// Whether a stripe says of itself what its master's layout says of it.
pub(crate) fn agree(of_master: &DirectoryLayout, number: u32, of_stripe: &DirectoryLayout) -> bool {
    *of_stripe.holder() == Holder::Stripe { number }
        && of_stripe.stripe_count() == of_master.stripe_count()
        && of_stripe.hash().without_flags() == of_master.hash().without_flags()
        && change_alike(of_master, number, of_stripe)
}

/// Whether both say of the same change, or of none. A stripe may be through.
fn change_alike(of_master: &DirectoryLayout, number: u32, of_stripe: &DirectoryLayout) -> bool {
    match (of_master.is_changing(), of_stripe.is_changing()) {
        (false, false) => true,
        (true, true) => {
            let wanted = of_master.for_new_names().ok();
            let wanted = wanted.and_then(|layout| layout.of_stripe(number));
            wanted.is_some() && wanted == of_stripe.for_new_names().ok()
        }
        _ => false,
    }
}

/// Owner, group and mode, which the stripes of a directory have as it has them.
pub(crate) fn rights(attributes: &Attributes) -> (u32, u32, u32) {
    (attributes.uid, attributes.gid, attributes.permissions)
}

/// What was found of striped directories.
#[derive(Default)]
pub(super) struct Striped {
    /// The layouts of masters, by the place of their MDT.
    masters: BTreeMap<Fid, (usize, DirectoryLayout)>,
    /// The layouts that stripes have of their own.
    stripes: BTreeMap<Fid, (usize, DirectoryLayout)>,
}

impl Striped {
    /// Whether names lie in a directory's stripes, and not in itself.
    pub(super) fn is_master(&self, directory: Fid) -> bool {
        self.masters.contains_key(&directory)
    }

    /// Whether a directory has some of the names of another one.
    pub(super) fn is_stripe(&self, directory: Fid) -> bool {
        self.stripes.contains_key(&directory)
    }
}

impl Walk<'_> {
    /// Notes what a directory says of stripes, and looks whether its names may lie in it.
    pub(super) fn striping(
        &mut self,
        at: usize,
        directory: Fid,
        entries: &[(Vec<u8>, Child)],
    ) -> Result<(), StoreError> {
        let layout = match layout_of(self.mdts.store(at), directory)? {
            None => return Ok(()),
            Some(Ok(layout)) => layout,
            Some(Err(error)) => {
                self.fault(at, directory, format!("its stripes cannot be read: {error}"));
                return Ok(());
            }
        };
        let entry = |(name, child): &(Vec<u8>, Child)| Entry {
            at,
            directory,
            name: name.clone(),
            child: *child,
        };
        if layout.is_restriping() && !self.is_noted(at, directory)? {
            let text = "names in it are being moved, and the index of such directories lacks it";
            self.fault(at, directory, text);
        }
        match layout.holder().clone() {
            Holder::Master { stripes, .. } => {
                entries.iter().for_each(|it| self.name_of_stripe(&entry(it), &stripes));
                self.listed_stripes(at, directory, &stripes, entries);
                if let Err(error) = layout.places(b"a") {
                    self.fault(at, directory, error.to_string());
                }
                self.striped.masters.insert(directory, (at, layout));
            }
            Holder::Stripe { number } => {
                self.striped.stripes.insert(directory, (at, layout.clone()));
                for it in entries {
                    if let Ok(Some(other)) = other_stripe(&layout, number, &it.0) {
                        let text = format!("its name belongs in stripe {other}, not in {number}");
                        self.entry_fault(&entry(it), text);
                    }
                }
            }
        }
        Ok(())
    }

    fn is_noted(&self, at: usize, directory: Fid) -> Result<bool, StoreError> {
        let found = self.mdts.store(at).lookup(RESTRIPING, &fid_key(directory))?;
        Ok(found.is_some())
    }

    /// While names move, none is in both of its stripes.
    fn names_in_both(
        &mut self,
        (number, stripe): (u32, Fid),
        layout: &DirectoryLayout,
    ) -> Result<(), StoreError> {
        let (Home::Here(at), Holder::Master { stripes, .. }) =
            (self.mdts.home(stripe), layout.holder())
        else {
            return Ok(());
        };
        for (name, child) in self.entries(at, stripe)? {
            let Ok(NamePlaces { now, before }) = layout.places(&name) else { return Ok(()) };
            let other = stripes.get(now as usize).filter(|_| before == Some(number));
            let Some(other) = other.and_then(|other| self.store_of(*other).zip(Some(*other)))
            else {
                continue;
            };
            let ((_, store), other) = other;
            if store.lookup(other, &key(&name))?.is_some() {
                let entry = Entry { at, directory: stripe, name, child };
                self.entry_fault(
                    &entry,
                    format!("its name is in stripe {now}, and in {number}, too"),
                );
            }
        }
        Ok(())
    }

    /// A master has no names but those of its stripes.
    fn name_of_stripe(&mut self, entry: &Entry, stripes: &[Fid]) {
        let text = match parse_stripe_name(&entry.name) {
            None => "its name is in a striped directory, and in no stripe of that".to_owned(),
            Some((fid, _)) if fid != entry.child.fid => format!("its name is that of stripe {fid}"),
            Some((fid, number)) if stripes.get(number as usize) != Some(&fid) => {
                format!("it has the name of stripe {number}, and the directory's layout does not")
            }
            Some(_) => return,
        };
        self.entry_fault(entry, text);
    }

    /// What a master's layout lists is there once, and has its name.
    fn listed_stripes(
        &mut self,
        at: usize,
        directory: Fid,
        stripes: &[Fid],
        entries: &[(Vec<u8>, Child)],
    ) {
        let mut numbers: HashMap<Fid, usize> = HashMap::default();
        for (number, stripe) in stripes.iter().enumerate() {
            let name = stripe_name(*stripe, number as u32).into_bytes();
            let text = match numbers.insert(*stripe, number) {
                Some(other) => format!("its stripes {other} and {number} are the same"),
                None if !stripe.is_normal() => format!("its stripe {number} is lost"),
                None if !entries.iter().any(|(it, _)| *it == name) => {
                    format!("its stripe {number}, {stripe}, has no name in it")
                }
                None => continue,
            };
            self.fault(at, directory, text);
        }
    }

    /// Masters and stripes say the same of each other.
    pub(super) fn stripes(&mut self) -> Result<(), StoreError> {
        let mut striped = std::mem::take(&mut self.striped);
        for (master, (at, layout)) in &striped.masters {
            let Holder::Master { stripes, .. } = layout.holder() else { continue };
            for (number, stripe) in (0..).zip(stripes) {
                let own = striped.stripes.remove(stripe).map(|(_, own)| own);
                self.stripe(*stripe, (*at, *master, layout), (number, own))?;
                if layout.change().is_some() {
                    self.names_in_both((number, *stripe), layout)?;
                }
            }
        }
        // So that what is left has no master, but where that is on an MDT that is missing.
        for (stripe, (at, _)) in &striped.stripes {
            if self.names_on_missing(*stripe)? == 0 {
                self.fault(*at, *stripe, "it is a stripe, of no directory");
            }
        }
        self.striped = striped;
        Ok(())
    }

    fn stripe(
        &mut self,
        stripe: Fid,
        (of, master, layout): (usize, Fid, &DirectoryLayout),
        (number, own): (u32, Option<DirectoryLayout>),
    ) -> Result<(), StoreError> {
        let Home::Here(at) = self.mdts.home(stripe) else { return Ok(()) };
        let attributes = match self.mdts.store(at).recorded_attributes(stripe) {
            Ok(attributes) => attributes,
            // Its name reports that.
            Err(StoreError::NoObject(_)) => return Ok(()),
            Err(error) => return Err(error),
        };
        if !own.as_ref().is_some_and(|own| agree(layout, number, own)) {
            let is_number = |own: DirectoryLayout| *own.holder() == Holder::Stripe { number };
            let differs =
                own.as_ref().map(DirectoryLayout::is_changing) != Some(layout.is_changing());
            let text = match own.clone().is_some_and(is_number) && differs {
                true => format!(
                    "it and {master}, whose stripe {number} it is, disagree on whether names are being moved"
                ),
                false => format!("it does not say that it is stripe {number} of {master}"),
            };
            self.fault(at, stripe, text);
        }
        let (mut is_same, of_master) = (true, self.mdts.store(of).recorded_attributes(master)?);
        is_same &= rights(&attributes) == rights(&of_master);
        for name in SHARED_XATTRS.iter().filter(|_| attributes.kind == FileKind::Directory) {
            let value = self.mdts.store(at).xattr(stripe, name)?;
            is_same &= value == self.mdts.store(of).xattr(master, name)?;
        }
        if !is_same {
            self.fault(
                at,
                stripe,
                format!("its owner, mode, access lists or defaults are not {master}'s"),
            );
        }
        Ok(())
    }
}
