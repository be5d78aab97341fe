//! MDS_REINT migrate: a name of a directory moves to other MDTs, or the directory that it stands for begins to.

use sheen_layout::directory::DirectoryWish;
use sheen_store::FileKind;
use sheen_target::{Context, Outcome};
use sheen_types::{Errno, Timestamp};
use sheen_wire::md::{Bias, MdtBody, Valid};
use sheen_wire::messages::{MdsReintMigrate, MdsReintMigrateReply};

use crate::caller::Caller;
use crate::close_intent::Lease;
use crate::coordinator::Migration;
use crate::directory::parse_name;
use crate::striped::parse_wish;
use crate::{Mdt, dot_lustre};

impl Mdt {
    /// Migrates a name.
    pub(crate) async fn migrate(
        &self,
        context: &Context,
        request: &MdsReintMigrate,
    ) -> Result<Outcome, Errno> {
        let record = &request.rec_reint;
        if context.is_applied_already() {
            return self.replay_done(context, migrated(false));
        }
        let name = match request.name.as_ref().ok_or(Errno::EPROTO)?.as_bytes() {
            b"." | b".." => return Err(Errno::EBUSY),
            name => parse_name(name)?,
        };
        dot_lustre::refuse_change(record.fid1, &name)?;
        let caller = Caller::from(record);
        let settings = [
            ("enable_remote_dir", self.makes_remote_directories()),
            ("enable_dir_migration", self.migrates_directories()),
        ];
        self.check_choice(context, &caller, "a migration", &settings)?;
        let wish = match request.eadata.is_empty() {
            true => None,
            false => Some(parse_wish(&request.eadata)?),
        };
        let mut lease = Lease::of(request)?;
        let asked = Migration {
            parent: record.fid1,
            name: &name,
            new: record.fid2,
            kind: FileKind::from_mode(record.mode),
            caller,
            now: Timestamp::from_seconds(record.time),
            names_only: record.bias.contains(Bias::MIGRATE_NSONLY),
            wish: wish.map(|wish| DirectoryWish { kind: 0, ..wish }),
        };
        let done = self.migrate_name(context, &asked, &mut lease).await;
        let is_closed = lease.is_closed();
        let reply = migrated(is_closed);
        Ok(match done {
            Ok(()) => Outcome::ok(reply),
            // A client that asks again by itself would not hear that the file is closed.
            Err(Errno::EINPROGRESS) if is_closed => Outcome::failed(Errno::EAGAIN, reply),
            Err(errno) => Outcome::failed(errno, reply),
        })
    }
}

/// The answer; whether the file of the lease is closed.
pub(crate) fn migrated(is_closed: bool) -> MdsReintMigrateReply {
    let valid = if is_closed { Valid::CLOSE_INTENT_EXECED } else { Valid::NONE };
    let mdt_body = Some(MdtBody { valid, ..MdtBody::default() });
    MdsReintMigrateReply { mdt_body, ..MdsReintMigrateReply::default() }
}
