//! Reading a configuration log from the MGS, block by block (Lustre: mgc, `llog_client.c`).

use bytes::Bytes;
use sheen_llog::{LogError, LogRecord};
use sheen_rpc::{Call, Channel};
use sheen_types::Errno;
use sheen_wire::llog::{LlogContext, LlogFlags, LlogLogHdr, LlogdBody};
use sheen_wire::messages::{
    LlogOriginHandleCreate, LlogOriginHandleNextBlock, LlogOriginHandleReadHeader,
};
use sheen_wire::text::Text;

use crate::call;

/// Bytes of a block: what Lustre's logs are made of.
const BLOCK_BYTES: u32 = 8192;
/// Records of one log that we read; the bitmap of a header has room for fewer.
const RECORDS_MAX: u32 = 1 << 17;

/// All configuration records of the log `name` (`FSNAME-client`, `params`), in order. One RPC to open
/// it, one for its header, one for each block.
///
/// # Errors
/// `ENOENT` if there is no such log; `EPROTO` for bytes that are none.
pub async fn read_log(mgs: &dyn Channel, name: &str) -> Result<Vec<LogRecord>, Errno> {
    let request = LlogOriginHandleCreate {
        llogd_body: LlogdBody { context: LlogContext::CONFIG_ORIG, ..LlogdBody::default() },
        name: Some(Text::from(name)),
        mdt_body: Some(Default::default()),
        ..LlogOriginHandleCreate::default()
    };
    let opened = call::call::<LlogOriginHandleCreate>(mgs, Call::new(request)).await?;
    let mut at = call::need(opened.reply.llogd_body)?;
    at.context = LlogContext::CONFIG_ORIG;
    at.flags = LlogFlags::IS_PLAIN;
    let request = LlogOriginHandleReadHeader {
        llogd_body: at.clone(),
        ..LlogOriginHandleReadHeader::default()
    };
    let call = Call::new(request).with_reply_room(BLOCK_BYTES as usize);
    let header = call::call::<LlogOriginHandleReadHeader>(mgs, call).await?.reply.llog_log_hdr;
    let header = call::need(header)?;
    let mut records = Vec::new();
    let Some(last) = last_used(&header) else { return Ok(records) };
    // Record 0 is the header itself.
    at.index = 1;
    at.offset = BLOCK_BYTES.into();
    while at.index <= last {
        let block = read_block(mgs, &mut at).await?;
        let next = take_records(&block, at.index, &header, &mut records).map_err(|error| {
            tracing::warn!(log = name, %error, "configuration log is damaged");
            Errno::EPROTO
        })?;
        // What fills a block up has an index, too, and is no record.
        let next = next.max(at.saved_index.saturating_add(1));
        if next <= at.index {
            return Err(Errno::EPROTO);
        }
        at.index = next;
    }
    Ok(records)
}

async fn read_block(mgs: &dyn Channel, at: &mut LlogdBody) -> Result<Bytes, Errno> {
    at.length = BLOCK_BYTES;
    let request = LlogOriginHandleNextBlock {
        llogd_body: at.clone(),
        ..LlogOriginHandleNextBlock::default()
    };
    let call = Call::new(request).with_reply_room(BLOCK_BYTES as usize);
    let reply = call::call::<LlogOriginHandleNextBlock>(mgs, call).await?.reply;
    let reached = call::need(reply.llogd_body)?;
    if reply.eadata.len() > BLOCK_BYTES as usize {
        return Err(Errno::EPROTO);
    }
    at.saved_index = reached.saved_index;
    // Blocks start at multiples of their size, wherever in the last one the log ends.
    at.offset = reached.offset / u64::from(BLOCK_BYTES) * u64::from(BLOCK_BYTES);
    Ok(reply.eadata)
}

/// The last record in use; `None` if there is only the header.
fn last_used(header: &LlogLogHdr) -> Option<u32> {
    // By words: an MDT asks every few seconds, and nearly all of them are 0.
    let words = header.bitmap.iter().take(RECORDS_MAX as usize / 32).enumerate();
    let (word, bits) = words.rev().find(|(_, bits)| **bits != 0)?;
    let last = word as u32 * 32 + bits.ilog2();
    (last > 0).then_some(last)
}

/// Takes the records of a block from number `wanted` on; answers the number behind the last.
fn take_records(
    block: &Bytes,
    wanted: u32,
    header: &LlogLogHdr,
    records: &mut Vec<LogRecord>,
) -> Result<u32, LogError> {
    let mut next = wanted;
    for record in LogRecord::from_block(block)? {
        // Each number counts once, so there are no more records than numbers.
        let is_new = record.index >= next;
        next = next.max(record.index.saturating_add(1));
        if is_new && header.is_used(record.index) {
            records.push(record);
        }
    }
    Ok(next)
}

#[cfg(test)]
mod tests {
    use sheen_llog::ConfigLog;
    use sheen_wire::llog::{LlogHeaderFixed, LlogLogid, LlogRecTail};
    use sheen_wire::messages::{
        LlogOriginHandleCreateReply, LlogOriginHandleNextBlockReply,
        LlogOriginHandleReadHeaderReply, Request,
    };
    use sheen_wire::mgs::{ConfigCommand, LustreCfg};

    use super::*;
    use crate::testing::{FakeMdt, TestWorld};

    #[test]
    fn the_last_record_is_the_highest_bit() {
        let header = |bitmap: Vec<u32>| LlogLogHdr {
            fixed: LlogHeaderFixed::default(),
            bitmap,
            tail: LlogRecTail::default(),
        };
        assert_eq!(last_used(&header(vec![])), None);
        assert_eq!(last_used(&header(vec![1, 0])), None);
        assert_eq!(last_used(&header(vec![0b110, 0])), Some(2));
        assert_eq!(last_used(&header(vec![1, 0, 1 << 31, 0])), Some(95));
        assert_eq!(last_used(&header(vec![u32::MAX; 4097])), Some(RECORDS_MAX - 1));
    }

    fn record(index: u32, text: &str) -> Vec<u8> {
        let config = LustreCfg::new(ConfigCommand::SET_PARAM, &[text]);
        LogRecord { index, config }.to_bytes().to_vec()
    }

    fn block(records: &[Vec<u8>]) -> Bytes {
        let mut bytes = records.concat();
        bytes.resize(BLOCK_BYTES as usize, 0);
        bytes.into()
    }

    fn log(bitmap: u32, blocks: Vec<(u32, Bytes)>) -> Result<Vec<String>, Errno> {
        let mgs = FakeMdt::new();
        let logid = LlogLogid { id: 3, seq: 10, ogen: 0 };
        let body = LlogdBody { logid, ..LlogdBody::default() };
        let opened = LlogOriginHandleCreateReply { llogd_body: Some(body), ..Default::default() };
        mgs.answer(opened);
        let header = LlogLogHdr {
            fixed: LlogHeaderFixed::default(),
            bitmap: vec![bitmap],
            tail: LlogRecTail::default(),
        };
        let llog_log_hdr = Some(header);
        mgs.answer(LlogOriginHandleReadHeaderReply { llog_log_hdr, ..Default::default() });
        for (wanted, eadata) in blocks {
            mgs.expect(move |request| {
                let Request::LlogOriginHandleNextBlock(request) = request else {
                    panic!("expected a block to be asked for")
                };
                assert_eq!((request.llogd_body.index, request.llogd_body.logid.id), (wanted, 3));
                let llogd_body = Some(request.llogd_body.clone());
                let reply =
                    LlogOriginHandleNextBlockReply { llogd_body, eadata, ..Default::default() };
                Ok(reply.into())
            });
        }
        TestWorld::new(1).run(async move {
            let records = read_log(&*mgs, "fs-client").await?;
            assert!(mgs.is_done());
            let text =
                |record: &LogRecord| String::from_utf8_lossy(record.config.text(0)).into_owned();
            Ok(records.iter().map(text).collect())
        })
    }

    #[test]
    fn records_in_use_come_in_order_and_once() {
        // The second block begins with a record that the first had already; 2 is cancelled.
        let first = block(&[record(1, "a=1"), record(2, "b=2"), record(3, "c=3")]);
        let second = block(&[record(3, "c=3"), record(4, "d=4")]);
        assert_eq!(
            log(0b11011, vec![(1, first), (4, second)]),
            Ok(vec!["a=1".to_owned(), "c=3".to_owned(), "d=4".to_owned()])
        );
        assert_eq!(log(0b1, vec![]), Ok(vec![]));
    }

    #[test]
    fn what_fills_a_block_up_is_passed_over() {
        let mut written = ConfigLog::new(0);
        let text = "x".repeat(1000);
        for _ in 0..20 {
            written.append(LustreCfg::new(ConfigCommand::SET_PARAM, &[&text])).unwrap();
        }
        let mgs = FakeMdt::new();
        let llogd_body = Some(LlogdBody::default());
        mgs.answer(LlogOriginHandleCreateReply { llogd_body, ..Default::default() });
        let llog_log_hdr = Some(written.header());
        mgs.answer(LlogOriginHandleReadHeaderReply { llog_log_hdr, ..Default::default() });
        for _ in 0..3 {
            let written = written.clone();
            mgs.expect(move |request| {
                let Request::LlogOriginHandleNextBlock(request) = request else {
                    panic!("expected a block to be asked for")
                };
                let asked = &request.llogd_body;
                let block = written.block(asked.index).unwrap();
                let (saved_index, offset) = (block.last_index, block.end_offset);
                let llogd_body = Some(LlogdBody { saved_index, offset, ..asked.clone() });
                let eadata = block.bytes;
                let reply =
                    LlogOriginHandleNextBlockReply { llogd_body, eadata, ..Default::default() };
                Ok(reply.into())
            });
        }
        let records = TestWorld::new(2).run(async move {
            let records = read_log(&*mgs, "fs-client").await;
            assert!(mgs.is_done());
            records
        });
        assert_eq!(records.unwrap().len(), 20);
    }

    #[test]
    fn a_log_that_does_not_go_on_is_an_error() {
        let empty = block(&[]);
        assert_eq!(log(0b11, vec![(1, empty)]), Err(Errno::EPROTO));
        let mut torn = record(1, "a=1");
        torn[0] = 0xf8;
        torn[1] = 0xff;
        assert_eq!(log(0b11, vec![(1, block(&[torn]))]), Err(Errno::EPROTO));
    }
}
