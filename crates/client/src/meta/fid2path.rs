//! The path of a FID: one `MDS_GET_INFO` to each MDT that has a part of it.

use bytes::Bytes;
use sheen_io::logged;
use sheen_rpc::Call;
use sheen_types::limits::PATH_BYTES_MAX;
use sheen_types::{Errno, Fid};
use sheen_wire::codec::{ByteOrder, Reader, Wire, Writer};
use sheen_wire::messages::MdsFid2path;

use super::Meta;
use crate::call::{self, Refused};

/// The key with its NUL, filled up to a multiple of 8.
const KEY: [u8; 16] = *b"fid2path\0\0\0\0\0\0\0\0";
/// `struct getinfo_fid2path` before the path: FID, record, link, length.
const HEAD_BYTES: usize = 32;
/// Where the link is in it.
const LINK_AT: usize = 24;

/// MDTs that are asked for one path at most: each adds at least one name.
const PARTS_MAX: usize = PATH_BYTES_MAX / 2;

/// What an MDT says of a path.
struct PathPart {
    path: Bytes,
    /// The directory that the path begins in, and whose own path is to be asked of its MDT.
    above: Option<Fid>,
    /// The number of the next link.
    next: Option<u32>,
}

impl Meta {
    /// The path of the link number `link` of `fid`, below `root`, of the first one if there are fewer;
    /// and the number of the next link if there is one. One RPC, and one for each time that it leads from one MDT to
    /// another.
    pub(crate) async fn fid2path(
        &self,
        root: Fid,
        fid: Fid,
        link: u32,
    ) -> Result<(Bytes, Option<u32>), Errno> {
        let part = self.path_part(root, fid, link).await?;
        let (mut path, mut above) = (part.path.to_vec(), part.above);
        for _ in 0..PARTS_MAX {
            let Some(directory) = above else {
                // Only a larger number leads on: a server that says another would never come to an end.
                return Ok((path.into(), part.next.filter(|next| *next > link)));
            };
            // A directory has one name.
            let front = self.path_part(root, directory, u32::MAX).await?;
            if !front.path.is_empty() {
                path.splice(0..0, front.path.iter().copied().chain([b'/']));
            }
            if path.len() > PATH_BYTES_MAX {
                return Err(Errno::EOVERFLOW);
            }
            above = front.above;
        }
        Err(Errno::EREMOTE)
    }

    async fn path_part(&self, root: Fid, fid: Fid, link: u32) -> Result<PathPart, Errno> {
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
        match call::call_with_refusal::<MdsFid2path>(&*mdt.channel, call).await {
            Ok(answer) => part(answer.reply.getinfo_val, false),
            // The path begins in a directory of another MDT.
            Err(Refused { errno: Errno::EREMOTE, reply: Some(reply) }) => {
                part(reply.getinfo_val, true).map_err(|_| Errno::EREMOTE)
            }
            Err(Refused { errno, .. }) => Err(errno),
        }
    }
}

/// Reads an answer, `struct getinfo_fid2path`; if it `goes_on`, its FID is that of the directory above.
fn part(answer: Bytes, goes_on: bool) -> Result<PathPart, Errno> {
    if answer.len() < HEAD_BYTES {
        return Err(Errno::EPROTO);
    }
    let above = Fid::decode(&mut Reader::new(&answer, ByteOrder::Little));
    let above =
        above.map_err(logged!(Errno::EPROTO, "an MDT's answer about a path cannot be read"))?;
    if goes_on && !above.is_of_mdt() {
        return Err(Errno::EPROTO);
    }
    let next = answer.get(LINK_AT..).and_then(|bytes| bytes.first_chunk());
    let next = next.map(|bytes| u32::from_le_bytes(*bytes));
    let mut path = answer.slice(HEAD_BYTES..);
    let end = path.iter().position(|byte| *byte == 0).unwrap_or(path.len());
    path.truncate(end);
    Ok(PathPart { path, above: goes_on.then_some(above), next })
}

#[cfg(test)]
mod tests {
    use sheen_wire::messages::{MdsFid2pathReply, Request};

    use super::*;
    use crate::testing::Fixture;

    const FILE: Fid = Fid::new(0x2_0000_0403, 0x236);
    const M1: Fid = Fid::new(0x2_4000_0403, 0x349);
    const W: Fid = Fid::new(0x2_0000_0403, 1);

    fn answer(fid: Fid, link: u32, path: &[u8]) -> MdsFid2pathReply {
        let mut value = Writer::default();
        fid.encode(&mut value);
        u64::MAX.encode(&mut value);
        link.encode(&mut value);
        4096u32.encode(&mut value);
        value.put(path);
        value.put(&[0; 8]);
        MdsFid2pathReply { getinfo_val: value.into_bytes(), ..Default::default() }
    }

    /// The FID and the number of the link that a request is about.
    fn asked(request: &Request) -> (Fid, u32) {
        let Request::MdsFid2path(request) = request else { panic!("{request:?}") };
        let key = request.getinfo_key.slice(KEY.len()..);
        let mut key = Reader::new(&key, ByteOrder::Little);
        let fid = Fid::decode(&mut key).expect("a FID");
        u64::decode(&mut key).expect("a record");
        (fid, u32::decode(&mut key).expect("a link"))
    }

    /// As captured in d1.
    #[test]
    fn a_path_goes_on_at_the_mdt_of_the_directory_above() {
        let fixture = Fixture::new();
        let second = fixture.add_mdt().mdt;
        let files = fixture.files.clone();
        let path = move || {
            let files = files.clone();
            async move { files.fid2path(FILE, 0).await }
        };
        fixture.mdt.refuse_with(Errno::EREMOTE, answer(M1, 1, b"f"));
        second.refuse_with(Errno::EREMOTE, answer(W, u32::MAX, b"dn/m1"));
        fixture.mdt.answer(answer(Fid::ROOT, u32::MAX, b"w"));
        let found = fixture.world.run(path()).map(|(path, next)| (path.to_vec(), next));
        assert_eq!(found, Ok((b"w/dn/m1/f".to_vec(), Some(1))));
        let is_path = |request: &&Request| matches!(request, Request::MdsFid2path(_));
        let (first, second_asked) = (fixture.mdt.take_asked(), second.take_asked());
        let of = |all: &[Request]| all.iter().filter(is_path).map(asked).collect::<Vec<_>>();
        assert_eq!(of(&first), [(FILE, 0), (W, u32::MAX)]);
        assert_eq!(of(&second_asked), [(M1, u32::MAX)]);

        // Below the root itself.
        fixture.mdt.refuse_with(Errno::EREMOTE, answer(Fid::ROOT, 0, b"f"));
        fixture.mdt.answer(answer(Fid::ROOT, u32::MAX, b""));
        let found = fixture.world.run(path()).map(|(path, next)| (path.to_vec(), next));
        assert_eq!(found, Ok((b"f".to_vec(), None)));

        // A refusal that names nothing, and MDTs that name each other without end.
        fixture.mdt.refuse(Errno::EREMOTE);
        assert_eq!(fixture.world.run(path()).err(), Some(Errno::EREMOTE));
        fixture.mdt.refuse_with(Errno::EREMOTE, answer(Fid::new(1, 1), 0, b"f"));
        assert_eq!(fixture.world.run(path()).err(), Some(Errno::EREMOTE));
        for _ in 0..3000 {
            fixture.mdt.refuse_with(Errno::EREMOTE, answer(M1, 0, b"dir"));
            second.refuse_with(Errno::EREMOTE, answer(W, 0, b"dir"));
        }
        assert_eq!(fixture.world.run(path()).err(), Some(Errno::EOVERFLOW));
    }
}
