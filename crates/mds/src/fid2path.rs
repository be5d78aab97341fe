//! MDS_GET_INFO: the path of a FID.

use bytes::Bytes;
use sheen_target::Outcome;
use sheen_types::limits::{PATH_BYTES_MAX, XATTR_VALUE_BYTES_MAX};
use sheen_types::{Errno, Fid};
use sheen_wire::codec::{ByteOrder, DecodeError, Reader, Wire, Writer};
use sheen_wire::messages::{MdsFid2path, MdsFid2pathReply, MdsGetInfo};

use crate::Mdt;

/// The key's text with its NUL, rounded up to 8 bytes.
const KEY_BYTES: usize = 16;
/// Directories deeper than this are no path.
const DEPTH_MAX: usize = PATH_BYTES_MAX / 2;

/// The request (`struct getinfo_fid2path`).
struct Fid2PathRequest {
    fid: Fid,
    record: u64,
    link: u32,
    length: u32,
    root: Fid,
}

fn parse_request(key: &Bytes) -> Result<Fid2PathRequest, DecodeError> {
    let mut reader = Reader::new(key, ByteOrder::Little);
    reader.bytes(KEY_BYTES, "getinfo_key")?;
    let fid = Fid::decode(&mut reader)?;
    let record = u64::decode(&mut reader)?;
    let link = u32::decode(&mut reader)?;
    let length = u32::decode(&mut reader)?;
    let root = if reader.remaining() >= Fid::SIZE { Fid::decode(&mut reader)? } else { Fid::ROOT };
    Ok(Fid2PathRequest { fid, record, link, length, root })
}

fn answer(asked: &Fid2PathRequest, from: Fid, link: u32, path: &[u8]) -> MdsFid2pathReply {
    let mut writer = Writer::default();
    from.encode(&mut writer);
    asked.record.encode(&mut writer);
    link.encode(&mut writer);
    asked.length.encode(&mut writer);
    writer.put(path);
    writer.zeros(asked.length as usize - path.len());
    let getinfo_val = writer.into_bytes();
    MdsFid2pathReply { getinfo_val, ..MdsFid2pathReply::default() }
}

impl Mdt {
    /// Follows link EAs up to the root. The answer says which link was used, or the next one if
    /// there are more.
    pub(crate) fn fid2path(&self, request: &MdsFid2path) -> Result<Outcome, Errno> {
        let asked = parse_request(&request.getinfo_key).map_err(|error| {
            tracing::warn!(%error, "undecodable request for a path");
            Errno::EPROTO
        })?;
        if asked.length as usize > XATTR_VALUE_BYTES_MAX {
            return Err(Errno::EOVERFLOW);
        }
        let root = if asked.root.is_zero() { Fid::ROOT } else { asked.root };
        let (path, above) = match self.path(asked.fid, root, asked.link as usize) {
            // It does not lead through the mounted directory: answered with where it ends.
            Err(Errno::ENOENT) if root != Fid::ROOT => {
                let answer = answer(&asked, Fid::ROOT, asked.link, b"");
                return Ok(Outcome::failed(Errno::ENOENT, answer));
            }
            path => path?,
        };
        if path.len() >= asked.length as usize {
            return Err(Errno::ERANGE);
        }
        let links = self.links(asked.fid)?.entries.len();
        let more = (asked.link as usize).saturating_add(1) < links;
        let next = asked.link.wrapping_add(more.into());
        // Where the path begins: of one that comes from another MDT, the directory there.
        Ok(match above {
            Some(above) => Outcome::failed(Errno::EREMOTE, answer(&asked, above, next, &path)),
            None => Outcome::ok(answer(&asked, root, next, &path)),
        })
    }

    /// Other keys have no answer here.
    pub(crate) fn get_info(&self, _: &MdsGetInfo) -> Result<Outcome, Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    /// The path from `root`, or from a directory of another MDT, which is named.
    pub(crate) fn path(
        &self,
        fid: Fid,
        root: Fid,
        link: usize,
    ) -> Result<(Vec<u8>, Option<Fid>), Errno> {
        self.inode(fid)?;
        let mut names: Vec<Bytes> = Vec::new();
        let (mut at, mut which) = (fid, link);
        let mut steps = 0;
        while at != root {
            // Of each directory its name, and maybe that of its stripe.
            steps += 1;
            if at == Fid::ROOT || steps > 2 * DEPTH_MAX {
                return Err(Errno::ENOENT);
            }
            if self.is_remote(at) {
                names.reverse();
                return Ok((names.join(&b'/'), Some(at)));
            }
            let mut links = self.links(at)?.entries;
            if links.is_empty() {
                return Err(if names.is_empty() { Errno::ENODATA } else { Errno::ENOENT });
            }
            // A number that no link has stands for any.
            let entry = links.swap_remove(if which < links.len() { which } else { 0 });
            // The name of a stripe in its master is none to programs.
            if self.master_of(at)?.is_none() {
                names.push(entry.name);
            }
            (at, which) = (entry.parent, 0);
        }
        names.reverse();
        Ok((names.join(&b'/'), None))
    }
}
