//! Where each transfer of a rank lies.
//!
//! A file is made of segments; in a shared one each segment has a block of each rank, in a rank's own file
//! one block. A rank goes through the segments, and through its block of each in transfers. All of it is
//! computed as it is needed; with `-z` a rank keeps 8 bytes for each transfer of a block.

use super::params::Params;
use crate::backend::room;
use crate::pattern::Chance;

/// One rank's way through a file.
pub(super) struct Course {
    block: u64,
    transfer: u64,
    segments: u64,
    /// Bytes from one segment of the file to the next.
    segment_stride: u64,
    /// Where this rank's block of a segment begins.
    block_start: u64,
    /// With `-z`: where in a segment the transfers lie.
    shuffled: Option<Vec<u64>>,
    /// With `-z -z`: blocks of the file, and what decides which.
    anywhere: Option<Anywhere>,
}

struct Anywhere {
    blocks: u64,
    chance: Chance,
    now: u64,
    /// The last block comes first, so that the file has its size.
    last_first: bool,
}

impl Course {
    /// The way of `rank` through its own file or the shared one; `size` is that of the file if it is there.
    ///
    /// # Errors
    /// The line for the user: there is no memory for a random order of so many transfers.
    pub(super) fn new(
        params: &Params,
        rank: usize,
        seed: u32,
        size: u64,
        writes: bool,
    ) -> Result<Self, String> {
        let (tasks, per_rank) = (params.tasks as u64, params.file_per_rank);
        let expected = params.block * params.segments * if per_rank { 1 } else { tasks };
        let anywhere = (params.random_offset > 1).then(|| Anywhere {
            blocks: (if writes { expected } else { size } / params.block).max(1),
            chance: Chance::new(u64::from(seed) << 32 | rank as u64),
            now: 0,
            last_first: writes && (per_rank || rank == 0),
        });
        let is_shuffled = params.random_offset == 1;
        Ok(Self {
            block: params.block,
            transfer: params.transfer,
            segments: params.segments,
            segment_stride: params.block * if per_rank { 1 } else { tasks },
            block_start: if per_rank { 0 } else { params.block * rank as u64 },
            shuffled: is_shuffled.then(|| shuffled(params, rank, seed)).transpose()?,
            anywhere,
        })
    }

    /// Transfers in a segment.
    pub(super) fn in_segment(&self) -> u64 {
        self.shuffled.as_ref().map_or(self.block / self.transfer, |all| all.len() as u64)
    }

    /// Transfers of the whole file.
    pub(super) fn transfers(&self) -> u64 {
        self.in_segment() * self.segments
    }

    /// Where the transfer `number` lies. Numbers beyond the last begin anew. Those of one segment must be
    /// asked for in order, for the sake of `-z -z`.
    #[inline]
    pub(super) fn offset(&mut self, number: u64) -> u64 {
        let in_segment = self.in_segment();
        let (segment, within) = (number / in_segment % self.segments, number % in_segment);
        if let Some(shuffled) = &self.shuffled {
            return segment * self.segment_stride + shuffled[within as usize];
        }
        if let Some(anywhere) = &mut self.anywhere {
            if within == 0 {
                anywhere.now = match anywhere.last_first && number == 0 {
                    true => anywhere.blocks - 1,
                    false => anywhere.chance.below(anywhere.blocks),
                };
            }
            return anywhere.now * self.block + within * self.transfer;
        }
        segment * self.segment_stride + self.block_start + within * self.transfer
    }
}

/// The transfers of one segment that are this rank's: of its own file all, of a shared one those that
/// chance gives it. All ranks draw the same lots, so each transfer is one rank's.
fn shuffled(params: &Params, rank: usize, seed: u32) -> Result<Vec<u64>, String> {
    let transfers = |bytes: u64| (0..bytes / params.transfer).map(|at| at * params.transfer);
    let own = u64::from(seed) << 32 | rank as u64;
    // Of a shared file a rank gets about as many as of its own.
    let mut all = room(params.block / params.transfer)?;
    if params.file_per_rank {
        all.extend(transfers(params.block));
    } else {
        let (tasks, mut lots) = (params.tasks as u64, Chance::new(u64::from(seed)));
        let mine = |_: &u64| lots.below(tasks) == rank as u64;
        all.extend(transfers(params.block * tasks).filter(mine));
    }
    Chance::new(own).shuffle(&mut all);
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offsets(params: &Params, rank: usize) -> Vec<u64> {
        let mut course = Course::new(params, rank, 5, params.total(), true).unwrap();
        (0..course.transfers()).map(|number| course.offset(number)).collect()
    }

    fn params() -> Params {
        let (block, transfer, segments) = (4096, 1024, 3);
        Params { block, transfer, segments, tasks: 4, ..Params::default() }
    }

    #[test]
    fn blocks_of_ranks_lie_side_by_side_in_each_segment() {
        let second = offsets(&params(), 1);
        assert_eq!(second[..5], [4096, 5120, 6144, 7168, 4096 + 16_384]);
        let own = offsets(&Params { file_per_rank: true, ..params() }, 1);
        assert!(own.into_iter().eq((0..12).map(|at| at * 1024)));
    }

    #[test]
    fn whatever_the_order_each_transfer_is_made_once() {
        for random_offset in [0, 1] {
            for file_per_rank in [false, true] {
                let params = Params { random_offset, file_per_rank, ..params() };
                let ranks = if file_per_rank { 1 } else { 4 };
                let mut all: Vec<u64> =
                    (0..ranks).flat_map(|rank| offsets(&params, rank)).collect();
                let in_order = all.is_sorted();
                all.sort_unstable();
                let count = if file_per_rank { 12 } else { 48 };
                assert!(all.into_iter().eq((0..count).map(|at| at * 1024)));
                assert_eq!(in_order, random_offset == 0 && file_per_rank);
            }
        }
    }

    #[test]
    fn random_blocks_lie_in_the_file_and_the_last_is_among_them() {
        let params = Params { random_offset: 2, ..params() };
        let first = offsets(&params, 0);
        assert_eq!(first[..4], [45_056, 46_080, 47_104, 48_128]);
        assert!(offsets(&params, 3).iter().all(|at| *at < 49_152));
    }
}
