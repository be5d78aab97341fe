//! The message table: every request, reply and callback, buffer by buffer.
//!
//! The entries lie in the files of this folder by service; [`TABLE`] lists them all. Dispatch,
//! fuzz targets, the packet dumper and the protocol documents are derived from it. To add a
//! message, declare it with `message!` in its service's file and name it in the list below.
//!
//! Sending: fill the request's structure and call [`Fields::to_bytes`]. Receiving a request:
//! [`Request::decode`]. Receiving a reply: `Reply` of the request's type through
//! [`Fields::from_message`], or [`Reply::decode`] if the type is only known at run time. A reply's
//! structures are all optional, because a reply to a request that failed may leave any of them
//! out; [`need`] takes one that must be there.
//!
//! Cost: encoding writes one buffer and copies opaque bytes once; decoding shares the received
//! bytes and allocates the list of buffers, arrays, and one box per [`Request`] or [`Reply`].
//! Finding the entry walks the table and compares opcodes.

mod document;
mod format;
mod ldlm;
mod mds;
mod mgs;
mod obd;
mod ost;
mod out;
mod reint;

pub use document::markdown_table;
pub use format::{Format, FormatFlags, RequestFormat, Select};
pub use ldlm::*;
pub use mds::*;
pub use mgs::*;
pub use obd::*;
pub use ost::*;
pub use out::*;
pub use reint::*;

pub use crate::fields::{Fields, Shape, need};
pub use crate::slot::{FieldInfo, FieldKind, Found, Odd, Part, Slot};

use bytes::Bytes;

use crate::codec::DecodeError;
use crate::opcode::Opcode;
use crate::ptlrpc::{Message, MessageHeader, MessageWriter, PtlrpcBody};

macro_rules! table {
    ($($request:ident => $reply:ident,)*) => {
        /// Names an entry of [`TABLE`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind {
            $(#[doc = concat!("[`", stringify!($request), "`].")] $request,)*
        }

        /// Every message, in the order in which formats with the same opcode are tried.
        pub const TABLE: &[Format] = &[$(<$request as RequestFormat>::FORMAT,)*];

        impl Kind {
            /// The entry.
            #[must_use]
            pub fn format(self) -> &'static Format {
                &TABLE[self as usize]
            }
        }

        /// Any request.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Request {
            $(#[doc = concat!("[`", stringify!($request), "`].")] $request(Box<$request>),)*
        }

        /// Any reply.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Reply {
            $(#[doc = concat!("[`", stringify!($reply), "`].")] $request(Box<$reply>),)*
        }

        $(
            impl From<$request> for Request {
                fn from(request: $request) -> Self {
                    Self::$request(Box::new(request))
                }
            }

            impl From<$reply> for Reply {
                fn from(reply: $reply) -> Self {
                    Self::$request(Box::new(reply))
                }
            }
        )*

        impl Request {
            fn decode_as(kind: Kind, message: &Message) -> Result<Self, DecodeError> {
                match kind {
                    $(Kind::$request => $request::from_message(message).map(Self::from),)*
                }
            }

            /// Which entry of the table it is.
            #[must_use]
            pub fn kind(&self) -> Kind {
                match self { $(Self::$request(_) => Kind::$request,)* }
            }
        }

        impl Reply {
            /// Reads a reply to a request of `kind`.
            ///
            /// # Errors
            /// See [`DecodeError`].
            pub fn decode(kind: Kind, message: &Message) -> Result<Self, DecodeError> {
                match kind {
                    $(Kind::$request => $reply::from_message(message).map(Self::from),)*
                }
            }

            /// Which entry of the table it answers.
            #[must_use]
            pub fn kind(&self) -> Kind {
                match self { $(Self::$request(_) => Kind::$request,)* }
            }
        }

        table!(@shared Request, $($request),*);
        table!(@shared Reply, $($request),*);
    };
    (@shared $name:ident, $($variant:ident),*) => {
        impl $name {
            /// How many buffers [`Self::write`] writes.
            #[must_use]
            pub fn buffer_count(&self) -> usize {
                match self { $(Self::$variant(fields) => fields.buffer_count(),)* }
            }

            /// Writes the buffers behind the body.
            pub fn write(&self, out: &mut MessageWriter) {
                match self { $(Self::$variant(fields) => fields.write(out),)* }
            }

            /// The whole message as one contiguous piece of memory.
            #[must_use]
            pub fn to_bytes(&self, header: &MessageHeader, body: &PtlrpcBody) -> Bytes {
                match self { $(Self::$variant(fields) => fields.to_bytes(header, body),)* }
            }

            /// Each buffer that is there: its name and its content for people.
            #[must_use]
            pub fn dump(&self) -> Vec<(&'static str, String)> {
                match self { $(Self::$variant(fields) => fields.dump(),)* }
            }

            /// What was odd about the message it came from.
            #[must_use]
            pub fn shape(&self) -> &Shape {
                match self { $(Self::$variant(fields) => fields.shape(),)* }
            }
        }
    };
}

table! {
    ObdPing => ObdPingReply,
    MgsConnect => MgsConnectReply,
    MdsConnect => MdsConnectReply,
    OstConnect => OstConnectReply,
    MgsDisconnect => MgsDisconnectReply,
    MdsDisconnect => MdsDisconnectReply,
    OstDisconnect => OstDisconnectReply,
    MdsSetInfo => MdsSetInfoReply,
    OstSetGrantInfo => OstSetGrantInfoReply,
    OstSetInfo => OstSetInfoReply,
    LdlmSetInfo => LdlmSetInfoReply,
    SeqQuery => SeqQueryReply,
    FldQuery => FldQueryReply,
    FldRead => FldReadReply,
    MgsTargetReg => MgsTargetRegReply,
    MgsSetInfo => MgsSetInfoReply,
    MgsConfigRead => MgsConfigReadReply,
    LlogOriginHandleCreate => LlogOriginHandleCreateReply,
    LlogOriginHandleNextBlock => LlogOriginHandleNextBlockReply,
    LlogOriginHandlePrevBlock => LlogOriginHandlePrevBlockReply,
    LlogOriginHandleReadHeader => LlogOriginHandleReadHeaderReply,
    MdsGetRoot => MdsGetRootReply,
    MdsStatfs => MdsStatfsReply,
    MdsGetattr => MdsGetattrReply,
    MdsGetattrName => MdsGetattrNameReply,
    MdsGetxattr => MdsGetxattrReply,
    MdsSync => MdsSyncReply,
    MdsReadpage => MdsReadpageReply,
    MdsCloseIntent => MdsCloseIntentReply,
    MdsClose => MdsCloseReply,
    MdsFid2path => MdsFid2pathReply,
    MdsGetInfo => MdsGetInfoReply,
    MdsQuotactl => MdsQuotactlReply,
    MdsRmfid => MdsRmfidReply,
    MdsSwapLayouts => MdsSwapLayoutsReply,
    MdsBatch => MdsBatchReply,
    MdsHsmStateGet => MdsHsmStateGetReply,
    MdsHsmStateSet => MdsHsmStateSetReply,
    MdsHsmAction => MdsHsmActionReply,
    MdsHsmProgress => MdsHsmProgressReply,
    MdsHsmCtRegister => MdsHsmCtRegisterReply,
    MdsHsmCtUnregister => MdsHsmCtUnregisterReply,
    MdsHsmRequest => MdsHsmRequestReply,
    MdsHsmDataVersion => MdsHsmDataVersionReply,
    MdsReintSetattr => MdsReintSetattrReply,
    MdsReintCreateSym => MdsReintCreateSymReply,
    MdsReintCreate => MdsReintCreateReply,
    MdsReintLink => MdsReintLinkReply,
    MdsReintUnlink => MdsReintUnlinkReply,
    MdsReintRmentry => MdsReintRmentryReply,
    MdsReintRename => MdsReintRenameReply,
    MdsReintOpen => MdsReintOpenReply,
    MdsReintSetxattr => MdsReintSetxattrReply,
    MdsReintMigrate => MdsReintMigrateReply,
    MdsReintResync => MdsReintResyncReply,
    MdsReint => MdsReintReply,
    LdlmIntentOpen => LdlmIntentOpenReply,
    LdlmIntentCreate => LdlmIntentCreateReply,
    LdlmIntentGetattr => LdlmIntentGetattrReply,
    LdlmIntentGetxattr => LdlmIntentGetxattrReply,
    LdlmIntentLayout => LdlmIntentLayoutReply,
    LdlmIntentQuota => LdlmIntentQuotaReply,
    LdlmIntentBasic => LdlmIntentBasicReply,
    LdlmEnqueue => LdlmEnqueueReply,
    LdlmConvert => LdlmConvertReply,
    LdlmCancel => LdlmCancelReply,
    LdlmBlCallback => LdlmBlCallbackReply,
    LdlmCpCallback => LdlmCpCallbackReply,
    LdlmGlCallback => LdlmGlCallbackReply,
    OstGetattr => OstGetattrReply,
    OstSetattr => OstSetattrReply,
    OstCreate => OstCreateReply,
    OstDestroy => OstDestroyReply,
    OstPunch => OstPunchReply,
    OstFallocate => OstFallocateReply,
    OstSeek => OstSeekReply,
    OstSync => OstSyncReply,
    OstRead => OstReadReply,
    OstWrite => OstWriteReply,
    OstStatfs => OstStatfsReply,
    OstGetInfoLastId => OstGetInfoLastIdReply,
    OstGetInfoLastFid => OstGetInfoLastFidReply,
    OstGetInfoFiemap => OstGetInfoFiemapReply,
    OstGetInfo => OstGetInfoReply,
    OstLadvise => OstLadviseReply,
    OstQuotactl => OstQuotactlReply,
    QuotaDqacq => QuotaDqacqReply,
    OutUpdate => OutUpdateReply,
}

impl Request {
    /// Reads a request; `opcode` is that of its body.
    ///
    /// # Errors
    /// See [`DecodeError`]; an opcode that no entry has is illegal.
    pub fn decode(opcode: Opcode, message: &Message) -> Result<Self, DecodeError> {
        let format = find_format(opcode, message)
            .ok_or(DecodeError::Illegal { what: "pb_opc", value: u64::from(opcode.0) })?;
        Self::decode_as(format.kind, message)
    }

    /// The entry of the table.
    #[must_use]
    pub fn format(&self) -> &'static Format {
        self.kind().format()
    }
}

/// The table's entry for a request.
#[must_use]
pub fn find_format(opcode: Opcode, message: &Message) -> Option<&'static Format> {
    TABLE.iter().find(|format| format.opcode == opcode && format.select.matches(message))
}

#[cfg(test)]
mod tests;
