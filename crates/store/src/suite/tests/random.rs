//! Random sequences against the model.

use std::sync::Arc;

use bytes::Bytes;
use proptest::{prelude::*, test_runner::TestRunner};
use sheen_types::Fid;

use crate::suite::{Make, model::Model, script};
use crate::{Attributes, Store, Transaction};

fn runner(cases: u32) -> TestRunner {
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    TestRunner::new(config)
}

/// Random transactions have the model's answers and the model's effect, with commits between.
pub fn random_transactions_match_the_model(make: Make<'_>) {
    let step = proptest::collection::vec(any::<u64>(), 1..6);
    let steps = proptest::collection::vec((step, 0..20u8), 1..60);
    let outcome = runner(24).run(&steps, |steps| {
        let store = make();
        let mut model = Model::default();
        for (choices, extra) in steps {
            let transaction = script::transaction(&choices);
            let expected = model.apply(&transaction);
            let found = store.apply(transaction).map(|_| ());
            prop_assert_eq!(found, expected);
            match extra {
                0 => drop(store.commit()),
                1..=2 => store.commit_soon(),
                3 => model.compare(&*store, &script::objects(), &script::indexes()),
                4 => compare_scans(&model, &store, choices[0]),
                _ => {}
            }
        }
        model.compare(&*store, &script::objects(), &script::indexes());
        store.commit().expect("commit works");
        model.compare(&*store, &script::objects(), &script::indexes());
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}

/// Short scans from any key find what a long one finds.
fn compare_scans(model: &Model, store: &Arc<dyn Store>, choice: u64) {
    for index in script::indexes() {
        let from = Bytes::from(format!("{:x}", choice % script::KEYS));
        let limit = (choice / 16 % 5) as usize;
        let found = store.scan(index, &from, limit).expect("scan works");
        let expected: Vec<_> = model
            .keys
            .range((index, from)..)
            .take_while(|((at, _), _)| *at == index)
            .take(limit)
            .map(|((_, key), value)| (key.clone(), value.clone()))
            .collect();
        let found: Vec<_> = found.into_iter().map(|entry| (entry.key, entry.value)).collect();
        assert_eq!(found, expected, "scan of {index}");
    }
}

/// Sizes of the random data tests.
const SPAN: u64 = 200_000;

/// Random writes, truncations and punches match a plain array.
pub fn random_data_matches_the_model(make: Make<'_>) {
    let step = (0..8u8, 0..SPAN, 0..60_000u64, any::<u8>());
    let steps = proptest::collection::vec(step, 1..40);
    let outcome = runner(24).run(&steps, |steps| {
        let store = make();
        let fid = Fid::new(0x2_0000_0400, 77);
        let mut create = Transaction::new();
        create.create(fid, Attributes::default());
        store.apply(create).expect("create works");
        let mut model: Vec<u8> = Vec::new();
        for (what, offset, length, fill) in steps {
            data_step(&*store, fid, &mut model, (what, offset, length, fill));
            let size = store.attributes(fid).expect("object is there").size;
            prop_assert_eq!(size, model.len() as u64);
        }
        let all = store.read(fid, 0, model.len() + 10).expect("read works");
        prop_assert!(all == model, "data differs");
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}

fn data_step(store: &dyn Store, fid: Fid, model: &mut Vec<u8>, step: (u8, u64, u64, u8)) {
    let (what, offset, length, fill) = step;
    let (start, end) = (offset as usize, (offset + length) as usize);
    match what {
        0..=3 => {
            let half = length as usize / 2;
            let pieces = [vec![fill; half].into(), vec![!fill; length as usize - half].into()];
            store.write(fid, offset, &pieces).expect("write works");
            if length > 0 {
                model.resize(model.len().max(end), 0);
                model[start..start + half].fill(fill);
                model[start + half..end].fill(!fill);
            }
        }
        4 => {
            store.truncate(fid, offset).expect("truncate works");
            model.resize(start, 0);
        }
        5 => {
            store.punch(fid, offset, length).expect("punch works");
            let size = model.len();
            model[start.min(size)..end.min(size)].fill(0);
        }
        6 => {
            store.allocate(fid, offset, length, fill % 2 == 0).expect("allocate works");
            if fill % 2 != 0 && length > 0 {
                model.resize(model.len().max(end), 0);
            }
        }
        _ => {
            let found = store.read(fid, offset, length as usize).expect("read works");
            let size = model.len();
            assert!(found == model[start.min(size)..end.min(size)], "read at {offset} differs");
        }
    }
}
