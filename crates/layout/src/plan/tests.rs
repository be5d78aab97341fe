//! Parsing, limits and inheritance.

use super::*;
use crate::captured::{DOM_REQUEST, OVER_REQUEST, PFL_DEFAULT, as_answered, bytes};
use sheen_types::limits::STRIPE_COUNT_MAX;
use sheen_wire::lov::CompFlags;

const OURS: Defaults = Defaults { stripe_size: 4 << 20, stripe_count: 1, first: None };
const MIB: u64 = 1 << 20;

fn part(start: u64, end: u64, stripe_size: u32, stripe_count: u16) -> Part {
    Part { start, end, striping: Striping { stripe_size, stripe_count, ..Striping::default() } }
}

fn on_mdt(end: u64) -> Part {
    let striping = Striping { on_mdt: true, stripe_size: end as u32, ..Striping::default() };
    Part { start: 0, end, striping }
}

fn parsed(parts: Vec<Part>) -> Result<Plan, Errno> {
    Plan::parse(&Plan::Composite(parts).encode())
}

fn pool(name: &str) -> PoolName {
    PoolName::new(name).unwrap()
}

#[test]
fn captured_requests_are_read_and_stored_as_they_were() {
    for request in [DOM_REQUEST, PFL_DEFAULT, OVER_REQUEST] {
        let plan = Plan::parse(&bytes(request)).unwrap();
        assert_eq!(plan.encode(), as_answered(request));
    }
    let plan = Plan::parse(&bytes(DOM_REQUEST)).unwrap();
    assert_eq!(plan, Plan::Composite(vec![on_mdt(MIB), part(MIB, END_OF_FILE, 4 << 20, 0)]));
}

#[test]
fn a_plain_request_is_stored_as_it_was_sent() {
    let plain = Striping { stripe_count: 3, first: Some(2), ..Striping::default() };
    let pooled = Striping { pool: pool("fast"), stripe_count: STRIPES_ALL, ..plain.clone() };
    let listed = Striping { osts: vec![3, 1], stripe_count: 2, ..Striping::default() };
    for striping in [plain, pooled, listed] {
        let plan = Plan::Plain(striping);
        assert_eq!(Plan::parse(&plan.encode()), Ok(plan));
    }
}

#[test]
fn components_must_adjoin_and_be_aligned() {
    let end = END_OF_FILE;
    let legal = vec![part(0, MIB, 0, 1), part(MIB, end, 0, 2)];
    assert!(parsed(legal).is_ok());
    for wrong in [
        vec![],
        vec![part(MIB, end, 0, 1)],
        vec![part(0, MIB, 0, 1), part(2 * MIB, end, 0, 1)],
        vec![part(0, 2 * MIB, 0, 1), part(MIB, end, 0, 1)],
        vec![part(0, MIB, 0, 1), part(MIB, MIB, 0, 1)],
        vec![part(0, 100_000, 0, 1)],
        vec![part(0, 1 << 63, 0, 1)],
        vec![part(0, 3 * MIB, 2 << 20, 1)],
        vec![part(0, end, 0, 1), part(end, end, 0, 1)],
        vec![part(0, MIB, 12345, 1)],
    ] {
        assert_eq!(parsed(wrong.clone()), Err(Errno::EINVAL), "{wrong:?}");
    }
}

#[test]
fn data_on_the_mdt_is_the_first_component_and_no_more() {
    assert!(parsed(vec![on_mdt(MIB)]).is_ok());
    let mut later = on_mdt(MIB);
    (later.start, later.end) = (MIB, 2 * MIB);
    let mut other_size = on_mdt(MIB);
    other_size.striping.stripe_size = 1 << 16;
    let mut pooled = on_mdt(MIB);
    pooled.striping.pool = pool("fast");
    let mut counted = on_mdt(MIB);
    counted.striping.stripe_count = 2;
    for wrong in [vec![part(0, MIB, 0, 1), later], vec![other_size], vec![pooled], vec![counted]] {
        assert_eq!(parsed(wrong.clone()), Err(Errno::EINVAL), "{wrong:?}");
    }
    let mut one = on_mdt(MIB);
    one.striping.stripe_count = 1;
    assert_eq!(parsed(vec![one]), parsed(vec![on_mdt(MIB)]));
    let alone = Plan::Plain(Striping { on_mdt: true, ..Striping::default() });
    assert_eq!(Plan::parse(&alone.encode()), Err(Errno::EINVAL));
}

#[test]
fn counts_lists_and_junk() {
    let with = |stripe_count, osts: &[u16], overstriped| {
        let osts = osts.to_vec();
        let striping = Striping { stripe_count, osts, overstriped, ..Striping::default() };
        Plan::parse(&Plan::Plain(striping).encode())
    };
    assert!(with(STRIPE_COUNT_MAX as u16, &[], true).is_ok());
    assert_eq!(with(STRIPE_COUNT_MAX as u16 + 1, &[], true), Err(Errno::EINVAL));
    for count in [STRIPES_ALL, STRIPES_PER_OST_MOST] {
        assert!(with(count, &[], true).is_ok());
    }
    assert!(with(2, &[1, 1], true).is_ok());
    assert_eq!(with(2, &[1, 1], false), Err(Errno::EINVAL));
    assert_eq!(with(3, &[1, 2], false), Err(Errno::EINVAL));
    assert_eq!(Plan::parse(&Bytes::from_static(b"junk")), Err(Errno::EINVAL));
}

#[test]
fn what_is_not_made_here_is_refused_by_name() {
    let plan = Plan::Composite(vec![part(0, END_OF_FILE, 0, 1)]);
    let Ok(LovEa::Composite(composite)) = LovEa::decode(&plan.encode()) else { panic!() };
    let refused = |change: &dyn Fn(&mut LovComp)| {
        let mut changed = composite.clone();
        change(&mut changed);
        Plan::parse(&LovEa::Composite(changed).encode())
    };
    let unmade = Err(Errno::EOPNOTSUPP);
    for flags in [CompFlags::EXTENSION, CompFlags::STALE, CompFlags::PREF_RD, CompFlags::NOSYNC] {
        assert_eq!(refused(&|layout| layout.components[0].entry.flags = flags), unmade);
    }
    assert_eq!(refused(&|layout| layout.header.mirror_count = 1), unmade);
    let compressed = LovPattern::RAID0 | LovPattern::COMPRESS;
    let pattern =
        |pattern| refused(&move |layout| layout.components[0].layout.header.pattern = pattern);
    assert_eq!(pattern(compressed), unmade);
    assert_eq!(pattern(LovPattern::RAID0 | LovPattern::RELEASED), unmade);
    assert_eq!(pattern(LovPattern::PARITY), Err(Errno::EINVAL));
    // A program that copies a file's layout claims that its components have objects.
    assert_eq!(refused(&|layout| layout.components[0].entry.flags = CompFlags::INIT), Ok(plan));
}

#[test]
fn the_limit_cuts_or_drops_what_is_on_the_mdt() {
    let rest = |start| part(start, END_OF_FILE, 4 << 20, 1);
    let plan = Plan::Composite(vec![on_mdt(8 * MIB), rest(8 * MIB)]);
    let limited = |plan: &Plan, limit| {
        let mut plan = plan.clone();
        plan.limit_on_mdt(limit).map(|()| plan)
    };
    assert_eq!(limited(&plan, 8 << 20), Ok(plan.clone()));
    let cut = Plan::Composite(vec![on_mdt(65536), rest(65536)]);
    assert_eq!(limited(&plan, 65536), Ok(cut));
    assert_eq!(limited(&plan, 0), Ok(Plan::Composite(vec![rest(0)])));
    let alone = Plan::Composite(vec![on_mdt(MIB)]);
    assert_eq!(limited(&alone, 0), Err(Errno::EFBIG));
    assert_eq!(limited(&alone, 65536), Ok(Plan::Composite(vec![on_mdt(65536)])));
}

#[test]
fn a_default_is_inherited_with_sizes_that_fit() {
    let default = Plan::parse(&bytes(PFL_DEFAULT)).unwrap();
    let plan = Plan::inherited(Some(default), None, &OURS);
    let expected = vec![
        part(0, 65536, 65536, 1),
        part(65536, MIB, 1 << 20, 2),
        part(MIB, END_OF_FILE, 4 << 20, 4),
    ];
    assert_eq!(plan, Plan::Composite(expected));
}

#[test]
fn what_a_plain_default_leaves_open_is_the_roots_and_then_ours() {
    let plain = |stripe_size, stripe_count, name: &str| {
        Plan::Plain(Striping { stripe_size, stripe_count, pool: pool(name), ..Striping::default() })
    };
    let inherited = |parent, root| Plan::inherited(parent, root, &OURS);
    assert_eq!(inherited(None, None), plain(4 << 20, 1, ""));
    assert_eq!(inherited(None, Some(plain(0, 3, "p"))), plain(4 << 20, 3, "p"));
    let parent = plain(1 << 20, 0, "");
    assert_eq!(inherited(Some(parent.clone()), Some(plain(0, 3, "p"))), plain(1 << 20, 3, "p"));
    let own_pool = plain(0, 0, "q");
    assert_eq!(inherited(Some(own_pool), Some(plain(0, 3, "p"))), plain(4 << 20, 3, "q"));
    let composite = Plan::Composite(vec![part(0, END_OF_FILE, 1 << 20, 2)]);
    assert_eq!(inherited(None, Some(composite.clone())), composite);
    assert_eq!(inherited(Some(parent), Some(composite)), plain(1 << 20, 1, ""));
}

#[test]
fn a_request_inherits_the_pool_and_nothing_else() {
    let pools = BTreeMap::from([(pool("p"), vec![0, 2])]);
    let known = KnownOsts { osts: &[0, 1, 2], pools: &pools };
    let parent = Plan::Plain(Striping {
        stripe_size: 1 << 20,
        stripe_count: 3,
        pool: pool("p"),
        ..Striping::default()
    });
    let filled = |striping: Striping| {
        let Plan::Plain(made) = Plan::Plain(striping).filled(&parent, &OURS, &known) else {
            panic!()
        };
        (made.stripe_size, made.stripe_count, made.pool)
    };
    let open = Striping::default();
    assert_eq!(filled(open.clone()), (4 << 20, 1, pool("p")));
    assert_eq!(filled(Striping { stripe_count: STRIPES_ALL, ..open.clone() }).1, 2);
    let outside = Striping { first: Some(1), ..open.clone() };
    assert_eq!(filled(outside).2, pool(""));
    assert_eq!(filled(Striping { pool: pool("ignore"), ..open.clone() }).2, pool(""));
    assert_eq!(filled(Striping { pool: pool("none"), ..open.clone() }).2, pool("p"));
    assert_eq!(filled(Striping { pool: pool("gone"), ..open }).2, pool("gone"));
}

#[test]
fn a_requested_component_has_no_more_stripes_than_room() {
    let known = KnownOsts { osts: &[], pools: &BTreeMap::new() };
    let plan = Plan::Composite(vec![part(0, 2 * MIB, 1 << 20, 9), part(2 * MIB, 4 * MIB, 0, 9)]);
    let made = plan.filled(&Plan::default(), &OURS, &known);
    assert_eq!(
        made,
        Plan::Composite(vec![part(0, 2 * MIB, 1 << 20, 2), part(2 * MIB, 4 * MIB, 4 << 20, 1)])
    );
}

#[test]
fn osts_and_pools_that_are_named_must_exist() {
    let pools = BTreeMap::from([(pool("fast"), vec![0, 2]), (pool("empty"), vec![])]);
    let known = KnownOsts { osts: &[0, 1, 2, 3], pools: &pools };
    let check = |striping: Striping| Plan::Plain(striping).check(&known);
    let open = Striping::default();
    assert_eq!(check(Striping { first: Some(3), ..open.clone() }), Ok(()));
    assert_eq!(check(Striping { first: Some(4), ..open.clone() }), Err(Errno::EINVAL));
    assert_eq!(check(Striping { osts: vec![0, 9], ..open.clone() }), Err(Errno::EINVAL));
    let fast = Striping { pool: pool("fast"), ..open.clone() };
    assert_eq!(check(Striping { first: Some(1), ..fast.clone() }), Err(Errno::EINVAL));
    assert_eq!(check(Striping { osts: vec![1], ..fast.clone() }), Err(Errno::EINVAL));
    assert_eq!(check(Striping { first: Some(2), ..fast }), Ok(()));
    let empty = Striping { pool: pool("empty"), first: Some(1), ..open };
    assert_eq!(check(empty), Ok(()));
}

#[test]
fn a_directory_keeps_its_pool_until_another_is_named() {
    let plain = |stripe_count, name: &str| {
        Plan::Plain(Striping { stripe_count, pool: pool(name), ..Striping::default() })
    };
    let old = plain(1, "p");
    assert_eq!(plain(2, "").over(Some(&old)), plain(2, "p"));
    assert_eq!(plain(2, "q").over(Some(&old)), plain(2, "q"));
    assert_eq!(plain(2, "none").over(Some(&old)), plain(2, ""));
    assert!(plain(0, "").over(Some(&old)).is_empty(), "it is taken away");
    let dom = Plan::Composite(vec![on_mdt(MIB), part(MIB, END_OF_FILE, 0, 1)]);
    let Plan::Composite(parts) = dom.over(Some(&old)) else { panic!() };
    assert_eq!((parts[0].striping.pool, parts[1].striping.pool), (pool(""), pool("p")));
}
