//! What is mounted: a file system by the NIDs of its MGS, or the directory of one that `sheen up` runs. Servers are
//! reached by TCP, or, if `sheen up` of this machine runs them, by the UNIX sockets in that directory.
//!
//! A client gets the MGS's NID, as on Lustre. Which directory that NID stands for is found by a link in
//! the user's run folder, `nids/NID-PORT`, that `up` made; root's links are in root's folder, which no other user can
//! write. Another user's file system is named by its directory instead, which only root may enter.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4, ToSocketAddrs, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sheen_control::{check_owner, make_private};
use sheen_io::World;
use sheen_io_os::{SocketFolder, with_sockets};
use sheen_node::net::{LNet, NetConfig};
use sheen_node::rpc::RpcNode;
use sheen_types::{Errno, NetType, Nid};

use super::cluster::Cluster;
use super::{PORT, addresses, folder_fault, invalid};
use sheen_tools::output::{Fault, shown_path};

/// How often another address is tried when another process takes the one that was free.
const TRIES: usize = 16;

/// A file system, and how its servers are reached.
#[derive(Clone, Debug)]
pub(super) struct MountSource {
    /// `MGSNID[:MGSNID...]:/FSNAME[/SUBDIR]`.
    pub(super) name: String,
    pub(super) mgs: Vec<Nid>,
    pub(super) fsname: String,
    pub(super) fileset: Option<String>,
    pub(super) port: u16,
    folder: Option<SocketFolder>,
}

/// The node of a client.
pub(super) struct OwnNode {
    pub(super) world: World,
    pub(super) rpc: Arc<RpcNode>,
    /// Its address, where it does not listen.
    _claim: Option<UdpSocket>,
}

impl MountSource {
    /// Finds what `source` names: `MGSNID[:MGSNID...]:/FSNAME[/SUBDIR]`, or the directory of a file system of
    /// `sheen up`. An address of the client's own (`nid`) that is not of the loopback network means TCP.
    ///
    /// # Errors
    /// As [`parse_source`]; `EPERM` for a directory that another user could write.
    pub(super) fn resolve(
        source: &OsStr,
        port: Option<u16>,
        nid: Option<Nid>,
    ) -> Result<Self, Fault> {
        let mut found = match directory(Path::new(""), source) {
            Some(path) => Self::of_directory(&path)?,
            None => Self::of_address(&address(source)?, port.unwrap_or(PORT))?,
        };
        found.port = port.unwrap_or(found.port);
        if nid.is_some_and(|nid| !nid.address().is_loopback()) {
            found.folder = None;
        }
        Ok(found)
    }

    /// Leaves out the MGS's NIDs of other networks than this one (`-o network=NET`).
    ///
    /// # Errors
    /// `EINVAL` if none is left.
    pub(super) fn keep_only(&mut self, network: Option<(NetType, u16)>) -> Result<(), Fault> {
        let Some(network) = network else { return Ok(()) };
        self.mgs.retain(|nid| (nid.net_type(), nid.net_number()) == network);
        match self.mgs.is_empty() {
            true => {
                Err(invalid(format!("mount.lustre: no NID of {} is on that network", self.name)))
            }
            false => Ok(()),
        }
    }

    /// What the kernel's table shows, with `name` in place of the nodes.
    pub(super) fn shown(&self, name: Option<&str>) -> String {
        match (name, self.name.split_once(":/")) {
            (Some(name), Some((_, path))) => format!("{name}:/{path}"),
            _ => self.name.clone(),
        }
    }

    fn of_address(source: &str, port: u16) -> Result<Self, Fault> {
        let (mgs, fsname, fileset) = parse_source(source)?;
        let folder = mgs.iter().find_map(|nid| find(*nid, port));
        Ok(Self { name: source.to_owned(), mgs, fsname, fileset, port, folder })
    }

    fn of_directory(directory: &Path) -> Result<Self, Fault> {
        let cluster = Cluster::read(directory)?;
        let missing = || invalid(format!("{}: it was never started", shown_path(directory)));
        let (nid, port) = cluster.address().ok_or_else(missing)?;
        let source = format!("{nid}:/{}", cluster.fsname().ok_or_else(missing)?);
        let (mgs, fsname, fileset) = parse_source(&source)?;
        let place = cluster.sockets();
        let folder = SocketFolder::open(&place).map_err(|error| folder_fault(&place, &error))?;
        Ok(Self { name: source, mgs, fsname, fileset, port, folder: Some(folder) })
    }

    /// Starts the client's node, at `nid` or at an address that is free. Where it may not listen, servers
    /// reach it over the connections that it opens itself.
    pub(super) async fn start_node(
        &self,
        world: &World,
        nid: Option<Nid>,
    ) -> Result<OwnNode, Fault> {
        let listens = self.folder.is_some() || addresses::may_listen(self.port);
        let world = match &self.folder {
            Some(folder) => with_sockets(world, folder.clone(), false),
            None => world.clone(),
        };
        let mut tries = 0;
        loop {
            let own = match nid {
                Some(nid) => nid,
                None => self.own_nid().map_err(|text| Fault::new(Errno::EADDRNOTAVAIL, text))?,
            };
            tries += 1;
            match self.start_at(&world, own, listens).await {
                Err(fault) if nid.is_none() && is_taken(&fault) && tries < TRIES => {}
                started => return started,
            }
        }
    }

    /// As [`Self::start_node`], at the address of an earlier process of this mount, if that has released it.
    pub(super) async fn start_node_again(
        &self,
        world: &World,
        former: Nid,
    ) -> Result<OwnNode, Fault> {
        match self.start_node(world, Some(former)).await {
            Err(fault) if is_taken(&fault) => {
                tracing::warn!(%former, "the address of before is taken: what the earlier process has locked is free \
                    when servers evict it");
                self.start_node(world, None).await
            }
            started => started,
        }
    }

    async fn start_at(&self, world: &World, nid: Nid, listens: bool) -> Result<OwnNode, Fault> {
        let (address, port) = (nid.address(), self.port);
        let claim = (!listens).then(|| addresses::claim(address, port)).transpose();
        let _claim = claim.map_err(|error| {
            let (errno, text) = addresses::refused(address, port, &error);
            match errno {
                Errno::EADDRINUSE => Fault::new(
                    errno,
                    format!(
                        "another client on this machine uses the address {address}; use -o nid=NID"
                    ),
                ),
                _ => Fault::new(errno, text),
            }
        })?;
        let rpc = start_node(world, nid, (port, listens)).await?;
        Ok(OwnNode { world: world.clone(), rpc, _claim })
    }

    fn own_nid(&self) -> Result<Nid, String> {
        let Some(folder) = &self.folder else { return addresses::towards(self.mgs[0], self.port) };
        let address = self.mgs[0].address();
        let block = match address.is_loopback() {
            true => address,
            false => addresses::block_of(&folder.path().to_string_lossy()),
        };
        addresses::last_free_in(block, |address: Ipv4Addr| {
            !folder.is_live(SocketAddrV4::new(address, self.port))
        })
        .ok_or_else(|| format!("no free address in {}", shown_path(folder.path())))
    }

    /// A hint for the user if no server answers.
    pub(super) fn hint(&self) -> &'static str {
        let is_here =
            self.folder.is_none() && self.mgs.iter().all(|nid| nid.address().is_loopback());
        match is_here {
            true => {
                "A file system of `sheen up` without --listen is for its owner and root only; root mounts it by its directory."
            }
            false => "",
        }
    }

    /// Completes when the servers have refused the client because it connects from an unprivileged port.
    pub(super) async fn refused(&self, world: &World, lnet: &LNet) -> Fault {
        const LOOK: std::time::Duration = std::time::Duration::from_millis(100);
        loop {
            if let Some(nid) = lnet.refused_as_insecure() {
                let text = format!(
                    "mount.lustre: mount {} failed: {nid} closes connections from ports that any user may \
                     use (accept=secure): mount as root (in a container: with CAP_NET_BIND_SERVICE and the \
                     host's network), or start its servers with --accept all",
                    self.name
                );
                return Fault::new(Errno::EACCES, text);
            }
            world.clock.sleep_until(world.clock.now() + LOOK).await;
        }
    }
}

/// `source` for a process that works elsewhere: a directory's whole path.
pub(super) fn from_anywhere(source: &OsStr) -> OsString {
    let path = directory(Path::new(""), source).and_then(|path| path.canonicalize().ok());
    path.map_or_else(|| source.to_owned(), PathBuf::into_os_string)
}

/// What is no directory's path, as text: shown as octal numbers what is none, if it is no address either.
///
/// # Errors
/// `EINVAL` for an address whose bytes are no UTF-8.
fn address(source: &OsStr) -> Result<Cow<'_, str>, Fault> {
    if let Some(text) = source.to_str() {
        return Ok(Cow::Borrowed(text));
    }
    let shown = shown_path(source);
    match names_nodes(&source.to_string_lossy()) {
        true => Err(invalid(format!("mount.lustre: '{shown}': SUBDIR is no UTF-8; {EXPECTED}"))),
        false => Ok(Cow::Owned(shown)),
    }
}

/// The directory of a file system that `source` names, seen from `base`. What has the form of nodes' addresses is
/// never one: a user who may write here could plant one under a name that other users mount. (`./` makes it one.)
fn directory(base: &Path, source: &OsStr) -> Option<PathBuf> {
    let path = base.join(source);
    // One that may not be read is named so when it is read.
    let is_there = || match fs::metadata(path.join("run/cluster")) {
        Err(error) => error.kind() == ErrorKind::PermissionDenied,
        Ok(_) => true,
    };
    (!names_nodes(&source.to_string_lossy()) && is_there()).then_some(path)
}

/// The parts of `MGSNID[:MGSNID]:/FSNAME[/SUBDIR]`; NIDs may have names of hosts.
///
/// # Errors
/// `ENODEV` for what Lustre would take for the device of a target; `EINVAL` for a wrong NID or a name that is not
/// known.
pub(super) fn parse_source(source: &str) -> Result<(Vec<Nid>, String, Option<String>), Fault> {
    let (nodes, path) = parts(source)?;
    let nids = nodes.map(nid_of).collect::<Result<Vec<Nid>, Fault>>()?;
    let (fsname, fileset) = match path.trim_end_matches('/').split_once('/') {
        Some((name, fileset)) => (name, Some(format!("/{fileset}"))),
        None => (path.trim_end_matches('/'), None),
    };
    Ok((nids, fsname.to_owned(), fileset))
}

const EXPECTED: &str = "expected MGSNID[:MGSNID...]:/FSNAME[/SUBDIR]";

/// The nodes, and what is behind `:/`.
fn parts(source: &str) -> Result<(impl Iterator<Item = &str>, &str), Fault> {
    let Some((nodes, path)) = source.split_once(":/") else {
        let text = format!(
            "mount.lustre: '{source}': no ':/'; {EXPECTED}, or `sheen server` for a target"
        );
        return Err(Fault::new(Errno::ENODEV, text));
    };
    Ok((nodes.split([':', ',']), path.trim_start_matches('/')))
}

/// The NID that a user names: an address, or a host's name, which the system knows.
fn nid_of(text: &str) -> Result<Nid, Fault> {
    if let Ok(nid) = text.parse() {
        return Ok(nid);
    }
    let Some((host, network)) = host_of(text) else {
        return Err(invalid(format!("mount.lustre: Can't parse NID '{text}'; {EXPECTED}")));
    };
    let unknown =
        |why: &str| invalid(format!("mount.lustre: Cannot resolve hostname '{host}': {why}"));
    let found = (host, 0).to_socket_addrs().map_err(|error| unknown(&error.to_string()))?;
    let mut found = found.filter_map(|address| match address.ip() {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    });
    let address = found.next().ok_or_else(|| unknown("it has no IPv4 address"))?;
    format!("{address}@{network}").parse().map_err(|_| unknown("no NID"))
}

/// A host's name and the network, if `text` has that form: `server1`, `server1@tcp`.
fn host_of(text: &str) -> Option<(&str, &str)> {
    let (host, network) = text.split_once('@').unwrap_or((text, "tcp"));
    let is_name = host.starts_with(|first: char| first.is_ascii_alphanumeric())
        && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
        // Else it is a number with a fault in it.
        && host.bytes().any(|byte| byte.is_ascii_alphabetic());
    let is_network = format!("0.0.0.0@{network}").parse::<Nid>().is_ok();
    (is_name && is_network).then_some((host, network))
}

/// Whether `source` has the form of nodes' addresses, known or not.
fn names_nodes(source: &str) -> bool {
    let is_node = |text: &str| text.parse::<Nid>().is_ok() || host_of(text).is_some();
    parts(source).is_ok_and(|(mut nodes, _)| nodes.all(is_node))
}

async fn start_node(
    world: &World,
    nid: Nid,
    (port, listen): (u16, bool),
) -> Result<Arc<RpcNode>, Fault> {
    // Root's servers connect to a client from privileged ports, as root's client does to them.
    let secure = rustix::process::geteuid().is_root();
    let connections_max = super::connections_max(0);
    let config = NetConfig { secure, listen, connections_max, ..NetConfig::new(nid, port) };
    let lnet = LNet::start(world.clone(), config).await.map_err(|error| {
        let (errno, text) = addresses::refused(nid.address(), port, &error);
        Fault::new(errno, text)
    })?;
    Ok(RpcNode::start(world.clone(), lnet))
}

fn is_taken(fault: &Fault) -> bool {
    *fault == Fault::new(Errno::EADDRINUSE, fault.text.clone())
}

/// The folder of the links.
pub(super) fn links() -> PathBuf {
    super::sockets().join("nids")
}

/// The link for the file system at an address.
pub(super) fn link(nid: Nid, port: u16) -> PathBuf {
    links().join(format!("{nid}-{port}"))
}

/// The folder of sockets of the file system that `up` runs, or ran, at this address.
pub(super) fn find(nid: Nid, port: u16) -> Option<SocketFolder> {
    check_owner(&super::sockets()).ok()?;
    SocketFolder::open(&fs::read_link(link(nid, port)).ok()?).ok()
}

/// Whether another file system than that in `folder` is in use at this address.
pub(super) fn is_of_another(nid: Nid, port: u16, folder: &Path) -> bool {
    let node = SocketAddrV4::new(nid.address(), port);
    find(nid, port).is_some_and(|known| known.path() != folder && known.is_live(node))
}

/// Links the address to the file system with its sockets in `folder`.
pub(super) fn announce(nid: Nid, port: u16, folder: &Path) -> Result<(), Fault> {
    for place in [super::sockets(), links()] {
        make_private(&place).map_err(|error| folder_fault(&place, &error))?;
    }
    sweep();
    let (path, temporary) = (link(nid, port), links().join(format!(".{}", std::process::id())));
    let laid = std::os::unix::fs::symlink(folder, &temporary);
    laid.and_then(|()| fs::rename(&temporary, &path)).map_err(|error| folder_fault(&path, &error))
}

/// Takes away links to file systems whose directories are gone.
fn sweep() {
    for entry in fs::read_dir(links()).into_iter().flatten().flatten() {
        if fs::metadata(entry.path()).is_err_and(|error| error.kind() == ErrorKind::NotFound) {
            forget(&entry.path());
        }
    }
}

/// Removes the link of [`announce`].
pub(super) fn forget(link: &Path) {
    // It may be gone already.
    let _ = fs::remove_file(link);
}

/// Removes the link of [`announce`], if the address stands for the file system with its sockets in `folder`.
pub(super) fn forget_of(nid: Nid, port: u16, folder: &Path) {
    let link = link(nid, port);
    if fs::read_link(&link).is_ok_and(|known| known == folder) {
        forget(&link);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn a_directory_of_an_addresss_name_is_not_taken_for_the_address() {
        let base = std::env::temp_dir().join(format!("sheen-way-{}", std::process::id()));
        for source in
            ["10.9.9.9@tcp:/lustre", "10.9.9.9:/lustre", "mine", "odd:/name", "a,b@tcp1:/name"]
        {
            let planted = base.join(source);
            fs::create_dir_all(planted.join("run")).unwrap();
            fs::write(planted.join("run/cluster"), "").unwrap();
            let is_address = source != "mine";
            assert_eq!(
                directory(&base, source.as_ref()),
                (!is_address).then_some(planted),
                "{source}"
            );
        }
        assert!(directory(&base, "./10.9.9.9@tcp:/lustre".as_ref()).is_some(), "said to be one");
        assert_eq!(directory(&base, "nothing".as_ref()), None);
        fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn an_address_is_text_and_stays_as_it_is() {
        let text = "10.9.9.9@tcp:/fs/a\\b";
        assert_eq!(address(text.as_ref()).unwrap(), text);
        let odd = OsStr::from_bytes(b"10.9.9.9@tcp:/fs/\xff");
        let fault = address(odd).unwrap_err();
        assert!(fault.code == 22 && fault.text.contains("/fs/\\377"), "{fault:?}");
        let base = std::env::temp_dir().join(format!("sheen-odd-{}", std::process::id()));
        fs::create_dir_all(base.join(odd).join("run")).unwrap();
        fs::write(base.join(odd).join("run/cluster"), "").unwrap();
        assert_eq!(directory(&base, odd), None, "an address, whatever is planted");
        fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn a_directory_is_named_by_its_whole_path_and_nothing_else_is_changed() {
        let name =
            [b"sheen-anywhere-\xff".as_slice(), std::process::id().to_string().as_bytes()].concat();
        let base = std::env::temp_dir().join(OsStr::from_bytes(&name));
        fs::create_dir_all(base.join("run")).unwrap();
        fs::write(base.join("run/cluster"), "").unwrap();
        let (here, base) = (std::env::current_dir().unwrap(), base.canonicalize().unwrap());
        let up = "../".repeat(here.components().count() - 1);
        let relative = Path::new(&up).join(base.strip_prefix("/").unwrap());
        assert_eq!(from_anywhere(relative.as_os_str()), base.as_os_str());
        for source in ["10.0.0.1@tcp:/sheen/a", "nothing", "..", "/no/such/directory"] {
            assert_eq!(from_anywhere(source.as_ref()), source);
        }
        fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn sources_are_taken_apart() {
        let (nids, name, fileset) = parse_source("10.0.0.1@tcp:10.0.0.2@tcp:/lustre/a/b").unwrap();
        assert_eq!((nids.len(), name.as_str()), (2, "lustre"));
        assert_eq!(fileset.as_deref(), Some("/a/b"));
        assert_eq!(parse_source("10.0.0.1:/l").unwrap().2, None);
        let wrong = [
            ("lustre", 19, "no ':/'"),
            ("10.0.0.1@tcp", 19, "no ':/'"),
            ("10.0.0.1@o2ib:/l", 22, "Can't parse NID '10.0.0.1@o2ib'"),
            ("10.0.0.300:/l", 22, "Can't parse NID '10.0.0.300'"),
            ("-x@tcp:/l", 22, "Can't parse NID '-x@tcp'"),
            ("no-such-host.invalid@tcp:/l", 22, "Cannot resolve hostname 'no-such-host.invalid'"),
        ];
        for (bad, code, why) in wrong {
            let fault = parse_source(bad).unwrap_err();
            assert!(fault.code == code && fault.text.contains(why), "{bad}: {fault:?}");
        }
    }

    #[test]
    fn hosts_are_named_by_their_names() {
        let nids = |source: &str| {
            let (nids, ..) = parse_source(source).unwrap();
            nids.iter().map(Nid::to_string).collect::<Vec<_>>()
        };
        assert_eq!(nids("localhost@tcp:/l"), ["127.0.0.1@tcp"]);
        assert_eq!(nids("localhost@tcp3:10.0.0.2:/l"), ["127.0.0.1@tcp3", "10.0.0.2@tcp"]);
        assert_eq!(nids("localhost,10.0.0.2@tcp1:/l"), ["127.0.0.1@tcp", "10.0.0.2@tcp1"]);
    }

    #[test]
    fn a_network_and_a_name_to_show_are_as_the_user_says() {
        let source = "10.0.0.1@tcp,10.1.0.1@tcp1:10.0.0.2@tcp:/fs/a/b";
        let mut found = MountSource::of_address(source, PORT).unwrap();
        assert_eq!(found.shown(None), source);
        assert_eq!(found.shown(Some("mgs@tcp")), "mgs@tcp:/fs/a/b");
        found.keep_only(Some((NetType::TCP, 0))).unwrap();
        assert_eq!(found.mgs.len(), 2);
        assert_eq!(found.keep_only(Some((NetType::TCP, 7))).unwrap_err().code, 22);
    }
}
