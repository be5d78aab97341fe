//! The path of a FID: one `MDS_GET_INFO`.

use bytes::Bytes;
use sheen_rpc::Call;
use sheen_types::limits::PATH_BYTES_MAX;
use sheen_types::{Errno, Fid};
use sheen_wire::codec::{Wire, Writer};
use sheen_wire::messages::MdsFid2path;

use super::Meta;
use crate::call;

/// The key with its NUL, filled up to a multiple of 8.
const KEY: [u8; 16] = *b"fid2path\0\0\0\0\0\0\0\0";
/// `struct getinfo_fid2path` before the path: FID, record, link, length.
const HEAD_BYTES: usize = 32;
/// Where the link is in it.
const LINK_AT: usize = 24;

impl Meta {
    /// The path of the link number `link` of `fid`, below `root`, of the first one if there are fewer;
    /// and the number of the next link if there is one. One RPC.
    pub(crate) async fn fid2path(
        &self,
        root: Fid,
        fid: Fid,
        link: u32,
    ) -> Result<(Bytes, Option<u32>), Errno> {
        let mdt = self.mdt(fid).await?;
        let mut key = Writer::default();
        key.put(&KEY);
        fid.encode(&mut key);
        u64::MAX.encode(&mut key);
        link.encode(&mut key);
        (PATH_BYTES_MAX as u32).encode(&mut key);
        root.encode(&mut key);
        let room = HEAD_BYTES + PATH_BYTES_MAX;
        let request = MdsFid2path {
            getinfo_key: key.into_bytes(),
            getinfo_vallen: room as u32,
            ..MdsFid2path::default()
        };
        let call = Call::new(request).with_reply_room(room);
        let mut path = call::call::<MdsFid2path>(&*mdt.channel, call).await?.reply.getinfo_val;
        if path.len() < HEAD_BYTES {
            return Err(Errno::EPROTO);
        }
        let next = path.get(LINK_AT..).and_then(|bytes| bytes.first_chunk());
        let next = next.map(|bytes| u32::from_le_bytes(*bytes));
        let mut path = path.split_off(HEAD_BYTES);
        let end = path.iter().position(|byte| *byte == 0).unwrap_or(path.len());
        path.truncate(end);
        // Only a larger number leads on: a server that says another would never come to an end.
        Ok((path, next.filter(|next| *next > link)))
    }
}
