//! Packets of a capture file, pcap or pcapng.

use std::fmt;
use std::io::Cursor;
use std::time::Duration;

use bytes::Bytes;
use pcap_parser::traits::PcapNGPacketBlock;
use pcap_parser::{Block, Linktype, PcapBlockOwned, PcapError, create_reader};

/// Bytes that one packet with its headers may have in a file.
const BLOCK_BYTES_MAX: usize = 1 << 20;

/// One packet from the IPv4 header on.
#[derive(Clone, Debug)]
pub struct Packet {
    /// Time since 1970.
    pub time: Duration,
    /// What was captured of the packet.
    pub data: Bytes,
}

/// Why a file is no capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaptureError {
    /// Neither pcap nor pcapng.
    NotACapture,
    /// A network that is not read here, by its number in capture files.
    UnknownLink(i32),
    /// The file breaks its own format at this packet.
    Broken {
        /// Packets read before.
        packets: usize,
    },
}

impl fmt::Display for CaptureError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotACapture => out.write_str("not a capture file: neither pcap nor pcapng"),
            Self::UnknownLink(link) => write!(out, "captured on a network of kind {link}"),
            Self::Broken { packets } => write!(out, "capture file broken behind packet {packets}"),
        }
    }
}

impl std::error::Error for CaptureError {}

/// What the packets of one interface have in common.
#[derive(Clone, Copy)]
struct Interface {
    link: Linktype,
    units_per_second: u64,
    offset_seconds: i64,
}

impl Interface {
    fn time(&self, units: u64) -> Duration {
        let seconds = (units / self.units_per_second).saturating_add_signed(self.offset_seconds);
        let below = u128::from(units % self.units_per_second) * 1_000_000_000;
        let nanoseconds = below / u128::from(self.units_per_second);
        Duration::new(seconds, u32::try_from(nanoseconds).unwrap_or(0))
    }
}

/// Reads all IPv4 packets of a file; other packets are left out. A last packet that the file's end cuts
/// off is left out too, because that is how a capture ends when its writer is killed.
///
/// # Errors
/// See [`CaptureError`].
pub fn packets(file: &Bytes) -> Result<Vec<Packet>, CaptureError> {
    let mut reader = create_reader(BLOCK_BYTES_MAX, Cursor::new(file.clone()))
        .map_err(|_| CaptureError::NotACapture)?;
    let mut interfaces = Vec::new();
    let mut packets = Vec::new();
    loop {
        match reader.next() {
            Ok((length, block)) => {
                take_block(&block, &mut interfaces, &mut packets)?;
                reader.consume(length);
            }
            Err(PcapError::Eof | PcapError::UnexpectedEof) => return Ok(packets),
            Err(PcapError::Incomplete(_)) => {
                let broken = CaptureError::Broken { packets: packets.len() };
                reader.refill().map_err(|_| broken)?;
                if reader.reader_exhausted() {
                    return Ok(packets);
                }
            }
            Err(_) => return Err(CaptureError::Broken { packets: packets.len() }),
        }
    }
}

fn take_block(
    block: &PcapBlockOwned<'_>,
    interfaces: &mut Vec<Interface>,
    packets: &mut Vec<Packet>,
) -> Result<(), CaptureError> {
    let (interface, units, data) = match block {
        PcapBlockOwned::LegacyHeader(header) => {
            let nano = header.is_nanosecond_precision();
            let units_per_second = if nano { 1_000_000_000 } else { 1_000_000 };
            let link = header.network;
            interfaces.push(Interface { link, units_per_second, offset_seconds: 0 });
            return Ok(());
        }
        PcapBlockOwned::NG(Block::SectionHeader(_)) => {
            interfaces.clear();
            return Ok(());
        }
        PcapBlockOwned::NG(Block::InterfaceDescription(description)) => {
            interfaces.push(Interface {
                link: description.linktype,
                units_per_second: description.ts_resolution().unwrap_or(1_000_000).max(1),
                offset_seconds: description.ts_offset(),
            });
            return Ok(());
        }
        PcapBlockOwned::Legacy(packet) => {
            let scale = interfaces.first().map_or(1, |interface| interface.units_per_second);
            let units = u64::from(packet.ts_sec) * scale + u64::from(packet.ts_usec);
            (interfaces.first(), units, packet.data)
        }
        PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
            let units = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
            (interfaces.get(packet.if_id as usize), units, packet.packet_data())
        }
        PcapBlockOwned::NG(Block::SimplePacket(packet)) => {
            (interfaces.first(), 0, packet.packet_data())
        }
        PcapBlockOwned::NG(_) => return Ok(()),
    };
    let broken = CaptureError::Broken { packets: packets.len() };
    let interface = interface.ok_or(broken)?;
    if let Some(start) = network_start(interface.link, data)? {
        let data = Bytes::copy_from_slice(&data[start..]);
        packets.push(Packet { time: interface.time(units), data });
    }
    Ok(())
}

/// Where the IPv4 header starts; `None` if the packet is not IPv4.
fn network_start(link: Linktype, frame: &[u8]) -> Result<Option<usize>, CaptureError> {
    const IPV4: &[u8] = &[0x08, 0x00];
    const VLAN: &[u8] = &[0x81, 0x00];
    let at = match link {
        Linktype::ETHERNET if frame.get(12..14) == Some(VLAN) => 16,
        Linktype::ETHERNET => 12,
        Linktype::LINUX_SLL => 14,
        Linktype::LINUX_SLL2 => {
            let is_ip = frame.get(..2) == Some(IPV4) && frame.len() > 20;
            return Ok(is_ip.then_some(20));
        }
        Linktype::RAW | Linktype::IPV4 => {
            let is_ip = frame.first().is_some_and(|byte| byte >> 4 == 4);
            return Ok(is_ip.then_some(0));
        }
        Linktype(other) => return Err(CaptureError::UnknownLink(other)),
    };
    Ok((frame.get(at..at + 2) == Some(IPV4)).then_some(at + 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_capture_is_refused() {
        for bytes in [&b""[..], b"short", b"#!/bin/sh\necho this is no capture at all\n"] {
            let file = Bytes::from_static(bytes);
            assert_eq!(packets(&file).map(|_| ()), Err(CaptureError::NotACapture));
        }
    }

    #[test]
    fn a_cut_file_gives_its_whole_packets() {
        let mut file = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0];
        file.extend([0; 8]);
        file.extend([0xff, 0xff, 0, 0, 101, 0, 0, 0]);
        for _ in 0..2 {
            file.extend([7, 0, 0, 0, 5, 0, 0, 0, 4, 0, 0, 0, 4, 0, 0, 0]);
            file.extend([0x45, 1, 2, 3]);
        }
        file.pop();
        let packets = packets(&file.into()).expect("a capture");
        assert_eq!(packets.len(), 1);
        assert_eq!(packets[0].time, Duration::new(7, 5000));
        assert_eq!(&packets[0].data[..], [0x45, 1, 2, 3]);
    }
}
