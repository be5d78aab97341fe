//! The role itself, and what programs on the same node may ask of it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use sheen_io::{BoxFuture, World};
use sheen_ldlm::{LockKind, Policy};
use sheen_llog::{ClusterMap, ConfigLog, PoolChange};
use sheen_store::{Store, StoreError};
use sheen_target::{
    ConnectOffer, Context, Operations, Outcome, ReverseChannels, Target, TargetConfig, TargetError,
    Timeouts,
};
use sheen_types::{Errno, LockMode, Nid, ResourceName, TargetName, Uuid};
use sheen_wire::connect::{ConnectFlags, ConnectFlags2};
use sheen_wire::messages::{
    MgsConfigRead, MgsConfigReadReply, MgsSetInfoReply, MgsTargetReg, MgsTargetRegReply, Request,
};
use sheen_wire::mgs::{ConfigType, MgsConfigRes, MgsTargetInfo, TargetFlags};

use crate::nidtable::EntryFormat;
use crate::registration::{self, Registration};
use crate::state::{LogSet, MgsState, PARAMS};
use crate::{logs, parameters, pools};

/// Most bytes of a recovery log's bulk that we send: one LNet message.
const BULK_BYTES_MAX: u64 = 1 << 20;
/// What the recovery log's name ends with, behind the file system and a dash.
const RECOVERY_SUFFIX: &str = "-cliir";

/// How an MGS is made.
#[derive(Clone, Copy, Debug, Default)]
pub struct MgsConfig {
    /// How long it waits, and for what.
    pub timeouts: Timeouts,
}

/// The management service.
pub struct Mgs {
    pub(crate) state: MgsState,
    target: OnceLock<Weak<Target>>,
    /// Other nodes may register targets that are new.
    allows_register: AtomicBool,
}

/// The resource of the lock under which a log is read: 8 bytes of the file system's name, and the
/// kind of log. `name` is a log's name, or `params`.
#[must_use]
pub fn config_resource(name: &str, kind: ConfigType) -> ResourceName {
    let fsname = name.rsplit_once('-').map_or(name, |(fsname, _)| fsname);
    let mut bytes = [0; 8];
    bytes.iter_mut().zip(fsname.bytes()).for_each(|(place, byte)| *place = byte);
    let kind = match kind {
        // Security rules share the lock of the logs.
        ConfigType::SPTLRPC => ConfigType::CONFIG,
        kind => kind,
    };
    ResourceName([u64::from_le_bytes(bytes), u64::from(kind.0), 0, 0])
}

impl Mgs {
    /// Starts an MGS on what its store holds. The target is what the node registers under the name
    /// `MGS`; it keeps the service alive.
    ///
    /// # Errors
    /// See [`TargetError`].
    pub async fn start(
        world: World,
        store: Arc<dyn Store>,
        config: MgsConfig,
        reverse: Arc<dyn ReverseChannels>,
    ) -> Result<(Arc<Self>, Arc<Target>), TargetError> {
        let mgs = Self::load(&world, Arc::clone(&store))?;
        let operations: Arc<dyn Operations> = mgs.clone();
        let target =
            Target::start(world, store, Self::target_config(config), operations, reverse).await?;
        Ok((mgs, target))
    }

    /// The service without its target; [`Operations::started`] makes them known to each other.
    pub(crate) fn load(world: &World, store: Arc<dyn Store>) -> Result<Arc<Self>, TargetError> {
        let state = MgsState::load(store)?;
        if state.log(PARAMS).is_none() {
            let now = world.clock.wall().seconds;
            let made = state.edit(LogSet::Params, now, |edit| {
                edit.make(PARAMS);
                Ok(())
            });
            made.map_err(|errno| StoreError::Io(format!("cannot make the log {PARAMS}: {errno}")))?;
        }
        Ok(Arc::new(Self {
            state,
            target: OnceLock::new(),
            allows_register: AtomicBool::new(true),
        }))
    }

    pub(crate) fn target_config(config: MgsConfig) -> TargetConfig {
        TargetConfig {
            name: "MGS".to_owned(),
            uuid: Uuid::new("MGS"),
            index: 0,
            offer: ConnectOffer {
                flags: ConnectFlags::MGS_NIDLIST | ConnectFlags::IMP_RECOV,
                flags2: ConnectFlags2::LARGE_NID,
                ..ConnectOffer::default()
            },
            replayable: false,
            timeouts: config.timeouts,
        }
    }

    /// Registers a target, as MGS_TARGET_REG does: logs are written and made durable, readers'
    /// locks are revoked. The answer is the registration with the index given to it.
    ///
    /// # Errors
    /// [`Errno::EALREADY`] for an index in use, [`Errno::ENOENT`] for a target that claims to be
    /// known and is not, [`Errno::EINVAL`] for one without NIDs.
    pub(crate) async fn register(
        &self,
        mut registration: Registration,
    ) -> Result<Registration, Errno> {
        let target = self.target()?;
        let now = target.world().clock.wall().seconds;
        let changed = registration::register(&self.state, &mut registration, now)?;
        target.sync().await?;
        if changed {
            self.revoke(&target, &registration.name.fsname, ConfigType::CONFIG);
        }
        Ok(registration)
    }

    /// A registered target is ready to be connected to, perhaps elsewhere than before: clients that
    /// were connected to it learn that at once.
    ///
    /// # Errors
    /// [`Errno::ENOENT`] for a file system that is not known.
    pub(crate) fn ready(&self, registration: &Registration) -> Result<(), Errno> {
        let target = self.target()?;
        let name = &registration.name;
        if !self.state.knows(&name.fsname) {
            return Err(Errno::ENOENT);
        }
        let kind = match name.kind {
            sheen_types::TargetKind::Mdt => TargetFlags::SV_TYPE_MDT,
            sheen_types::TargetKind::Ost => TargetFlags::SV_TYPE_OST,
        };
        let (index, instance) = (u32::from(name.index), registration.instance);
        self.state.edit_table(&name.fsname, |table| {
            table.set(kind, index, instance, &registration.nids);
        })?;
        self.revoke(&target, &name.fsname, ConfigType::RECOVER);
        Ok(())
    }

    /// `lctl replace_nids`: from now on a target is reached elsewhere. A reader that starts its
    /// logs anew sees only the new NIDs.
    ///
    /// # Errors
    /// [`Errno::ENOENT`] for a target that is not known.
    pub async fn replace_nids(&self, name: &TargetName, nodes: &[Vec<Nid>]) -> Result<(), Errno> {
        let target = self.target()?;
        let now = target.world().clock.wall().seconds;
        registration::replace_nids(&self.state, name, nodes, now)?;
        target.sync().await?;
        self.revoke(&target, &name.fsname, ConfigType::CONFIG);
        Ok(())
    }

    /// `lctl conf_param DEVICE.NAME=VALUE`; without a value the parameter is deleted.
    ///
    /// # Errors
    /// [`Errno::EINVAL`], [`Errno::ENODEV`], as `lctl` shows them.
    pub async fn conf_param(&self, text: &str) -> Result<(), Errno> {
        let target = self.target()?;
        let now = target.world().clock.wall().seconds;
        let fsname = parameters::conf_param(&self.state, text, now)?;
        target.sync().await?;
        self.revoke(&target, &fsname, ConfigType::CONFIG);
        Ok(())
    }

    /// `lctl set_param -P NAME=VALUE`; without a value the parameter is deleted.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for an empty name.
    pub async fn set_param(&self, text: &str) -> Result<(), Errno> {
        let target = self.target()?;
        let now = target.world().clock.wall().seconds;
        parameters::set_param(&self.state, text, now)?;
        target.sync().await?;
        self.revoke(&target, PARAMS, ConfigType::PARAMS);
        Ok(())
    }

    /// `lctl pool_new`, `pool_add`, `pool_remove`, `pool_destroy`.
    ///
    /// # Errors
    /// [`Errno::EEXIST`] for what is there already, [`Errno::ENOENT`] for what is not,
    /// [`Errno::ENODEV`] for an OST that the file system has not, [`Errno::EINVAL`] and
    /// [`Errno::ENAMETOOLONG`] for names that are none.
    pub async fn pool(&self, fsname: &str, pool: &str, change: &PoolChange) -> Result<(), Errno> {
        let target = self.target()?;
        let now = target.world().clock.wall().seconds;
        pools::change(&self.state, fsname, pool, change, now)?;
        target.sync().await?;
        self.revoke(&target, fsname, ConfigType::CONFIG);
        Ok(())
    }

    /// Whether other nodes may register targets that are new (`allow_register`). Those of this node
    /// may, and those that are known.
    #[must_use]
    pub fn allows_register(&self) -> bool {
        self.allows_register.load(Ordering::Relaxed)
    }

    /// Sets whether other nodes may register targets that are new.
    pub fn allow_register(&self, allow: bool) {
        self.allows_register.store(allow, Ordering::Relaxed);
    }

    /// A log as it is now (`lctl llog_print`).
    #[must_use]
    pub fn log(&self, name: &str) -> Option<Arc<ConfigLog>> {
        self.state.log(name).map(|(_, log)| log)
    }

    /// The records of a log with their indexes, as `lctl llog_print` shows them; with `raw` those that do not count,
    /// too.
    #[must_use]
    pub fn log_lines(&self, name: &str, raw: bool) -> Option<Vec<(u32, String)>> {
        Some(sheen_llog::shown(self.log(name)?.records(), raw))
    }

    /// The names of all logs (`lctl llog_catlist`).
    #[must_use]
    pub fn log_names(&self) -> Vec<String> {
        self.state.names()
    }

    /// The version of the table in which clients find restarted targets; 0 if none has started.
    #[must_use]
    pub fn nid_table_version(&self, fsname: &str) -> u64 {
        self.state.table(fsname, |table| table.version()).unwrap_or(0)
    }

    /// The targets and parameters of a file system, parameters of `set_param -P` included; `None`
    /// if it is not known.
    #[must_use]
    pub fn cluster_map(&self, fsname: &str) -> Option<ClusterMap> {
        if !self.state.knows(fsname) {
            return None;
        }
        let mut map = ClusterMap::new(fsname);
        let mut params = ClusterMap::new(fsname);
        // We wrote these records ourselves; what cannot be read is left out.
        let targets = map.read(self.log(&sheen_llog::client_name(fsname))?.records());
        let settings = params.read(self.log(PARAMS)?.records());
        for error in [targets, settings].into_iter().filter_map(Result::err) {
            tracing::warn!(fsname, %error, "a record of the configuration cannot be read: left out");
        }
        map.params.extend(params.params);
        Some(map)
    }

    fn target(&self) -> Result<Arc<Target>, Errno> {
        self.target.get().and_then(Weak::upgrade).ok_or(Errno::ENODEV)
    }

    /// Revokes the locks of readers of a kind of log, so that they read again. Does not wait for
    /// them.
    fn revoke(&self, target: &Arc<Target>, fsname: &str, kind: ConfigType) {
        let resource = config_resource(&format!("{fsname}-"), kind);
        let (target, world) = (Arc::clone(target), target.world().clone());
        let task: BoxFuture<'static, ()> = Box::pin(async move {
            // Taken and released at once: readers have cancelled their locks.
            drop(target.lock(resource, Policy::Plain, LockMode::Ex).await);
        });
        world.tasks.spawn("mgs_revoke", task);
    }

    /// A refusal shows both as the reply's status and as a flag in it.
    async fn target_reg(&self, context: &Context, request: &MgsTargetReg) -> Outcome {
        let asked = &request.mgs_target_info;
        let reply = |info| MgsTargetRegReply {
            mgs_target_info: Some(info),
            ..MgsTargetRegReply::default()
        };
        match self.registered(context, request).await {
            Ok(info) => Outcome::ok(reply(info)),
            Err(errno) => {
                tracing::warn!(service = asked.service_name.to_text(), %errno,
                    "registration refused");
                let flags = asked.flags | TargetFlags::ERROR;
                Outcome::failed(errno, reply(MgsTargetInfo { flags, ..asked.clone() }))
            }
        }
    }

    async fn registered(
        &self,
        context: &Context,
        request: &MgsTargetReg,
    ) -> Result<MgsTargetInfo, Errno> {
        let asked = &request.mgs_target_info;
        let list = request.mgs_target_nidlist.as_ref();
        // A target that is ready has its index: one that wants it chosen would pass for new.
        if asked.flags.contains(TargetFlags::OPC_READY | TargetFlags::NEED_INDEX) {
            return Err(Errno::EINVAL);
        }
        let registration = Registration::from_info(asked, list)?;
        self.may_register(context, &registration)?;
        if asked.flags.contains(TargetFlags::OPC_READY) {
            self.ready(&registration)?;
            let flags = asked.flags | TargetFlags::IR_CAPABLE;
            return Ok(MgsTargetInfo { flags, ..asked.clone() });
        }
        if asked.flags.contains(TargetFlags::OPC_UNREG) {
            return Err(Errno::EINVAL);
        }
        let is_new = self.nids_of(&registration).is_none();
        let registered = self.register(registration).await?;
        if is_new {
            Self::note_new(context, &registered);
        }
        Ok(registered.to_info(asked))
    }

    async fn config_read(
        &self,
        context: &Context,
        request: &MgsConfigRead,
    ) -> Result<Outcome, Errno> {
        let body = &request.mgs_config_body;
        if body.kind != ConfigType::RECOVER {
            return Err(Errno::EINVAL);
        }
        let name = body.name.to_text();
        let fsname = name
            .strip_suffix(RECOVERY_SUFFIX)
            .or_else(|| name.rsplit_once('-').map(|(fsname, _)| fsname));
        let fsname = fsname.ok_or(Errno::EINVAL)?;
        if !self.state.knows(fsname) {
            return Err(Errno::ENOENT);
        }
        let bytes = u64::from(body.units).checked_shl(u32::from(body.bits));
        if bytes.is_none_or(|bytes| bytes == 0 || bytes > BULK_BYTES_MAX) {
            return Err(Errno::EINVAL);
        }
        let shape = EntryFormat { bits: body.bits, units: body.units, nid_bytes: body.pass };
        let read = self.state.table(fsname, |table| table.read(body.offset, shape));
        let read = read.unwrap_or_else(|| crate::nidtable::NidTable::default().read(0, shape));
        context.bulk.push(vec![read.bytes]).await.map_err(|error| error.errno())?;
        Ok(Outcome::ok(MgsConfigReadReply {
            mgs_config_res: Some(MgsConfigRes { offset: read.next, size: read.version }),
            ..MgsConfigReadReply::default()
        }))
    }
}

impl Operations for Mgs {
    fn has_locks(&self, _resource: &ResourceName, kind: LockKind) -> bool {
        kind == LockKind::Plain
    }

    fn operate<'a>(
        &'a self,
        context: &'a Context,
        request: Request,
    ) -> BoxFuture<'a, Result<Outcome, Errno>> {
        Box::pin(async move {
            match request {
                Request::MgsTargetReg(request) => Ok(self.target_reg(context, &request).await),
                Request::MgsConfigRead(request) => self.config_read(context, &request).await,
                Request::MgsSetInfo(request) => {
                    Self::may_configure(context)?;
                    self.conf_param(&request.mgs_send_param.param.to_text()).await?;
                    Ok(Outcome::ok(MgsSetInfoReply {
                        mgs_send_param: Some(request.mgs_send_param),
                        ..MgsSetInfoReply::default()
                    }))
                }
                Request::LlogOriginHandleCreate(request) => {
                    Ok(logs::open(&self.state, &request.llogd_body, request.name.as_ref()))
                }
                Request::LlogOriginHandleReadHeader(request) => {
                    logs::header(&self.state, &request.llogd_body)
                }
                Request::LlogOriginHandleNextBlock(request) => {
                    logs::next_block(&self.state, &request.llogd_body)
                }
                Request::LlogOriginHandlePrevBlock(request) => {
                    logs::previous_block(&self.state, &request.llogd_body)
                }
                _ => Err(Errno::ENOTSUPP),
            }
        })
    }

    fn started<'a>(&'a self, target: &'a Arc<Target>) -> BoxFuture<'a, ()> {
        // A service starts once; a second target would be a second service.
        let _ = self.target.set(Arc::downgrade(target));
        Box::pin(async {})
    }
}
