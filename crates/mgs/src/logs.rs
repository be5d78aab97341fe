//! Reading logs remotely: open by name, header, blocks.

use sheen_target::Outcome;
use sheen_types::Errno;
use sheen_wire::llog::{LLOG_CHUNK_BYTES, LlogLogid, LlogdBody};
use sheen_wire::messages::{
    LlogOriginHandleCreateReply, LlogOriginHandleNextBlockReply, LlogOriginHandlePrevBlockReply,
    LlogOriginHandleReadHeaderReply,
};
use sheen_wire::text::Text;

use crate::state::MgsState;

/// LLOG_ORIGIN_HANDLE_CREATE: by name, or by the id that an earlier open gave.
pub(crate) fn open(state: &MgsState, body: &LlogdBody, name: Option<&Text>) -> Outcome {
    let found = match name {
        Some(name) => state.log(&name.to_text()).map(|(id, _)| id),
        None => state.log_by_id(&body.logid).map(|_| body.logid.clone()),
    };
    let reply = |logid: LlogLogid| LlogOriginHandleCreateReply {
        llogd_body: Some(LlogdBody { logid, context: body.context, ..LlogdBody::default() }),
        ..LlogOriginHandleCreateReply::default()
    };
    match found {
        Some(id) => Outcome::ok(reply(id)),
        None => Outcome::failed(Errno::ENOENT, reply(LlogLogid::default())),
    }
}

/// LLOG_ORIGIN_HANDLE_READ_HEADER.
pub(crate) fn header(state: &MgsState, body: &LlogdBody) -> Result<Outcome, Errno> {
    let log = state.log_by_id(&body.logid).ok_or(Errno::ENOENT)?;
    Ok(Outcome::ok(LlogOriginHandleReadHeaderReply {
        llog_log_hdr: Some(log.header()),
        ..LlogOriginHandleReadHeaderReply::default()
    }))
}

/// LLOG_ORIGIN_HANDLE_NEXT_BLOCK: the block with the record wanted, or the first behind it.
pub(crate) fn next_block(state: &MgsState, body: &LlogdBody) -> Result<Outcome, Errno> {
    let (llogd_body, eadata) = block(state, body)?;
    let llogd_body = Some(llogd_body);
    let rest = LlogOriginHandleNextBlockReply::default();
    Ok(Outcome::ok(LlogOriginHandleNextBlockReply { llogd_body, eadata, ..rest }))
}

/// LLOG_ORIGIN_HANDLE_PREV_BLOCK: the block with the record wanted.
pub(crate) fn previous_block(state: &MgsState, body: &LlogdBody) -> Result<Outcome, Errno> {
    let (llogd_body, eadata) = block(state, body)?;
    let llogd_body = Some(llogd_body);
    let rest = LlogOriginHandlePrevBlockReply::default();
    Ok(Outcome::ok(LlogOriginHandlePrevBlockReply { llogd_body, eadata, ..rest }))
}

fn block(state: &MgsState, body: &LlogdBody) -> Result<(LlogdBody, bytes::Bytes), Errno> {
    let log = state.log_by_id(&body.logid).ok_or(Errno::ENOENT)?;
    if body.length as usize != LLOG_CHUNK_BYTES {
        return Err(Errno::EINVAL);
    }
    // Behind the end a real MGS says the same.
    let block = log.block(body.index).ok_or(Errno::EIO)?;
    let reached =
        LlogdBody { saved_index: block.last_index, offset: block.end_offset, ..body.clone() };
    Ok((reached, block.bytes))
}
