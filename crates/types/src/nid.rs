//! LNet addresses.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

/// A node's LNet address with a 4-byte host part: network type, network number, address.
///
/// The value is Lustre's `lnet_nid_t`: type in bits 48..64, number in 32..48, address in 0..32.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nid(pub u64);

/// LNet network types we can name (`enum lnet_nd_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NetType(pub u16);

impl NetType {
    /// `SOCKLND`: TCP.
    pub const TCP: NetType = NetType(2);
    /// `O2IBLND`: InfiniBand.
    pub const O2IB: NetType = NetType(5);
    /// `LOLND`: messages to oneself.
    pub const LO: NetType = NetType(9);
}

impl Nid {
    /// `LNET_NID_ANY`.
    pub const ANY: Nid = Nid(u64::MAX);
    /// `0@lo`: this node itself, without a socket.
    pub const LOOPBACK: Nid = Nid((NetType::LO.0 as u64) << 48);

    /// `address@tcp`.
    #[must_use]
    pub fn tcp(address: Ipv4Addr) -> Self {
        Self(u64::from(NetType::TCP.0) << 48 | u64::from(u32::from(address)))
    }

    /// The network's type.
    #[must_use]
    pub fn net_type(self) -> NetType {
        NetType((self.0 >> 48) as u16)
    }

    /// The network's number: 0 in `@tcp`, 1 in `@tcp1`.
    #[must_use]
    pub fn net_number(self) -> u16 {
        (self.0 >> 32) as u16
    }

    /// The host part as an IPv4 address, on networks that have one.
    #[must_use]
    pub fn address(self) -> Ipv4Addr {
        Ipv4Addr::from(self.0 as u32)
    }

    /// Whether messages to it never leave the node.
    #[must_use]
    pub fn is_loopback(self) -> bool {
        self.net_type() == NetType::LO
    }
}

impl fmt::Debug for Nid {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

impl fmt::Display for Nid {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::ANY {
            return out.write_str("<?>");
        }
        let net = match self.net_type() {
            NetType::LO => return write!(out, "{}@lo", self.0 as u32),
            NetType::TCP => "tcp",
            NetType::O2IB => "o2ib",
            NetType(other) => {
                return write!(out, "{}@<{}:{}>", self.address(), other, self.net_number());
            }
        };
        write!(out, "{}@{net}", self.address())?;
        match self.net_number() {
            0 => Ok(()),
            number => write!(out, "{number}"),
        }
    }
}

/// The text is no NID of a kind we speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseNidError;

impl fmt::Display for ParseNidError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("not a NID: expected ADDRESS@tcp[NUMBER] or 0@lo")
    }
}

impl std::error::Error for ParseNidError {}

impl FromStr for Nid {
    type Err = ParseNidError;

    /// `ADDRESS[@tcp[N]]` (tcp when no network is named) or `0@lo`.
    fn from_str(text: &str) -> Result<Self, ParseNidError> {
        let (host, net) = text.split_once('@').unwrap_or((text, "tcp"));
        if net == "lo" {
            return if host == "0" { Ok(Self::LOOPBACK) } else { Err(ParseNidError) };
        }
        let number = match net.strip_prefix("tcp").ok_or(ParseNidError)? {
            "" => 0,
            digits => digits.parse::<u16>().map_err(|_| ParseNidError)?,
        };
        let address: Ipv4Addr = host.parse().map_err(|_| ParseNidError)?;
        Ok(Self(Self::tcp(address).0 | u64::from(number) << 32))
    }
}

#[cfg(test)]
mod tests {
    use super::Nid;

    #[test]
    fn text_and_back() {
        for text in ["10.77.0.11@tcp", "127.0.0.2@tcp3", "0@lo"] {
            assert_eq!(text.parse::<Nid>().unwrap().to_string(), text);
        }
        assert_eq!("10.77.0.11".parse::<Nid>().unwrap().to_string(), "10.77.0.11@tcp");
        for bad in ["", "@tcp", "10.0.0@tcp", "10.0.0.1@gni", "1@lo", "10.0.0.1@tcpx"] {
            assert!(bad.parse::<Nid>().is_err(), "{bad}");
        }
    }
}
