//! What MDTs say to each other in words of ours comes back, and cut anywhere it is refused.

use sheen_types::{ChangeId, InodeBits, LogicalTime, MdtIndex, Transno, Uuid};

use sheen_types::Name;

use super::update_record::{Part, UpdateRecord};
use super::*;
use crate::md::Valid;
use crate::ost::Obdo;
use crate::text::Text;

const DIRECTORY: Fid = Fid::new(0x2_0000_0401, 7);
const INODE: Fid = Fid::new(0x2_4000_0401, 9);

fn name() -> Name {
    Name::new(b"a name").expect("legal")
}

fn attributes() -> InodeAttributes {
    let obdo = Obdo { valid: InodeAttributes::VALID, mode: 0o040_755, ..Obdo::default() };
    InodeAttributes { obdo, born: 1_700_000_000, device: 0x801 }
}

fn exclude() -> Exclude {
    let needs = NameNeeds::CHANGES | NameNeeds::INODE;
    let excluded = ExcludeName {
        directory: DIRECTORY,
        name: name(),
        needs,
        revoked: InodeBits::LOOKUP | InodeBits::UPDATE,
    };
    Exclude {
        starts: 3,
        number: 77,
        flags: ExcludeFlags::RENAMES,
        client: Uuid::new("b5a2"),
        names: vec![excluded],
        inodes: vec![ExcludeInode { fid: INODE, revoked: InodeBits::UPDATE }],
    }
}

fn part() -> SentPart {
    let updates = vec![ObjectUpdate::index_delete(DIRECTORY, &name())];
    let record = UpdateRecord {
        id: ChangeId { coordinator: MdtIndex(1), transno: Transno(5) },
        parts: vec![Part { mdt: MdtIndex(0), updates }],
        ..UpdateRecord::default()
    };
    SentPart { starts: 3, exclusion: 77, record }
}

/// Each update, and what it is read as.
fn all() -> Vec<(ObjectUpdate, Update)> {
    let (value, obdo) = (Bytes::from(vec![5; PARAM_BYTES_MAX + 1]), attributes().obdo);
    let complete = Complete { upto: Transno(9), except: vec![Transno(4), Transno(7)] };
    let release = Release { starts: 3, flags: ReleaseFlags::EARLIER, number: 77 };
    let recover = Recover { starts: 3, transno: Transno(5), offset: 9, ..Recover::default() };
    let create =
        Update::Create { fid: INODE, attributes: Box::new(attributes()), parent: DIRECTORY };
    let insert =
        Update::IndexInsert { directory: DIRECTORY, name: name(), child: INODE, mode: 0o040_000 };
    let (lov, get) = (Text::from("trusted.lov"), Text::from("trusted.link"));
    vec![
        (ObjectUpdate::create(INODE, &attributes(), DIRECTORY), create),
        (ObjectUpdate::destroy(INODE), Update::Destroy(INODE)),
        (ObjectUpdate::ref_add(INODE), Update::RefAdd(INODE)),
        (ObjectUpdate::ref_del(INODE), Update::RefDel(INODE)),
        (ObjectUpdate::attr_set(INODE, &obdo), Update::AttrSet(INODE, Box::new(obdo.clone()))),
        (
            ObjectUpdate::xattr_set(INODE, "trusted.lov", &value),
            Update::XattrSet(INODE, lov.clone(), value.clone()),
        ),
        (ObjectUpdate::xattr_del(INODE, "trusted.lov"), Update::XattrDel(INODE, lov)),
        (ObjectUpdate::index_insert(DIRECTORY, &name(), INODE, 0o040_000), insert),
        (ObjectUpdate::index_delete(DIRECTORY, &name()), Update::IndexDelete(DIRECTORY, name())),
        (
            ObjectUpdate::link_add(INODE, DIRECTORY, &name()),
            Update::LinkAdd(INODE, DIRECTORY, name()),
        ),
        (
            ObjectUpdate::link_del(INODE, DIRECTORY, &name()),
            Update::LinkDel(INODE, DIRECTORY, name()),
        ),
        (ObjectUpdate::attr_get(INODE), Update::AttrGet(INODE)),
        (ObjectUpdate::xattr_get(INODE, "trusted.link"), Update::XattrGet(INODE, get)),
        (ObjectUpdate::index_lookup(DIRECTORY, &name()), Update::IndexLookup(DIRECTORY, name())),
        (ObjectUpdate::parents(INODE), Update::Parents(INODE)),
        (ObjectUpdate::exclude(&exclude()).expect("fits"), Update::Exclude(Box::new(exclude()))),
        (ObjectUpdate::release(&release), Update::Release(release)),
        (ObjectUpdate::record(&part()).expect("fits"), Update::Record(Box::new(part()))),
        (ObjectUpdate::complete(&complete).expect("fits"), Update::Complete(complete)),
        (ObjectUpdate::recover(&recover), Update::Recover(recover)),
    ]
}

#[test]
fn what_an_update_says_comes_back() {
    for (update, said) in all() {
        let sent = encode_updates(std::slice::from_ref(&update)).expect("it fits");
        let come = decode_updates(&sent).expect("it can be read");
        assert_eq!(come, [update]);
        assert_eq!(Update::read(&come[0]), Ok(said));
    }
    let unknown = ObjectUpdate { kind: UpdateType::WRITE, ..ObjectUpdate::default() };
    assert_eq!(Update::read(&unknown), Ok(Update::Unknown(UpdateType::WRITE)));
}

#[test]
fn an_update_with_a_parameter_cut_missing_or_too_many_is_refused() {
    for (update, said) in all() {
        // A value may have any length.
        let is_value = |at: usize| matches!(said, Update::XattrSet(..)) && at >= 2;
        for (at, param) in update.params.iter().enumerate().filter(|(at, _)| !is_value(*at)) {
            for length in 0..param.len() {
                let mut cut = update.clone();
                cut.params[at] = param.slice(..length);
                assert!(Update::read(&cut).is_err(), "{said:?}: {at} cut to {length}");
            }
            let mut less = update.clone();
            less.params.truncate(at);
            assert!(Update::read(&less).is_err(), "{said:?}: {at} parameters");
        }
        let mut more = update.clone();
        more.params.push(Bytes::from_static(b"more"));
        assert!(Update::read(&more).is_err() || is_value(2), "{said:?}");
    }
}

#[test]
fn names_that_are_none_and_exclusions_without_a_number_are_refused() {
    for bad in [&b"\0"[..], b".\0", b"..\0", b"a/b\0", b"no end", &[b'a'; 300]] {
        let mut update = ObjectUpdate::index_delete(DIRECTORY, &name());
        update.params[0] = Bytes::copy_from_slice(bad);
        assert!(Update::read(&update).is_err(), "{bad:?}");
    }
    let nameless = Exclude { number: 0, ..exclude() };
    let update = ObjectUpdate::exclude(&nameless).expect("fits");
    let illegal = DecodeError::Illegal { what: "number of an exclusion", value: 0 };
    assert_eq!(Update::read(&update), Err(illegal));
}

fn excluded() -> Excluded {
    let state = InodeState::EXISTS | InodeState::EMPTY;
    let xattrs = vec![(Text::from("trusted.link"), Bytes::from_static(b"links"))];
    Excluded {
        starts: 4,
        time: LogicalTime(12),
        names: vec![NamedInode { fid: INODE, mode: 0o100_000, padding: 0 }, NamedInode::default()],
        inodes: vec![
            ExcludedInode { fid: INODE, state, attributes: attributes(), xattrs },
            ExcludedInode { fid: DIRECTORY, ..ExcludedInode::default() },
        ],
    }
}

#[test]
fn answers_come_back_and_cut_anywhere_they_are_refused() {
    let answer = excluded();
    let bytes = answer.encode().expect("it fits");
    assert_eq!(Excluded::decode(&bytes), Ok(answer.clone()));
    for length in 0..bytes.len() {
        assert!(Excluded::decode(&bytes.slice(..length)).is_err(), "{length}");
    }
    let inode = answer.inode(INODE).expect("it is there");
    assert_eq!(inode.xattr("trusted.link"), Some(&Bytes::from_static(b"links")));
    assert_eq!(inode.xattr("trusted.lov"), None);
    assert!(inode.attributes.obdo.valid.contains(Valid::MODE));
    let way = Parents { starts: 4, time: LogicalTime(12), above: vec![DIRECTORY, Fid::ROOT] };
    let bytes = way.encode().expect("it fits");
    assert_eq!(Parents::decode(&bytes), Ok(way));
    for length in 0..bytes.len() {
        assert!(Parents::decode(&bytes.slice(..length)).is_err(), "{length}");
    }
}

#[test]
fn counts_that_cannot_be_cost_nothing_and_are_refused() {
    let mut exclusion = ObjectUpdate::exclude(&exclude()).expect("fits");
    let mut complete =
        ObjectUpdate::complete(&Complete { upto: Transno(9), except: Vec::new() }).expect("fits");
    for (update, at) in [(&mut exclusion, 16), (&mut complete, 8)] {
        let mut bytes = update.params[0].to_vec();
        bytes[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
        update.params[0] = bytes.into();
        assert!(Update::read(update).is_err());
    }
    let mut bytes = excluded().encode().expect("it fits").to_vec();
    bytes[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(Excluded::decode(&bytes.into()).is_err());
}
