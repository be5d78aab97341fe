//! Load on an MDT without a client (what Lustre's `echo_client` does on top of the MDD).
//!
//! The directories of a survey have names in an index of their own and in no directory: no client sees
//! them, holds locks on them or can conflict with them. Whatever is still in that index when the
//! target starts was left by a process that died in a survey, and is removed then; a check of the
//! namespace counts it apart.
//!
//! A getattr, setxattr and unlink is the request that a client would send, executed as it would be. A
//! create makes the file with its objects in one step, as no request does but an open: it is the same
//! steps without the open handle.

use std::sync::Arc;

use bytes::Bytes;
use sheen_layout::plan::{Plan, Striping};
use sheen_store::{Attributes, FileKind, Transaction};
use sheen_target::{Context, LocalClient, ReplyRecording, Target, store_errno};
use sheen_types::{Errno, Fid, Name, fid_seq};
use sheen_wire::md::{MdtBody, RecCreate, RecSetxattr, RecUnlink, Valid};
use sheen_wire::messages::{MdsGetattrName, MdsReintSetxattr, MdsReintUnlink};
use sheen_wire::text::Text;

use crate::directory::{self, Child, damaged_entry, parse_name, parse_value};
use crate::hold::{Wanted, WantedName};
use crate::inode::DIRECTORY_BYTES;
use crate::new_inode::CreateSpec;
use crate::xattrs::LINK;
use crate::{Mdt, counters, links, locks};

/// Index of a survey's directories, as a directory has them: name to FID and type.
pub(crate) const ECHO: Fid = Fid::new(fid_seq::LOCAL_FILE, 0x204);
/// Objects of a sequence that one client names (`LUSTRE_METADATA_SEQ_MAX_WIDTH`).
const SEQUENCE_WIDTH: u32 = 0x1_ffff;
/// Files removed in one transaction.
const STEP: usize = 64;
/// Stripe count of a file that shall be as files are by default.
const STRIPES_DEFAULT: i32 = -1;
/// What a survey sets, and how many bytes of it.
const XATTR_NAME: &str = "user.test1";
const XATTR: &[u8; 260] = &[0; 260];
/// `XATTR_CREATE`.
const CREATE: u32 = 1;
/// Type and permissions of a survey's files.
const FILE_MODE: u32 = 0o100_644;
/// More than any layout has: a getattr shall bring it.
const LAYOUT_BYTES: u32 = 64 << 10;

impl Mdt {
    /// Makes `count` directories for a survey, after having removed what an earlier one left.
    ///
    /// # Errors
    /// Those of the store, or [`Errno::EAGAIN`] while clients recover.
    pub async fn echo_directories(
        &self,
        target: &Arc<Target>,
        count: u32,
    ) -> Result<Vec<Fid>, Errno> {
        self.echo_clean(target).await?;
        let client = LocalClient::new(target, "ECHO_UUID")?;
        let sequence = self.sequences.next(&client.context()).await?;
        let now = target.world().clock.wall();
        let mut directories = Vec::new();
        for number in 0..count {
            let fid = Fid::new(sequence, number + 1);
            let name = format!("MDT{:04x}-tests{number}", target.config().index);
            let attributes = Attributes {
                kind: FileKind::Directory,
                permissions: 0o755,
                links: 2,
                size: DIRECTORY_BYTES,
                blocks: DIRECTORY_BYTES / 512,
                accessed: now,
                modified: now,
                changed: now,
                born: now,
                ..Attributes::default()
            };
            let child = Child { fid, kind: FileKind::Directory };
            let mut transaction = Transaction::new();
            transaction
                .create(fid, attributes)
                .set_xattr(fid, LINK, links::first(ECHO, name.as_bytes()))
                .insert(ECHO, directory::key(name.as_bytes()), directory::value(child));
            target.transact_locally(transaction).map_err(store_errno)?;
            directories.push(fid);
        }
        client.disconnect().await;
        Ok(directories)
    }

    /// Removes the directories of surveys with all files in them; returns how many files. No survey
    /// may work in them meanwhile.
    ///
    /// # Errors
    /// Those of the store: what is left is removed the next time.
    pub async fn echo_clean(&self, target: &Arc<Target>) -> Result<u64, Errno> {
        let errno = store_errno;
        let mut files = 0;
        while let Some(found) = self.store.scan(ECHO, &[], 1).map_err(errno)?.pop() {
            let child = parse_value(&found.value);
            let child = child.ok_or_else(|| damaged_entry(ECHO, &found.key))?;
            // Onwards: to pass over what is removed from the beginning takes longer each time.
            let mut from = Vec::new();
            loop {
                let entries = self.store.scan(child.fid, &from, STEP).map_err(errno)?;
                let Some(last) = entries.last() else { break };
                from = [&last.key[..], &[0]].concat();
                let mut changes = self.change_set();
                for entry in entries {
                    let file = parse_value(&entry.value);
                    let file = file.ok_or_else(|| damaged_entry(child.fid, &entry.key))?;
                    changes.delete_key(child.fid, entry.key);
                    changes.destroy(&self.inode(file.fid)?)?;
                    files += 1;
                }
                // Not held: no request reaches these names.
                target.transact_locally(changes.into_transaction()).map_err(errno)?;
                sheen_io::yield_once().await;
            }
            let mut transaction = Transaction::new();
            transaction.destroy(child.fid).delete(ECHO, found.key);
            target.transact_locally(transaction).map_err(errno)?;
        }
        Ok(files)
    }

    /// Recovery has ended: removes, beside other work, what a process that died left of a survey.
    pub(crate) fn clean_echo_soon(&self, target: &Arc<Target>) {
        let is_clean = |entries: Vec<_>| entries.is_empty();
        if self.store.scan(ECHO, &[], 1).map_or(true, is_clean) {
            return;
        }
        let (Some(mdt), target) = (self.me.upgrade(), Arc::clone(target)) else { return };
        let tasks = Arc::clone(&target.world().tasks);
        let clean = async move {
            match mdt.echo_clean(&target).await {
                Ok(files) => tracing::info!(files, "removed what a survey had left"),
                Err(errno) => tracing::warn!(%errno, "a survey's files are left"),
            }
        };
        tasks.spawn("survey", Box::pin(clean));
    }

    /// A file and its objects: no look-up, no open handle.
    async fn echo_create(
        &self,
        context: &Context,
        (parent, name): (Fid, &Name),
        fid: Fid,
        stripes: i32,
    ) -> Result<(), Errno> {
        let mut spec =
            CreateSpec::of(&RecCreate { mode: FILE_MODE, fid2: fid, ..Default::default() });
        spec.now = context.target.world().clock.wall();
        let names = [WantedName::added(parent, name.as_bytes())];
        let held = self.hold(Wanted::of_names(&names)).await?;
        let directory = self.directory(parent)?;
        self.may_add(&spec.caller, &directory, name, FileKind::Regular)?;
        if stripes != 0 {
            let striping = |stripe_count| Striping { stripe_count, ..Striping::default() };
            let requested = match stripes {
                STRIPES_DEFAULT => None,
                count => {
                    Some(Plan::Plain(striping(u16::try_from(count).map_err(|_| Errno::EINVAL)?)))
                }
            };
            let plan = self.plan_new_layout(Some(&directory), requested, false)?;
            let world = context.target.world();
            spec.objects = Some(self.placement.allocate(world, fid, &plan, 0).await?);
        }
        let new_inode = self.build_inode(context, &directory, spec)?;
        let _lock = locks::change_directory(context, parent).await?;
        let mut changes = self.change_set();
        new_inode.add(&mut changes, parent, name);
        self.execute(context, &held, changes, ReplyRecording::Done).map(drop)
    }
}

/// One task of a survey, which does one operation after the other.
pub struct EchoWorker {
    mdt: Arc<Mdt>,
    client: LocalClient,
    /// The next FID, and how many of its sequence are left.
    next: Fid,
    left: u32,
}

impl EchoWorker {
    /// A worker on an MDT.
    ///
    /// # Errors
    /// Those of [`LocalClient::new`].
    pub fn new(mdt: &Arc<Mdt>, target: &Arc<Target>) -> Result<Self, Errno> {
        let client = LocalClient::new(target, "ECHO_UUID")?;
        Ok(Self { mdt: Arc::clone(mdt), client, next: Fid::ZERO, left: 0 })
    }

    /// Makes a file of that number, with objects on `stripes` OSTs: 0 for none, -1 for as many as files
    /// have by default. Counts as `mknod`.
    ///
    /// # Errors
    /// [`Errno::EEXIST`], [`Errno::ENOSPC`] if there are no OSTs, or those of the store.
    pub async fn create(&mut self, directory: Fid, number: u64, stripes: i32) -> Result<(), Errno> {
        let fid = self.new_fid().await?;
        let name = parse_name(number.to_string().as_bytes())?;
        let context = self.client.context();
        self.mdt.echo_create(&context, (directory, &name), fid, stripes).await?;
        context.count_time(counters::MKNOD);
        Ok(())
    }

    /// Looks a file's number up. Counts as `getattr`, which a look-up is for clients.
    ///
    /// # Errors
    /// [`Errno::ENOENT`], or those of the store.
    pub fn lookup(&self, directory: Fid, number: u64) -> Result<Fid, Errno> {
        let context = self.client.context();
        let found = self.resolve(directory, number)?;
        context.count_time(counters::GETATTR);
        Ok(found)
    }

    /// Looks a file's number up and brings its attributes and its layout.
    ///
    /// # Errors
    /// As [`EchoWorker::lookup`].
    pub async fn getattr(&self, directory: Fid, number: u64) -> Result<(), Errno> {
        let mdt_body = MdtBody { fid1: directory, eadatasize: LAYOUT_BYTES, ..MdtBody::default() };
        let name = Some(Text::new(number.to_string()));
        let request = MdsGetattrName { mdt_body, name, ..MdsGetattrName::default() };
        self.client.ask(request).await.map(drop)
    }

    /// Looks a file's number up and gives it an extended attribute that it must not have.
    ///
    /// # Errors
    /// [`Errno::EEXIST`], or as [`EchoWorker::lookup`].
    pub async fn setxattr(&self, directory: Fid, number: u64) -> Result<(), Errno> {
        let fid = self.resolve(directory, number)?;
        let valid = Valid::XATTR;
        let time = self.now();
        let rec_reint = RecSetxattr { fid, valid, time, flags: CREATE, ..RecSetxattr::default() };
        let (name, eadata) = (Some(Text::new(XATTR_NAME)), Bytes::from_static(XATTR));
        let request = MdsReintSetxattr { rec_reint, name, eadata, ..MdsReintSetxattr::default() };
        self.client.ask(request).await.map(drop)
    }

    /// Removes a file by its number.
    ///
    /// # Errors
    /// As [`EchoWorker::lookup`].
    pub async fn destroy(&self, directory: Fid, number: u64) -> Result<(), Errno> {
        let (mode, time) = (FILE_MODE, self.now());
        let rec_reint = RecUnlink { fid1: directory, mode, time, ..RecUnlink::default() };
        let name = Some(Text::new(number.to_string()));
        let request = MdsReintUnlink { rec_reint, name, ..MdsReintUnlink::default() };
        self.client.ask(request).await.map(drop)
    }

    /// Ends; what it made stays until [`Mdt::echo_clean`].
    pub async fn disconnect(self) {
        self.client.disconnect().await;
    }

    fn resolve(&self, directory: Fid, number: u64) -> Result<Fid, Errno> {
        let asked = MdtBody { fid1: directory, ..MdtBody::default() };
        self.mdt.resolve(&asked, number.to_string().as_bytes())?.ok_or(Errno::ENOENT)
    }

    fn now(&self) -> i64 {
        self.client.target().world().clock.wall().seconds
    }

    async fn new_fid(&mut self) -> Result<Fid, Errno> {
        if self.left == 0 {
            let sequence = self.mdt.sequences.next(&self.client.context()).await?;
            (self.next, self.left) = (Fid::new(sequence, 1), SEQUENCE_WIDTH);
        }
        let fid = self.next;
        (self.next.oid, self.left) = (fid.oid + 1, self.left - 1);
        Ok(fid)
    }
}
