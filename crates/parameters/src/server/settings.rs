//! The settings of MDTs and OSTs, and the state that Lustre shows beside them.

use std::sync::Arc;

use sheen_assembly::{Role, TargetLabel};
use sheen_control::Tree;
use sheen_mds::{Mdt, OstView, RestripeSettings};
use sheen_oss::{GrantView, Ost};
use sheen_types::access::RootSquash;
use sheen_types::limits::BULK_BYTES_MAX;
use sheen_types::{Errno, TargetName};
use sheen_wire::checksum::Checksum;
use sheen_wire::connect::ChecksumTypes;

use super::values;
use crate::HostedTarget;
use crate::folder::{Folder, Number, Switch};

/// `OBD_MAX_RIF_MAX`: most requests of a client at once.
const MODIFYING_MAX: u64 = 512;

/// How many changes each client that connects may have under way.
const MODIFYING: Number<HostedTarget> = Number {
    leaf: "max_mod_rpcs_in_flight",
    parse: values::number_of_any_base,
    range: 1..=MODIFYING_MAX,
    read: |it| it.served.target.offer().maxmodrpcs.into(),
    write: |it, count| it.served.target.change_offer(|offer| offer.maxmodrpcs = count as u16),
};

/// Adds what the role of a target has of its own.
pub(super) fn add(tree: &Tree, root: &str, one: &Arc<HostedTarget>) {
    match &one.served.role {
        Role::Mgs(_) => return,
        Role::Mdt(mdt) => {
            add_mdt(tree, root, mdt);
            Folder::new(tree, root).switches(mdt, &MDT_SWITCHES);
            add_data(tree, root, mdt);
            add_restripe(tree, root, mdt);
            let reader = Arc::clone(mdt);
            add_grants(tree, root, move || reader.grant_view());
            if let TargetLabel::Target(name) = &one.served.kind {
                add_osts(tree, name, mdt);
            }
        }
        Role::Ost(ost) => {
            add_sequences(tree, root, ost);
            add_known_mdts(tree, root, ost);
            Folder::new(tree, root).switches(ost, &OST_SWITCHES);
            let reader = Arc::clone(ost);
            add_grants(tree, root, move || reader.grant_view());
        }
    }
    tree.add(&format!("{root}.checksum_type"), checksums);
    match &one.served.role {
        Role::Ost(_) => add_brw_size(tree, root, one),
        Role::Mdt(_) => Folder::new(tree, root).numbers(one, &[MODIFYING]),
        Role::Mgs(_) => {}
    }
}

/// The largest bulk that clients which connect may send.
fn add_brw_size(tree: &Tree, root: &str, one: &Arc<HostedTarget>) {
    let (reader, writer) = (Arc::clone(one), Arc::clone(one));
    tree.add_writable(
        &format!("{root}.brw_size"),
        move || (u64::from(reader.served.target.offer().brw_size) / values::MIB).to_string(),
        move |text| {
            let bytes = values::bytes(text, values::MIB)? / values::MIB * values::MIB;
            let bytes = values::within(bytes, values::MIB, BULK_BYTES_MAX as u64)?;
            writer.served.target.change_offer(|offer| offer.brw_size = bytes as u32);
            Ok(())
        },
    );
}

/// The checksums of data that a server agrees to, the preferred one in brackets.
fn checksums() -> String {
    let names = [(ChecksumTypes::ADLER, "adler"), (ChecksumTypes::CRC32C, "crc32c")];
    let names = names.into_iter().filter(|(one, _)| Checksum::OFFERED.contains(*one));
    let best = Checksum::choose(Checksum::OFFERED);
    let shown = names.map(|(one, name)| match Checksum::choose(one) == best {
        true => format!("[{name}]"),
        false => name.to_owned(),
    });
    shown.collect::<Vec<_>>().join(" ")
}

/// What is promised to clients, what of it they have accepted, and what is on its way to the disk.
fn add_grants(
    tree: &Tree,
    root: &str,
    view: impl Fn() -> GrantView + Clone + Send + Sync + 'static,
) {
    type Read = fn(&GrantView) -> u64;
    let shown: [(&str, Read); 3] = [
        ("tot_granted", |view| view.total),
        ("tot_dirty", |view| view.dirty),
        ("tot_pending", |view| view.pending),
    ];
    for (leaf, read) in shown {
        let view = view.clone();
        tree.add(&format!("{root}.{leaf}"), move || read(&view()).to_string());
    }
}

/// What operators may say about who is root on an MDT.
fn add_mdt(tree: &Tree, root: &str, mdt: &Arc<Mdt>) {
    type Value = (&'static str, fn(&RootSquash) -> String, values::SetSquash);
    let settings: [Value; 2] = [
        ("root_squash", RootSquash::root, RootSquash::set_root),
        ("nosquash_nids", RootSquash::trusted, RootSquash::set_trusted),
    ];
    for (leaf, read, write) in settings {
        let (reader, writer) = (Arc::clone(mdt), Arc::clone(mdt));
        tree.add_writable(
            &format!("{root}.{leaf}"),
            move || read(&reader.root_squash()),
            move |text| writer.change_root_squash(|squash| write(squash, text)),
        );
    }
    let reader = Arc::clone(mdt);
    tree.add(&format!("{root}.identity"), move || reader.identity().to_string());
    let (reader, writer) = (Arc::clone(mdt), Arc::clone(mdt));
    tree.add_writable(
        &format!("{root}.enable_cap_mask"),
        move || reader.capability_mask().to_string(),
        move |text| writer.set_capability_mask(text),
    );
    let (reader, writer) = (Arc::clone(mdt), Arc::clone(mdt));
    tree.add_writable(
        &format!("{root}.enable_strict_som"),
        move || u8::from(reader.vouches_for_sizes()).to_string(),
        move |text| writer.set_vouches_for_sizes(values::switch(text)?),
    );
    let (reader, writer) = (Arc::clone(mdt), Arc::clone(mdt));
    tree.add_writable(
        &format!("{root}.enable_remote_dir_gid"),
        // With a sign: -1 are all groups.
        move || reader.remote_directories_gid().cast_signed().to_string(),
        move |text| {
            let gid = i32::try_from(values::signed_of_any_base(text)?);
            writer.set_remote_directories_gid(gid.map_err(|_| Errno::ERANGE)?.cast_unsigned());
            Ok(())
        },
    );
}

/// When directories are split, and how.
fn add_restripe(tree: &Tree, root: &str, mdt: &Arc<Mdt>) {
    type Value =
        (&'static str, fn(&RestripeSettings) -> u64, fn(&mut RestripeSettings, &str) -> Set);
    type Set = Result<(), Errno>;
    let settings: [Value; 2] = [
        ("dir_split_count", RestripeSettings::split_count, |settings, text| {
            settings.set_split_count(values::bytes(text, 1)?)
        }),
        (
            "dir_split_delta",
            |settings| settings.split_delta().into(),
            |settings, text| settings.set_split_delta(values::number_of_any_base(text)?),
        ),
    ];
    for (leaf, read, write) in settings {
        let (reader, writer) = (Arc::clone(mdt), Arc::clone(mdt));
        tree.add_writable(
            &format!("{root}.{leaf}"),
            move || read(&reader.restripe_settings()).to_string(),
            move |text| writer.change_restripe_settings(|settings| write(settings, text)),
        );
    }
    let reader = Arc::clone(mdt);
    tree.add_writable(
        &format!("{root}.dir_restripe_nsonly"),
        move || u8::from(reader.restripes_names_only()).to_string(),
        // Inodes are moved by a migration alone.
        |text| if values::switch(text)? { Ok(()) } else { Err(Errno::EOPNOTSUPP) },
    );
}

/// What operators may forbid on an MDT, and whether opens bring data.
const MDT_SWITCHES: [Switch<Mdt>; 8] = [
    ("readonly", Mdt::is_read_only, Mdt::set_read_only),
    ("no_create", Mdt::refuses_directories, Mdt::refuse_directories),
    ("enable_remote_dir", Mdt::makes_remote_directories, Mdt::make_remote_directories),
    ("enable_striped_dir", Mdt::makes_striped_directories, Mdt::make_striped_directories),
    ("enable_dir_migration", Mdt::migrates_directories, Mdt::migrate_directories),
    ("enable_dir_restripe", Mdt::restripes_directories, Mdt::restripe_directories),
    ("enable_dir_auto_split", Mdt::splits_directories, Mdt::split_directories),
    ("dom_read_open", Mdt::reads_on_open, Mdt::set_reads_on_open),
];

/// What operators may say about an OST's disks.
const OST_SWITCHES: [Switch<Ost>; 4] = [
    ("degraded", Ost::is_degraded, Ost::set_degraded),
    // Its current name, and the former one.
    ("no_create", Ost::refuses_files, Ost::refuse_files),
    ("no_precreate", Ost::refuses_files, Ost::refuse_files),
    ("readonly", Ost::is_read_only, Ost::set_read_only),
];

/// What operators may say about data on an MDT.
fn add_data(tree: &Tree, root: &str, mdt: &Arc<Mdt>) {
    let (reader, writer) = (Arc::clone(mdt), Arc::clone(mdt));
    tree.add_writable(
        &format!("{root}.dom_lock"),
        move || values::dom_lock_text(reader.dom_lock()).to_owned(),
        move |text| {
            writer.set_dom_lock(values::dom_lock(text)?);
            Ok(())
        },
    );
}

/// How far objects are made in each sequence.
fn add_sequences(tree: &Tree, root: &str, ost: &Arc<Ost>) {
    let reader = Arc::clone(ost);
    tree.add(&format!("{root}.last_id"), move || match reader.last_ids() {
        Ok(all) => all.iter().map(|(sequence, last)| format!("{sequence:#x}:{last}\n")).collect(),
        Err(error) => error.to_string(),
    });
    let reader = Arc::clone(ost);
    tree.add(&format!("{root}.seqs_allocated"), move || {
        reader.last_ids().map_or_else(|error| error.to_string(), |all| all.len().to_string())
    });
}

/// Whose objects an OST holds, and which MDT it refuses for that; an administrator may say otherwise.
fn add_known_mdts(tree: &Tree, root: &str, ost: &Arc<Ost>) {
    let (reader, writer) = (Arc::clone(ost), Arc::clone(ost));
    let read = move || {
        let refused = reader.refused_mdt().map(|mdt| format!("refused {mdt}\n"));
        match reader.known_mdts() {
            Ok(all) => all.iter().map(|mdt| format!("{mdt}\n")).chain(refused).collect(),
            Err(error) => error.to_string(),
        }
    };
    tree.add_writable(&format!("{root}.mdt_identity"), read, move |text| {
        writer.bind_mdt(&text.parse()?)
    });
}

/// The OSTs of an MDT, as they are at each reading.
fn add_osts(tree: &Tree, name: &TargetName, mdt: &Arc<Mdt>) {
    let lod = format!("lod.{name}-mdtlov");
    type Read = fn(&[OstView]) -> usize;
    let shown: [(&str, Read); 2] = [
        ("numobd", |osts| osts.len()),
        ("activeobd", |osts| osts.iter().filter(|ost| is_active(ost)).count()),
    ];
    for (leaf, read) in shown {
        let reader = Arc::clone(mdt);
        tree.add(&format!("{lod}.{leaf}"), move || read(&reader.osts()).to_string());
    }
    let (reader, fsname) = (Arc::clone(mdt), name.fsname.clone());
    tree.add(&format!("{lod}.target_obd"), move || {
        let line = |ost: &OstView| {
            let state = if is_active(ost) { "ACTIVE" } else { "INACTIVE" };
            format!("{0}: {fsname}-OST{0:04x}_UUID {state}\n", ost.index)
        };
        reader.osts().iter().map(line).collect()
    });
}

/// Whether the MDT may use the OST, and is connected to it.
pub(crate) fn is_active(ost: &OstView) -> bool {
    ost.is_active && ost.state == sheen_rpc::ImportState::Full
}
