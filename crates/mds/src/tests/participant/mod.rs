//! What MDT0000 does for changes that MDT0001 and MDT0002 coordinate. The tests write their messages by hand.

mod exclusions;
mod parts;
mod refusals;

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use sheen_store_mem::StoreMem;
use sheen_target::testing::{TestAnswer, TestCall, TestClient, TestWorld};
use sheen_types::{
    ChangeId, Errno, Fid, InodeBits, LogicalTime, MdtIndex, Name, Nid, Transno, Uuid,
};
use sheen_wire::fld::SeqRangeFlags;
use sheen_wire::messages::{OutUpdate, Reply};
use sheen_wire::out::{
    Exclude, ExcludeInode, ExcludeName, Excluded, NameNeeds, ObjectUpdate, OutUpdateHeader,
    PartAnswer, Release, ReleaseFlags, SentPart, UpdateResult, UpdateResults, encode_updates,
};
use sheen_wire::update_record::{Part, UpdateRecord};
use sheen_wire::{ByteOrder, Reader, Wire, Writer};

use super::harness::{Client, Server};
use super::several::{of_mdt, offer, range_of, start};

const ROOT: Fid = Fid::ROOT;
const M0: MdtIndex = MdtIndex(0);
const ALL: InodeBits = InodeBits::LOOKUP.union(InodeBits::UPDATE).union(InodeBits::XATTR);
/// It changes, with the inode that it stands for.
const WITH_INODE: NameNeeds = NameNeeds(NameNeeds::CHANGES.0 | NameNeeds::INODE.0);

/// Another MDT, of which there is only what it says.
#[derive(Clone)]
struct Coordinator {
    inner: TestClient,
    mdt: MdtIndex,
    starts: u32,
    /// Where its inodes are.
    sequence: u64,
}

fn name(name: &str) -> Name {
    Name::new(name.as_bytes()).expect("a name")
}

fn excluded_name(directory: Fid, named: &str, needs: NameNeeds) -> ExcludeName {
    ExcludeName { directory, name: name(named), needs, revoked: ALL }
}

fn inode(fid: Fid) -> ExcludeInode {
    ExcludeInode { fid, revoked: ALL }
}

fn request_of(updates: &[ObjectUpdate]) -> OutUpdate {
    let updates = encode_updates(updates).expect("they fit");
    let (magic, inline_length) = (OutUpdateHeader::MAGIC, updates.len() as u32);
    let mut writer = Writer::default();
    OutUpdateHeader { magic, count: 1, inline_length, reply_size: 4096 }.encode(&mut writer);
    writer.put(&updates);
    OutUpdate { out_update_header: writer.into_bytes(), ..OutUpdate::default() }
}

fn results_of(answer: &TestAnswer) -> Result<Vec<UpdateResult>, Errno> {
    match (answer.errno(), &answer.reply) {
        (Some(errno), _) => Err(errno),
        (None, Some(Reply::OutUpdate(reply))) => {
            Ok(UpdateResults::decode(&reply.object_update_reply).expect("results").results)
        }
        other => panic!("{other:?}"),
    }
}

/// The data of the first result.
fn first(answer: &TestAnswer) -> Result<Bytes, Errno> {
    let results = results_of(answer)?;
    Errno::from_status(results[0].status).map_or_else(|| Ok(results[0].data.clone()), Err)
}

fn read<T: Wire>(data: &Bytes) -> T {
    T::decode(&mut Reader::new(data, ByteOrder::Little)).expect("it can be read")
}

impl Coordinator {
    async fn new(server: &Server, mdt: u16) -> Self {
        let inner = server.node.client_at(&of_mdt(mdt), Nid::LOOPBACK);
        let identity = format!("{mdt:08}-2222-3333-4444-555555555555");
        inner.connect_with(offer(&identity)).await.expect("let in");
        let sequence = range_of(server, mdt.into(), SeqRangeFlags::MDT).start + 1;
        Self { inner, mdt: MdtIndex(mdt), starts: 1, sequence }
    }

    /// After a restart of its own.
    fn restarted(&self) -> Self {
        Self { starts: self.starts + 1, ..self.clone() }
    }

    /// An inode of its own.
    fn far(&self, number: u32) -> Fid {
        Fid::new(self.sequence, number)
    }

    async fn ask(&self, updates: &[ObjectUpdate]) -> TestAnswer {
        let call = TestCall::new(request_of(updates)).tagged(1);
        self.inner.call_with(call).await.expect("an answer")
    }

    fn exclude_of(&self, number: u64, names: &[ExcludeName], inodes: &[ExcludeInode]) -> Exclude {
        let (names, inodes) = (names.to_vec(), inodes.to_vec());
        let starts = self.starts;
        Exclude { starts, number, client: Uuid::new("asker"), names, inodes, ..Exclude::default() }
    }

    async fn exclude(
        &self,
        number: u64,
        names: &[ExcludeName],
        inodes: &[ExcludeInode],
    ) -> Result<Excluded, Errno> {
        let wanted = self.exclude_of(number, names, inodes);
        self.exclude_all(&wanted).await
    }

    async fn exclude_all(&self, wanted: &Exclude) -> Result<Excluded, Errno> {
        let update = ObjectUpdate::exclude(wanted).expect("it fits");
        let data = first(&self.ask(&[update]).await)?;
        Ok(Excluded::decode(&data).expect("it can be read"))
    }

    async fn release(&self, number: u64) {
        let release = Release { starts: self.starts, flags: ReleaseFlags::NONE, number };
        first(&self.ask(&[ObjectUpdate::release(&release)]).await).expect("released");
    }

    async fn release_earlier(&self) {
        let release = Release { starts: self.starts, flags: ReleaseFlags::EARLIER, number: 0 };
        first(&self.ask(&[ObjectUpdate::release(&release)]).await).expect("released");
    }

    /// The message that brings MDT0000 its part of the change `transno`.
    fn part(&self, transno: u64, exclusion: u64, updates: Vec<ObjectUpdate>) -> ObjectUpdate {
        let id = ChangeId { coordinator: self.mdt, transno: Transno(transno) };
        let parts = vec![Part { mdt: M0, updates }, Part { mdt: self.mdt, updates: Vec::new() }];
        let time = LogicalTime(transno);
        let record = UpdateRecord { id, time, parts, ..UpdateRecord::default() };
        let part = SentPart { starts: self.starts, exclusion, record };
        ObjectUpdate::record(&part).expect("it fits")
    }

    async fn apply(
        &self,
        transno: u64,
        exclusion: u64,
        updates: Vec<ObjectUpdate>,
    ) -> Result<Transno, Errno> {
        let data = first(&self.ask(&[self.part(transno, exclusion, updates)]).await)?;
        Ok(read::<PartAnswer>(&data).transno)
    }
}

/// MDT0000 with a client, and MDT0001.
async fn scene(world: &TestWorld, store: Arc<StoreMem>) -> (Server, Client, Coordinator) {
    let server = start(world, 0, store).await;
    server.node.target.track_dependencies();
    let client = server.client("c").await;
    let coordinator = Coordinator::new(&server, 1).await;
    (server, client, coordinator)
}

/// What a task has come to, if it has.
type Pending<T> = Arc<Mutex<Option<T>>>;

/// Starts something that may wait, and lets it go as far as it comes.
async fn begin<T: Send + 'static>(
    world: &TestWorld,
    task: impl Future<Output = T> + Send + 'static,
) -> Pending<T> {
    let done: Pending<T> = Arc::default();
    let result = Arc::clone(&done);
    let task = async move {
        let value = task.await;
        *result.lock() = Some(value);
    };
    world.world().tasks.spawn("pending", Box::pin(task));
    world.settle().await;
    done
}
