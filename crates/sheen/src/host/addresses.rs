//! Which address a process answers at.
//!
//! Lustre names a node by its address, so processes on one machine need addresses of their own. The
//! loopback network has sixteen million; each file system that `up` makes takes a block of 256 by its
//! directory's name, and each process the first free one in it.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, UdpSocket};

use sheen_types::{Errno, Nid};

use sheen_tools::output::errno_of;

/// Host numbers in a block that processes take: 0 and 255 mean something to routers.
const HOSTS: std::ops::Range<u8> = 1..255;
/// From a port that only root may have to one that stands for it among those who [`claim`] an address.
const CLAIM: u16 = 9000;

/// The block of the file system in `directory`: 127.A.B.0 with A at 16 or above, so that what people
/// use by hand (127.0.x.y) stays free.
pub(crate) fn block_of(directory: &str) -> Ipv4Addr {
    let hash = crc32c(directory.as_bytes());
    let second = 16 + (hash >> 8) % 224;
    Ipv4Addr::new(127, second as u8, hash as u8, 0)
}

/// The first address of `block` where no process listens on `port`.
///
/// # Errors
/// Why none can be had, a line.
pub(crate) fn free_in(block: Ipv4Addr, port: u16) -> Result<Nid, String> {
    let [a, b, c, _] = block.octets();
    for host in HOSTS {
        let address = Ipv4Addr::new(a, b, c, host);
        match TcpListener::bind(SocketAddrV4::new(address, port)) {
            Ok(_) => return Ok(Nid::tcp(address)),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(refused(address, port, &error).1),
        }
    }
    Err(format!("port {port} is in use on every address of {a}.{b}.{c}.0/24; use --port"))
}

/// The addresses of `block` as NIDs.
pub(crate) fn all_in(block: Ipv4Addr) -> impl Iterator<Item = Nid> {
    let [a, b, c, _] = block.octets();
    HOSTS.map(move |host| Nid::tcp(Ipv4Addr::new(a, b, c, host)))
}

/// The last address of `block` that is free as `is_free` says: from the other end than [`free_in`], so that
/// those who meet without ports and those who come by TCP do not take the same one.
pub(crate) fn last_free_in(block: Ipv4Addr, is_free: impl Fn(Ipv4Addr) -> bool) -> Option<Nid> {
    let mut all: Vec<Nid> = all_in(block).collect();
    all.reverse();
    all.into_iter().find(|nid| is_free(nid.address()))
}

/// Whether this process may listen at `port`: those below 1024 are for root.
pub(crate) fn may_listen(port: u16) -> bool {
    let tried = TcpListener::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port));
    !tried.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

/// An address that a process has which cannot listen there. Listeners exclude each other by their port; these
/// do by a datagram socket that no process sends to, as two nodes with one NID would end each other's
/// connections.
pub(crate) fn claim(address: Ipv4Addr, port: u16) -> io::Result<UdpSocket> {
    UdpSocket::bind(SocketAddrV4::new(address, port.wrapping_add(CLAIM)))
}

/// The first address of `block` that no process has claimed ([`claim`]). Processes that listen take theirs from the
/// ends of the block, those that claim from its middle.
///
/// # Errors
/// Why none can be had, a line.
pub(crate) fn unclaimed_in(block: Ipv4Addr, port: u16) -> Result<Nid, String> {
    let middle = all_in(block).skip(HOSTS.len() / 2).take(HOSTS.len() / 4);
    let free = middle.into_iter().find(|nid| claim(nid.address(), port).is_ok());
    free.ok_or_else(|| format!("too many clients of users at {block}"))
}

/// The address from which `peer` is reached; on the loopback network one of our own in its block.
///
/// # Errors
/// Why none can be had, a line.
pub(crate) fn towards(peer: Nid, port: u16) -> Result<Nid, String> {
    let address = peer.address();
    if address.is_loopback() {
        return match may_listen(port) {
            true => free_in(address, port),
            false => unclaimed_in(address, port),
        };
    }
    let failed = |error: io::Error| format!("cannot reach {peer}: {error}");
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).map_err(failed)?;
    socket.connect((address, port)).map_err(failed)?;
    match socket.local_addr().map_err(failed)? {
        std::net::SocketAddr::V4(own) => Ok(Nid::tcp(*own.ip())),
        std::net::SocketAddr::V6(_) => Err(format!("{peer} cannot be reached by IPv4")),
    }
}

/// What is wrong with an address that cannot be had, and what to do.
pub(crate) fn refused(address: Ipv4Addr, port: u16, error: &io::Error) -> (Errno, String) {
    match error.kind() {
        io::ErrorKind::PermissionDenied => (
            Errno::EACCES,
            format!("port {port} needs root; use --port with a number from 1024 on"),
        ),
        io::ErrorKind::AddrInUse => (
            Errno::EADDRINUSE,
            format!("port {port} on {address} is in use by another process; use --port or --nid"),
        ),
        io::ErrorKind::AddrNotAvailable => (
            Errno::EADDRNOTAVAIL,
            format!("{address} is not an address of this machine; use --nid"),
        ),
        _ => (errno_of(error), format!("cannot listen on {address} port {port}: {error}")),
    }
}

/// CRC-32C, bit by bit: for names only.
fn crc32c(bytes: &[u8]) -> u32 {
    let step = |sum: u32| if sum & 1 == 1 { sum >> 1 ^ 0x82f6_3b78 } else { sum >> 1 };
    let byte = |sum: u32, byte: &u8| (0..8).fold(sum ^ u32::from(*byte), |sum, _| step(sum));
    !bytes.iter().fold(!0, byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_one_block() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        let block = block_of("/tmp/a");
        assert_eq!(block, block_of("/tmp/a"));
        assert!(block.is_loopback() && block.octets()[1] >= 16);
    }

    #[test]
    fn a_taken_address_is_passed_over() {
        let block = block_of(&format!("test {}", std::process::id()));
        let first = free_in(block, 7988).unwrap();
        let _taken = TcpListener::bind((first.address(), 7988)).unwrap();
        assert_ne!(free_in(block, 7988).unwrap(), first);
    }

    #[test]
    fn an_address_is_claimed_by_one() {
        let block = block_of(&format!("claims {}", std::process::id()));
        let first = unclaimed_in(block, 988).unwrap();
        let held = claim(first.address(), 988).unwrap();
        assert_ne!(unclaimed_in(block, 988).unwrap(), first);
        assert_eq!(claim(first.address(), 988).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(held);
        assert_eq!(unclaimed_in(block, 988).unwrap(), first);
    }
}
