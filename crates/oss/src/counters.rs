//! What the OST counts, as Lustre's `obdfilter.*.stats` shows it.

use sheen_types::CounterLine;
use sheen_wire::messages::Request;

/// Bytes that a read sent.
pub(crate) const READ_BYTES: usize = 0;
/// Bytes that a write carried.
pub(crate) const WRITE_BYTES: usize = 1;
const READ: usize = 2;
const WRITE: usize = 3;
const GETATTR: usize = 4;
const SETATTR: usize = 5;
const PUNCH: usize = 6;
const SYNC: usize = 7;
const DESTROY: usize = 8;
const CREATE: usize = 9;
const STATFS: usize = 10;
const GET_INFO: usize = 11;
const SET_INFO: usize = 12;
const PREALLOC: usize = 14;

/// In Lustre's order, all that it has, since `job_stats` shows them all; there are no quotas yet.
pub(crate) static LINES: [CounterLine; 15] = [
    CounterLine::bytes("read_bytes"),
    CounterLine::bytes("write_bytes"),
    CounterLine::time("read"),
    CounterLine::time("write"),
    CounterLine::time("getattr"),
    CounterLine::time("setattr"),
    CounterLine::time("punch"),
    CounterLine::time("sync"),
    CounterLine::time("destroy"),
    CounterLine::time("create"),
    CounterLine::time("statfs"),
    CounterLine::time("get_info"),
    CounterLine::time("set_info"),
    CounterLine::time("quotactl"),
    CounterLine::time("prealloc"),
];

/// Under which line a request counts.
pub(crate) fn counter_of(request: &Request) -> Option<usize> {
    Some(match request {
        Request::OstRead(_) => READ,
        Request::OstWrite(_) => WRITE,
        Request::OstGetattr(_) => GETATTR,
        Request::OstSetattr(_) => SETATTR,
        Request::OstPunch(_) => PUNCH,
        Request::OstSync(_) => SYNC,
        Request::OstDestroy(_) => DESTROY,
        Request::OstCreate(_) => CREATE,
        Request::OstStatfs(_) => STATFS,
        Request::OstGetInfoLastId(_) | Request::OstGetInfoLastFid(_) | Request::OstGetInfo(_) => {
            GET_INFO
        }
        Request::OstSetGrantInfo(_) | Request::OstSetInfo(_) => SET_INFO,
        Request::OstFallocate(_) => PREALLOC,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_and_names_go_together() {
        for (place, name) in [
            (WRITE_BYTES, "write_bytes"),
            (READ, "read"),
            (PUNCH, "punch"),
            (STATFS, "statfs"),
            (SET_INFO, "set_info"),
            (PREALLOC, "prealloc"),
        ] {
            assert_eq!(LINES[place].name, name);
        }
    }
}
