//! Turns, weights, lists and pools.

use super::*;
use crate::plan::STRIPES_PER_OST_MOST;

fn osts(free: &[u64]) -> Vec<Candidate> {
    let one = |(ost, free_bytes): (u16, &u64)| Candidate {
        ost,
        free_bytes: *free_bytes << 30,
        is_usable: true,
        is_degraded: false,
    };
    (0..).zip(free).map(one).collect()
}

fn striping(stripe_count: u16) -> Striping {
    Striping { stripe_count, ..Striping::default() }
}

/// A source of numbers that gives every value its share: multiples of the golden ratio.
fn random() -> impl FnMut() -> u64 {
    let mut last = 0u64;
    move || {
        last = last.wrapping_add(0x9e37_79b9_7f4a_7c15);
        last
    }
}

fn among<'a>(candidates: &'a [Candidate], pool: Option<&'a [u16]>) -> ChoiceInput<'a> {
    ChoiceInput { candidates, pool, used: &[], stripes_max: 2000 }
}

fn choose(
    balance: &mut Balance,
    osts: &[Candidate],
    pool: Option<&[u16]>,
    striping: &Striping,
    random: &mut dyn FnMut() -> u64,
) -> Result<Choice, Errno> {
    balance.choose(striping, &among(osts, pool), Weighting::default(), random)
}

fn used(choice: &Choice) -> Vec<u16> {
    let all = choice.order.iter().copied().cycle();
    all.take(choice.wanted.min(choice.order.len() * choice.per_ost)).collect()
}

#[test]
fn balanced_osts_are_used_in_turn() {
    let (mut balance, mut random) = (Balance::default(), random());
    let all = osts(&[100, 100, 95, 90]);
    let mut counts = [0; 4];
    for _ in 0..40 {
        let choice = choose(&mut balance, &all, None, &striping(1), &mut random).unwrap();
        counts[usize::from(choice.order[0])] += 1;
        assert_eq!((choice.wanted, choice.least, choice.order.len()), (1, 1, 4));
    }
    assert_eq!(counts, [10; 4]);
}

#[test]
fn files_on_all_osts_begin_on_different_ones() {
    let (mut balance, mut random) = (Balance::default(), random());
    let all = osts(&[9, 9, 9, 9]);
    let mut starts = [0; 4];
    for _ in 0..40 {
        let choice = choose(&mut balance, &all, None, &striping(STRIPES_ALL), &mut random).unwrap();
        assert_eq!(choice.wanted, 4);
        starts[usize::from(choice.order[0])] += 1;
    }
    assert_eq!(starts, [10; 4]);
}

#[test]
fn unbalanced_osts_are_used_by_their_space() {
    let (mut balance, mut random) = (Balance::default(), random());
    let all = osts(&[100, 100, 100, 10]);
    let mut counts = [0; 4];
    for _ in 0..1000 {
        let choice = choose(&mut balance, &all, None, &striping(1), &mut random).unwrap();
        counts[usize::from(choice.order[0])] += 1;
    }
    assert!(counts[3] < 80 && counts[..3].iter().all(|count| *count > 250), "{counts:?}");
}

#[test]
fn free_space_counts_against_what_was_given_lately() {
    // Of 800 files: how many the emptiest OST gets, and how many lie where the one before lies.
    let given = |percent: u32| {
        let mut balance = Balance::default();
        let weighting = Weighting { threshold: 0, free_space: percent * 256 / 100 };
        let all = osts(&[120, 40, 40, 40]);
        let mut last = 1u64;
        // Independent values, where one after the other decides.
        let mut random = || {
            last ^= last << 13;
            last ^= last >> 7;
            last ^= last << 17;
            last >> 8
        };
        let mut choose = || {
            let choice = balance.choose(&striping(1), &among(&all, None), weighting, &mut random);
            choice.unwrap().order[0]
        };
        let files: Vec<u16> = (0..800).map(|_| choose()).collect();
        let again = files.windows(2).filter(|two| two[0] == two[1]).count();
        (files.iter().filter(|ost| **ost == 0).count(), again)
    };
    let [all, usual, none] = [100, 91, 0].map(given);
    // By space alone: half of the files, and two in a row as often as at random, for one in three.
    assert!((370..=430).contains(&all.0) && (230..=300).contains(&all.1), "{all:?}");
    assert!(usual.0 < all.0 && usual.1 < all.1, "{usual:?} {all:?}");
    assert!(none.0 < usual.0 && none.1 < usual.1 * 3 / 4, "{none:?} {usual:?}");
}

#[test]
fn turns_are_kept_when_weights_are_off() {
    let (mut balance, mut random) = (Balance::default(), random());
    let all = osts(&[100, 1]);
    let off = Weighting { threshold: 256, ..Weighting::default() };
    let mut first = || {
        let choice = balance.choose(&striping(1), &among(&all, None), off, &mut random).unwrap();
        choice.order[0]
    };
    assert_eq!([first(), first(), first()], [0, 1, 0]);
}

#[test]
fn slow_osts_are_last_and_unusable_ones_have_no_weight() {
    let (mut balance, mut random) = (Balance::default(), random());
    let mut all = osts(&[100, 100, 100, 100]);
    all[0].is_degraded = true;
    for _ in 0..8 {
        let choice = choose(&mut balance, &all, None, &striping(1), &mut random).unwrap();
        assert_eq!(choice.order[3], 0);
    }
    all[1].is_usable = false;
    all[2].free_bytes = 1 << 30;
    for _ in 0..8 {
        let choice = choose(&mut balance, &all, None, &striping(2), &mut random).unwrap();
        assert_eq!(choice.order[2..], [1, 0]);
    }
}

#[test]
fn overstriping_goes_round_several_times() {
    let (mut balance, mut random) = (Balance::default(), random());
    let all = osts(&[9, 9, 9, 9]);
    let mut over = |stripe_count| {
        let striping = Striping { overstriped: true, ..striping(stripe_count) };
        choose(&mut balance, &all, None, &striping, &mut random).unwrap()
    };
    let eight = over(8);
    assert_eq!((eight.wanted, eight.per_ost), (8, 2));
    let six = over(6);
    assert_eq!((used(&six).len(), six.per_ost), (6, 2));
    assert_eq!(over(STRIPES_ALL).wanted, 4);
    assert_eq!(over(STRIPES_ALL - 1).wanted, 8);
    assert_eq!(over(STRIPES_PER_OST_MOST).wanted, 128);
    let mut plain = |count| choose(&mut balance, &all, None, &striping(count), &mut random);
    assert_eq!(plain(5).unwrap().wanted, 4);
    assert_eq!(plain(0).unwrap().wanted, 1);
}

#[test]
fn first_osts_lists_and_pools_are_obeyed() {
    let (mut balance, mut random) = (Balance::default(), random());
    let all = osts(&[9, 9, 9, 9]);
    let mut ask = |pool: Option<&[u16]>, striping: &Striping| {
        choose(&mut balance, &all, pool, striping, &mut random)
    };
    let from = ask(None, &Striping { first: Some(2), ..striping(3) }).unwrap();
    assert_eq!((from.order, from.least), (vec![2, 3, 0, 1], 3));
    let list = Striping { osts: vec![2, 3, 2, 3], ..striping(4) };
    let listed = ask(None, &list).unwrap();
    assert_eq!((listed.order, listed.wanted, listed.least), (vec![2, 3, 2, 3], 4, 4));
    let turned = ask(None, &Striping { first: Some(3), ..list.clone() }).unwrap();
    assert_eq!(turned.order, [3, 2, 3, 2]);
    assert_eq!(ask(None, &Striping { first: Some(1), ..list.clone() }), Err(Errno::EINVAL));
    assert_eq!(ask(None, &Striping { osts: vec![7], ..list }), Err(Errno::EINVAL));
    let pooled = ask(Some(&[1, 3]), &striping(STRIPES_ALL)).unwrap();
    assert_eq!((pooled.wanted, pooled.order.len()), (2, 2));
    let wide = Striping { overstriped: true, ..striping(32) };
    let four = ask(Some(&[1, 3]), &wide).unwrap();
    assert_eq!((four.wanted, four.per_ost), (32, 16));
    assert_eq!(ask(Some(&[9]), &striping(1)), Err(Errno::ENOSPC));
    let no_room = ChoiceInput { stripes_max: 0, ..among(&all, None) };
    let refused = balance.choose(&striping(1), &no_room, Weighting::default(), &mut random);
    assert_eq!(refused, Err(Errno::ERANGE));
}

#[test]
fn osts_that_hold_something_of_the_file_come_last() {
    let (mut balance, mut random) = (Balance::default(), random());
    let mut all = osts(&[9, 9, 9, 9]);
    let mut ask = |all: &[Candidate], striping: &Striping| {
        let among = ChoiceInput { used: &[3], ..among(all, None) };
        balance.choose(striping, &among, Weighting::default(), &mut random).unwrap()
    };
    // As captured: six stripes on the three OSTs that the first component is not on.
    let six = ask(&all, &Striping { overstriped: true, ..striping(6) });
    assert_eq!((six.preferred, six.per_ost, six.order[3]), (3, 2, 3));
    let from = ask(&all, &Striping { first: Some(3), ..striping(2) });
    assert_eq!((from.order, from.preferred), (vec![3, 0, 1, 2], 4));
    let from = ask(&all, &Striping { first: Some(2), ..striping(2) });
    assert_eq!((from.order, from.preferred), (vec![2, 0, 1, 3], 3));
    all[0].is_degraded = true;
    let slow = ask(&all, &striping(1));
    assert_eq!((&slow.order[2..], slow.preferred), (&[3, 0][..], 2));
}
