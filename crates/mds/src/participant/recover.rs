//! What another MDT that has started anew is answered: the records of changes that name it.

use std::sync::Arc;

use bytes::Bytes;
use sheen_io::logged;
use sheen_target::{Incarnation, Target};
use sheen_types::{ChangeId, Errno};
use sheen_wire::out::{
    ChangeUnderWay, Complete, RECOVERED_BYTES_MAX, RecordPiece, Recover, Recovered,
};
use sheen_wire::update_record::UpdateRecord;

/// As many records as one answer has room for, behind what the MDT has already, and of those changes that are `under_way` by which
/// exclusion on it. From now on nothing is applied that an earlier start of it has sent.
///
/// # Errors
/// [`Errno::E2BIG`] for a record that no answer can say.
pub(super) fn answer(
    target: &Target,
    asking: Incarnation,
    asked: &Recover,
    under_way: impl Fn(ChangeId) -> Option<u64>,
) -> Result<Recovered, Errno> {
    let mut records = target.answer_recover(asking);
    records.retain(|record| record.id > asked.after());
    records.sort_by_key(|record| record.id);
    let said = pieces(target.incarnation().starts, &records, asked.offset, RECOVERED_BYTES_MAX)?;
    let own = |piece: &&RecordPiece| piece.id.coordinator == target.mdt_index();
    let under_way = said.pieces.iter().filter(own).filter_map(|piece| {
        let exclusion = under_way(piece.id)?;
        Some(ChangeUnderWay { transno: piece.id.transno, exclusion })
    });
    let under_way = under_way.collect();
    let sheen_target::Completion { upto, except } = target.completed();
    Ok(Recovered { complete: Complete { upto, except }, under_way, ..said })
}

fn pieces(
    starts: u32,
    records: &[Arc<UpdateRecord>],
    mut offset: u32,
    mut room: usize,
) -> Result<Recovered, Errno> {
    let mut said = Recovered { starts, ..Recovered::default() };
    for record in records {
        let whole: Bytes = record
            .encode()
            .map_err(logged!(Errno::E2BIG, "an update record is larger than a message"))?;
        let total = u32::try_from(whole.len())
            .map_err(logged!(Errno::E2BIG, "an update record is larger than a message"))?;
        // Of another record than is asked for, as that is complete now.
        let from = if offset < total { offset } else { 0 };
        let left = whole.slice(from as usize..);
        if left.len() > room && !said.pieces.is_empty() {
            said.has_more = true;
            break;
        }
        let bytes = left.slice(..left.len().min(room));
        room -= bytes.len();
        let is_cut = bytes.len() < left.len();
        said.pieces.push(RecordPiece { id: record.id, total, offset: from, bytes });
        if is_cut {
            said.has_more = true;
            break;
        }
        offset = 0;
    }
    Ok(said)
}

#[cfg(test)]
mod tests {
    use sheen_types::{LogicalTime, MdtIndex, Transno};
    use sheen_wire::out::ObjectUpdate;
    use sheen_wire::update_record::Part;

    use super::*;
    use crate::coordinator::RecordsBeingRead;

    fn record(transno: u64, bytes: usize) -> Arc<UpdateRecord> {
        let long = ObjectUpdate { params: vec![vec![7; bytes].into()], ..ObjectUpdate::default() };
        Arc::new(UpdateRecord {
            id: ChangeId { coordinator: MdtIndex(1), transno: Transno(transno) },
            time: LogicalTime(transno),
            parts: vec![Part { mdt: MdtIndex(0), updates: vec![long] }],
            ..UpdateRecord::default()
        })
    }

    /// Reads all, in answers of so many bytes; how many those were.
    fn read(records: &[Arc<UpdateRecord>], room: usize) -> (Vec<UpdateRecord>, usize) {
        let mut reading = RecordsBeingRead::default();
        for answers in 1.. {
            let asked = reading.next(5);
            let mut left = records.to_vec();
            left.retain(|record| record.id > asked.after());
            let said = pieces(2, &left, asked.offset, room).expect("it fits");
            if !reading.add(said).expect("it is sound") {
                return (reading.into_records(), answers);
            }
        }
        unreachable!()
    }

    #[test]
    fn records_come_whole_in_answers_of_any_length() {
        let records: Vec<_> = [10, 4_000, 100, 300].into_iter().enumerate().collect();
        let records: Vec<_> =
            records.into_iter().map(|(at, bytes)| record(at as u64 + 1, bytes)).collect();
        let all: Vec<_> = records.iter().map(|record| UpdateRecord::clone(record)).collect();
        assert_eq!(read(&records, 1 << 20), (all.clone(), 1));
        assert_eq!(read(&records, 1_000), (all.clone(), 6));
        assert_eq!(read(&records, 100).0, all);
        assert_eq!(read(&[], 100), (Vec::new(), 1));
    }

    #[test]
    fn a_record_that_goes_while_it_is_read_is_left_out() {
        let records = [record(1, 500), record(2, 700)];
        let mut reading = RecordsBeingRead::default();
        let said = pieces(2, &records, reading.next(5).offset, 100).expect("it fits");
        assert_eq!(reading.add(said), Ok(true));
        assert_eq!(reading.next(5).offset, 100);
        // The next one, from there.
        let said = pieces(2, &records[1..], 100, 1 << 20).expect("it fits");
        assert_eq!(reading.add(said), Ok(true), "it is asked for again");
        let asked = reading.next(5);
        assert_eq!((asked.after(), asked.offset), (ChangeId::default(), 0));
        let said = pieces(2, &records[1..], 0, 1 << 20).expect("it fits");
        assert_eq!(reading.add(said), Ok(false));
        assert_eq!(reading.into_records(), [UpdateRecord::clone(&records[1])]);
        // One that never comes to an end.
        let mut reading = RecordsBeingRead::default();
        let endless = Recovered { has_more: true, ..Recovered::default() };
        assert_eq!(reading.add(endless), Err(Errno::EPROTO));
    }
}
