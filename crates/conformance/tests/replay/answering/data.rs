//! Bulk data of the captured servers: what they sent is sent again, and what they fetched is
//! fetched from our client and compared.

use std::sync::Arc;

use bytes::Bytes;
use sheen_conformance::rpc::Rpc;
use sheen_node::net::{Delivery, LNet};
use sheen_rpc::bulk_portal;
use sheen_types::{MatchBits, Nid};
use sheen_wire::checksum::Checksum;
use sheen_wire::lnet::Portal;
use sheen_wire::md::Valid;
use sheen_wire::messages::{Reply, Request};
use sheen_wire::ost::{ObdoFlags, OstBody};

use crate::compare::Difference;
use crate::script::Exchange;

/// Bytes of a bulk that one LNet message takes.
const PART_BYTES: u32 = 1 << 20;

/// The data of one request.
pub(super) struct Bulk {
    client: Nid,
    portal: Portal,
    /// The first part's.
    bits: u64,
    /// What was captured: to be sent, or as it should come.
    captured: Vec<Bytes>,
    /// Bytes to fetch; 0 for a request that does not write, or holds its data itself.
    fetch: u32,
    /// Bytes that are read: ours may ask for fewer of a page.
    wanted: usize,
    /// The checksum that was asked for.
    checksum: Option<Checksum>,
    place: String,
}

/// The bulk of a captured request; of what was written at once the ranges that ours writes, if it has them all.
pub(super) fn sent(exchange: &Exchange, ours: &Request) -> Vec<(u64, Bytes)> {
    let parts = || {
        let (Request::OstWrite(real), Request::OstWrite(ours)) = (&exchange.request.typed, ours)
        else {
            return None;
        };
        let data = exchange.bulk.iter().map(|(_, data)| &data[..]).collect::<Vec<_>>().concat();
        let (mut at, mut found) = (0, Vec::new());
        for range in &real.niobuf_remote {
            let end = at + range.len as usize;
            if ours.niobuf_remote.iter().any(|it| (it.offset, it.len) == (range.offset, range.len))
            {
                found.push((0, Bytes::copy_from_slice(data.get(at..end)?)));
            }
            at = end;
        }
        (found.len() == ours.niobuf_remote.len()).then_some(found)
    };
    parts().unwrap_or_else(|| exchange.bulk.clone())
}

impl Bulk {
    /// What belongs to the request `ours`, which is answered as the one at `place`, of which `captured` was sent.
    pub(super) fn of(
        delivery: &Delivery,
        ours: &Rpc<Request>,
        captured: &[(u64, Bytes)],
        place: String,
    ) -> Self {
        let mut wanted = usize::MAX;
        let (body, fetch, inline) = match &ours.typed {
            Request::OstWrite(write) if write.short_io.is_empty() => {
                let lengths = write.niobuf_remote.iter().map(|range| range.len);
                (Some(&write.ost_body), lengths.sum(), None)
            }
            Request::OstWrite(write) => (Some(&write.ost_body), 0, Some(write.short_io.clone())),
            Request::MdsBatch(batch) => {
                let lengths = batch.but_update_buf.iter().map(|buffer| buffer.size);
                (None, lengths.sum(), None)
            }
            Request::OstRead(read) => {
                wanted = read.niobuf_remote.iter().map(|range| range.len as usize).sum();
                (Some(&read.ost_body), 0, None)
            }
            _ => (None, 0, None),
        };
        let summed = body.filter(|body| body.oa.valid.contains(Valid::CKSUM));
        let captured = match inline {
            Some(data) => vec![data],
            None => captured.iter().map(|(_, data)| data.clone()).collect(),
        };
        let last = match ours.body.match_bits.0 {
            0 => delivery.bits.0,
            bits => bits,
        };
        let parts = u64::from(fetch.div_ceil(PART_BYTES)).max(captured.len() as u64).max(1);
        Self {
            client: delivery.from,
            portal: bulk_portal(ours.body.opcode),
            bits: (last + 1).saturating_sub(parts),
            captured,
            fetch,
            wanted,
            checksum: summed.and_then(|body| body.oa.flags.checksum()),
            place,
        }
    }

    /// None, to or from `client`.
    pub(super) fn none(client: Nid) -> Self {
        Self {
            client,
            portal: Portal::MDS_BULK,
            bits: 0,
            captured: Vec::new(),
            fetch: 0,
            wanted: usize::MAX,
            checksum: None,
            place: String::new(),
        }
    }

    /// The client's data.
    pub(super) async fn fetched(&self, lnet: &Arc<LNet>) -> Option<Vec<Bytes>> {
        let (mut came, mut left) = (Vec::new(), self.fetch);
        while left > 0 {
            let (bits, length) = (MatchBits(self.bits + came.len() as u64), left.min(PART_BYTES));
            let part = lnet.get(self.client, self.portal, bits, length).await;
            came.push(part.ok()?);
            left -= length;
        }
        Some(came)
    }

    /// Moves the data and puts its checksum into the answer. What is different in data that came.
    pub(super) async fn moved(&self, lnet: &Arc<LNet>, reply: &mut Reply) -> Option<Difference> {
        let bits = |part: usize| MatchBits(self.bits + part as u64);
        let came = self.fetched(lnet).await?;
        match reply {
            Reply::OstRead(read) => {
                read.short_io.truncate(self.wanted);
                let inline = vec![read.short_io.clone()];
                let data = if self.captured.is_empty() { &inline } else { &self.captured };
                self.sum(&mut read.ost_body, data);
            }
            Reply::OstWrite(write) => {
                let data = if self.fetch == 0 { &self.captured } else { &came };
                self.sum(&mut write.ost_body, data);
            }
            _ => {}
        }
        if self.fetch == 0 {
            if !matches!(reply, Reply::OstWrite(_)) {
                for (part, data) in self.captured.iter().enumerate() {
                    lnet.put(self.client, self.portal, bits(part), 0, vec![data.clone()]);
                }
            }
            return None;
        }
        let (real, ours) = (self.captured.concat(), came.concat());
        (real != ours).then(|| Difference {
            message: "OST_BRW_WRITE".to_owned(),
            field: "bulk (file data)".to_owned(),
            real: format!("{} bytes", real.len()),
            ours: format!("{} bytes", ours.len()),
            place: self.place.clone(),
        })
    }

    /// The captured client agreed on kinds of checksums that ours does not know.
    fn sum(&self, body: &mut Option<OstBody>, data: &[Bytes]) {
        const KINDS: ObdoFlags =
            ObdoFlags::CKSUM_CRC32.union(ObdoFlags::CKSUM_ADLER).union(ObdoFlags::CKSUM_CRC32C);
        if let (Some(checksum), Some(body)) = (self.checksum, body) {
            body.oa.flags = body.oa.flags.without(KINDS) | ObdoFlags::of_checksum(checksum);
            body.oa.valid |= Valid::CKSUM;
            body.oa.nlink = checksum.of(data);
        }
    }
}
