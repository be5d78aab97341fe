//! Which stripe of a directory has a name (Lustre: `lmv_name_to_stripe_index`).

use std::fmt;
use std::num::{NonZeroU32, NonZeroU64};

use sheen_wire::lmv::LmvHash;

use super::temporary::{SuffixRule, hashed_part};

/// `LMV_CRUSH_PG_COUNT`: so many groups of names, each of which `crush` puts into a stripe as a whole.
const CRUSH_GROUPS: u64 = 4096;
/// What Jenkins' hash of two numbers begins with (`crush_hash_seed`), and what it mixes in.
const CRUSH_SEED: u32 = 1_315_423_911;
const CRUSH_MIXED_IN: [u32; 2] = [231_232, 1232];

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

/// No stripe can be found by this hash: its type is unknown here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownHash(pub LmvHash);

impl fmt::Display for UnknownHash {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "unknown hash type {:#x} of a striped directory", self.0.0)
    }
}

impl std::error::Error for UnknownHash {}

/// The stripe, of so many, that has `name`. What the flags of `hash` say is not looked at.
///
/// # Errors
/// [`UnknownHash`], unless there is only one stripe.
pub fn stripe_of(hash: LmvHash, stripes: NonZeroU32, name: &[u8]) -> Result<u32, UnknownHash> {
    if stripes.get() == 1 {
        return Ok(0);
    }
    Ok(match hash.without_flags() {
        LmvHash::ALL_CHARS => sum_of_bytes(name) % stripes,
        LmvHash::FNV_1A_64 => (fnv_1a_64(name) % NonZeroU64::from(stripes)) as u32,
        LmvHash::CRUSH => longest_straw(hashed_part(name, SuffixRule::Crush), stripes),
        LmvHash::CRUSH2 => longest_straw(hashed_part(name, SuffixRule::Crush2), stripes),
        _ => return Err(UnknownHash(hash)),
    })
}

fn sum_of_bytes(name: &[u8]) -> u32 {
    name.iter().fold(0, |sum: u32, byte| sum.wrapping_add(u32::from(*byte)))
}

fn fnv_1a_64(name: &[u8]) -> u64 {
    name.iter().fold(FNV_OFFSET, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(FNV_PRIME))
}

/// Each stripe draws a straw for the name's group, and the longest one has it; of equal ones the first. So a stripe more
/// takes names from each of them, and moves none between them.
fn longest_straw(name: &[u8], stripes: NonZeroU32) -> u32 {
    let group = (fnv_1a_64(name) % CRUSH_GROUPS) as u32;
    (0..stripes.get()).rev().max_by_key(|stripe| straw(group, *stripe)).unwrap_or(0)
}

/// Jenkins' hash of two numbers.
fn straw(group: u32, stripe: u32) -> u32 {
    let [first, last] = CRUSH_MIXED_IN;
    let [group, stripe, length] = mix([group, stripe, CRUSH_SEED ^ group ^ stripe]);
    let [_, _, length] = mix([first, group, length]);
    let [_, _, length] = mix([stripe, last, length]);
    length
}

/// Jenkins' mix of three numbers.
fn mix([mut a, mut b, mut c]: [u32; 3]) -> [u32; 3] {
    for [right, left, last] in [[13, 8, 13], [12, 16, 5], [3, 10, 15]] {
        a = a.wrapping_sub(b).wrapping_sub(c) ^ (c >> right);
        b = b.wrapping_sub(c).wrapping_sub(a) ^ (a << left);
        c = c.wrapping_sub(a).wrapping_sub(b) ^ (b >> last);
    }
    [a, b, c]
}
