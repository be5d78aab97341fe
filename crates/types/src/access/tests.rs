//! The rule, line by line.

use super::*;

#[derive(Clone, Default)]
struct Someone {
    uid: u32,
    groups: Vec<u32>,
    capabilities: Vec<Capability>,
}

impl Subject for Someone {
    fn uid(&self) -> u32 {
        self.uid
    }

    fn is_in_group(&self, group: u32) -> bool {
        self.groups.contains(&group)
    }

    fn can(&self, capability: Capability) -> bool {
        self.capabilities.contains(&capability)
    }
}

fn someone(uid: u32, groups: &[u32]) -> Someone {
    Someone { uid, groups: groups.to_vec(), capabilities: Vec::new() }
}

fn able(capability: Capability) -> Someone {
    Someone { uid: 99, groups: vec![99], capabilities: vec![capability] }
}

/// Owned by user 1, group 1.
fn file(mode: u32) -> Guarded<'static> {
    Guarded { mode, uid: 1, gid: 1, is_directory: false, list: None }
}

fn directory(mode: u32) -> Guarded<'static> {
    Guarded { is_directory: true, ..file(mode) }
}

fn lines(text: &[(Whom, u32)]) -> Result<AccessList, AccessListError> {
    AccessList::new(text.iter().map(|(whom, may)| AccessLine { whom: *whom, may: May(*may) }))
}

fn list(text: &[(Whom, u32)]) -> AccessList {
    lines(text).unwrap()
}

use Whom::{Group, Mask, NamedGroup, Other, Owner, User};

#[test]
fn the_first_class_that_fits_decides() {
    let odd = file(0o147);
    assert!(!odd.permits(&someone(1, &[1]), May::READ), "the owner gets the owner's bits only");
    assert!(odd.permits(&someone(2, &[5, 1]), May::READ));
    assert!(!odd.permits(&someone(2, &[1]), May::WRITE));
    assert!(odd.permits(&someone(2, &[2]), May::READ.and(May::WRITE)));
}

#[test]
fn capabilities_reach_as_far_as_they_do() {
    use Capability::{DacOverride, DacReadSearch};
    assert!(file(0).permits(&able(DacOverride), May::READ.and(May::WRITE)));
    assert!(!file(0o644).permits(&able(DacOverride), May::EXEC), "no user may execute it");
    assert!(file(0o100).permits(&able(DacOverride), May::EXEC));
    assert!(directory(0).permits(&able(DacOverride), May::EXEC.and(May::WRITE)));
    assert!(file(0).permits(&able(DacReadSearch), May::READ));
    assert!(!file(0o711).permits(&able(DacReadSearch), May::READ.and(May::EXEC)));
    assert!(directory(0).permits(&able(DacReadSearch), May::READ.and(May::EXEC)));
    assert!(!directory(0o755).permits(&able(DacReadSearch), May::WRITE));
    assert!(!file(0).permits(&able(Capability::FileOwner), May::READ));
}

#[test]
fn lines_count_in_their_order() {
    let rules = list(&[
        (Owner, 6),
        (User(7), 7),
        (Group, 4),
        (NamedGroup(20), 2),
        (NamedGroup(30), 6),
        (Mask, 6),
        (Other, 1),
    ]);
    let file = Guarded { list: Some(&rules), ..file(0o661) };
    let both = May::READ.and(May::WRITE);
    assert!(file.permits(&someone(7, &[]), both));
    assert!(!file.permits(&someone(7, &[]), May::EXEC), "the mask cuts");
    assert!(file.permits(&someone(8, &[1]), May::READ));
    assert!(!file.permits(&someone(8, &[1, 20]), both), "no single line gives both");
    assert!(file.permits(&someone(8, &[1, 20]), May::WRITE), "another line does");
    assert!(file.permits(&someone(8, &[1, 30]), both));
    assert!(!file.permits(&someone(8, &[20]), May::EXEC), "a member is not of the class other");
    assert!(file.permits(&someone(8, &[9]), May::EXEC));
    assert!(!file.permits(&someone(1, &[30]), May::EXEC), "the owner's bits alone count");
}

#[test]
fn a_mode_without_group_bits_makes_the_list_silent() {
    let rules = list(&[(Owner, 7), (User(7), 7), (Group, 7), (Mask, 0), (Other, 4)]);
    let file = Guarded { list: Some(&rules), ..file(0o704) };
    assert!(file.permits(&someone(7, &[]), May::READ), "as one of the class other");
    assert!(!file.permits(&someone(7, &[1]), May::READ));
    assert!(!file.asks_list(7));
}

#[test]
fn any_user_may_what_no_line_denies() {
    let all = |guarded: &Guarded<'_>| guarded.permits_all(Audience::AnyUser, May::EXEC);
    assert!(all(&directory(0o711)));
    for mode in [0o701, 0o611, 0o710, 0o700] {
        assert!(!all(&directory(mode)), "{mode:o}");
    }
    let open = [(Owner, 7), (User(7), 5), (Group, 5), (NamedGroup(9), 1), (Mask, 5), (Other, 1)];
    for (closed, at) in [(false, 0), (true, 1), (true, 2), (true, 3), (true, 4), (true, 5)] {
        let mut text = open;
        if closed {
            text[at].1 &= !1;
        }
        let rules = list(&text);
        let mode = rules.mode();
        assert_eq!(all(&Guarded { list: Some(&rules), ..directory(mode) }), !closed, "{at}");
    }
}

#[test]
fn one_user_may_what_no_group_of_theirs_could_deny() {
    let may = |guarded: &Guarded<'_>, uid| guarded.permits_all(Audience::User(uid), May::EXEC);
    assert!(may(&directory(0o700), 1) && may(&directory(0), 0));
    assert!(!may(&directory(0o077), 1));
    assert!(!may(&directory(0o701), 2), "they could be in the group");
    assert!(may(&directory(0o711), 2));
    let rules = list(&[(Owner, 0), (User(7), 1), (User(8), 0), (Group, 0), (Mask, 1), (Other, 1)]);
    let guarded = Guarded { list: Some(&rules), ..directory(0o011) };
    assert!(may(&guarded, 7) && !may(&guarded, 8) && !may(&guarded, 9));
}

#[test]
fn the_deciding_group_makes_the_difference() {
    let rules = list(&[
        (Owner, 6),
        (Group, 4),
        (NamedGroup(20), 2),
        (NamedGroup(30), 7),
        (Mask, 7),
        (Other, 0),
    ]);
    let file = Guarded { list: Some(&rules), ..file(0o670) };
    let deciding = |groups: &[u32], wanted| file.deciding_group(8, groups, wanted);
    assert_eq!(deciding(&[1, 20, 30], May::WRITE), Some(20));
    assert_eq!(deciding(&[1, 20, 30], May::EXEC), Some(30));
    assert_eq!(deciding(&[1, 20], May::EXEC), Some(1), "so that they are not of the class other");
    assert_eq!(deciding(&[5], May::READ), None);
    assert_eq!(directory(0o750).deciding_group(8, &[5, 1], May::READ), Some(1));
    // With the deciding group alone, the answer is that of all groups.
    for groups in [&[1, 20, 30][..], &[20, 30], &[1, 20], &[20], &[5], &[]] {
        for wanted in (0..8).map(May) {
            let alone: Vec<u32> = deciding(groups, wanted).into_iter().collect();
            assert_eq!(
                file.permits(&someone(8, groups), wanted),
                file.permits(&someone(8, &alone), wanted),
                "{groups:?} {wanted:?}"
            );
        }
    }
}

#[test]
fn only_legal_lists_are_lists() {
    let plain = [(Owner, 7), (Group, 5), (Other, 1)];
    assert!(list(&plain).is_plain());
    assert_eq!(lines(&plain[..2]), Err(AccessListError), "other is missing");
    assert_eq!(lines(&[(Group, 5), (Owner, 7), (Other, 1)]), Err(AccessListError));
    assert_eq!(lines(&[(Owner, 7), (Owner, 7), (Group, 5), (Other, 1)]), Err(AccessListError));
    assert_eq!(lines(&[(Owner, 8), (Group, 5), (Other, 1)]), Err(AccessListError));
    let named = [(Owner, 7), (User(3), 7), (Group, 5), (Other, 1)];
    assert_eq!(lines(&named), Err(AccessListError), "without a mask");
    let whole = [(Owner, 7), (User(3), 7), (Group, 5), (NamedGroup(4), 1), (Mask, 3), (Other, 1)];
    let rules = list(&whole);
    let back: Vec<_> = rules.lines().map(|line| (line.whom, line.may.0)).collect();
    assert_eq!(back, whole);
    assert_eq!(rules.mode(), 0o731);
}

#[test]
fn a_mode_and_a_list_change_each_other() {
    let rules = list(&[(Owner, 7), (User(3), 7), (Group, 5), (Mask, 7), (Other, 5)]);
    let changed = rules.clone().with_mode(0o640);
    assert_eq!(
        changed,
        list(&[(Owner, 6), (User(3), 7), (Group, 5), (Mask, 4), (Other, 0)]),
        "the group's own line stays"
    );
    let born = rules.inherited(0o664);
    assert_eq!(born, list(&[(Owner, 6), (User(3), 7), (Group, 5), (Mask, 6), (Other, 4)]));
    let plain = list(&[(Owner, 7), (Group, 5), (Other, 5)]).inherited(0o622);
    assert_eq!(plain.mode(), 0o600);
    let plain = list(&[(Owner, 7), (Group, 5), (Other, 5)]).with_mode(0o222);
    assert_eq!(plain.mode(), 0o222);
}
