//! Addresses of this machine that one test has to itself: blocks of 256 of the loopback network, as `sheen up` takes one
//! for each directory.
//!
//! Who has one holds a socket of its name, which the kernel knows where it knows the addresses, in the network
//! namespace, and closes with the process.

use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;

use sheen_workloads::{Context, Outcome};

/// The addresses 127.A.B.0 to 127.A.B.255. Dropped, they are free.
#[derive(Debug)]
pub struct Block {
    network: Ipv4Addr,
    _held: UnixListener,
}

impl Block {
    /// Any that is free: for servers that no `sheen up` starts.
    ///
    /// # Errors
    /// All are in use.
    pub fn free() -> Outcome<Self> {
        // Processes of one number, in PID namespaces, find the next ones.
        let begin = std::process::id();
        let blocks = (0..=u32::from(u16::MAX)).map(|number| begin.wrapping_add(number));
        let blocks = blocks
            .map(|number| Ipv4Addr::new(127, (200 + number % 50) as u8, (number / 50) as u8, 0));
        for network in blocks {
            if let Some(block) = Self::claim(network)? {
                return Ok(block);
            }
        }
        Err("all addresses for tests are in use".to_owned())
    }

    /// The one that `sheen up` takes for this directory, a canonical path; `None` if another test has it.
    pub(crate) fn of_directory(directory: &Path) -> Outcome<Option<Self>> {
        let hash = crc32c(directory.to_string_lossy().as_bytes());
        Self::claim(Ipv4Addr::new(127, (16 + (hash >> 8) % 224) as u8, hash as u8, 0))
    }

    fn claim(network: Ipv4Addr) -> Outcome<Option<Self>> {
        let name = format!("sheen-test-addresses-{network}");
        let address = SocketAddr::from_abstract_name(&name).context(&name)?;
        match UnixListener::bind_addr(&address) {
            Ok(held) => Ok(Some(Self { network, _held: held })),
            Err(error) if error.kind() == ErrorKind::AddrInUse => Ok(None),
            Err(error) => Err(format!("{name}: {error}")),
        }
    }

    /// The first of them.
    #[must_use]
    pub fn network(&self) -> Ipv4Addr {
        self.network
    }

    /// One of them, as a NID.
    #[must_use]
    pub fn nid(&self, host: u32) -> String {
        let [a, b, c, _] = self.network.octets();
        format!("{a}.{b}.{c}.{host}@tcp")
    }
}

/// As `sheen up` has it (`host::addresses`): a test compares the two.
fn crc32c(bytes: &[u8]) -> u32 {
    let step = |sum: u32| if sum & 1 == 1 { sum >> 1 ^ 0x82f6_3b78 } else { sum >> 1 };
    !bytes.iter().fold(!0, |sum, byte| (0..8).fold(sum ^ u32::from(*byte), |sum, _| step(sum)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_one_tests_at_a_time() {
        let (one, two) = (Block::free().unwrap(), Block::free().unwrap());
        assert_ne!(one.network(), two.network());
        let network = one.network();
        assert!(Block::claim(network).unwrap().is_none());
        drop(one);
        assert_eq!(Block::claim(network).unwrap().map(|it| it.network()), Some(network));
    }

    #[test]
    fn a_directory_has_one_block() {
        let directory = format!("/no/such/directory/{}", std::process::id());
        let block = Block::of_directory(Path::new(&directory)).unwrap().expect("free");
        assert!(Block::of_directory(Path::new(&directory)).unwrap().is_none());
        assert!(block.network().is_loopback() && block.nid(7).ends_with(".7@tcp"));
    }
}
