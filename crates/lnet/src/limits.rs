//! What LNet allows itself and its peers, each with its reason.

use std::time::Duration;

/// Bytes of one message's payload: `LNET_MTU`; longer bulk comes in several messages.
pub const PAYLOAD_BYTES_MAX: usize = sheen_types::limits::LNET_PAYLOAD_BYTES_MAX;
/// Bytes read ahead at a time. Some thirty requests fit, so a burst costs one system call; a
/// payload of 1 MiB then has at most this much of it copied once. A message that is kept pins
/// this much memory.
pub const READ_AHEAD_BYTES: usize = 16 << 10;
/// Room below which no read is started but a new buffer is: most messages are shorter, also those
/// that carry a page of data. (A message that is cut in two costs a second system call.)
pub const READ_BYTES_MIN: usize = 5 << 10;
/// From this many bytes with headers a message goes by a bulk connection. It is the sender's choice alone:
/// socklnd's `min_bulk` is 1 KiB, but so the bytes of a small file would come by another connection
/// than the answer before them, and cost the receiver a wake-up of its own.
pub const BULK_BYTES_MIN: usize = 16 << 10;
/// Bytes that may wait for a peer, for all its connections together; beyond, they are closed. Servers let a
/// client have much less of bulk under way, and drop requests of one that takes no answers; a client
/// that real servers ask to send 4 MiB for each of 64 requests has as much.
pub const WAITING_BYTES_MAX: usize = 256 << 20;
/// Bytes that wait for a peer from which on what it has asked for is dropped: ACKs, answers to pings, replies. It takes
/// none. That is what servers let a client have waiting before they drop its requests.
pub const ANSWERS_WAITING_BYTES_MAX: usize = 96 << 20;
/// Messages that may wait for a peer's connections.
pub const WAITING_MESSAGES_MAX: usize = 65536;
/// Connections of one kind that a peer may open. socklnd opens up to four on fast networks; a
/// peer that lost its connections without our knowing comes again before we notice.
pub const LINKS_PER_KIND_MAX: usize = 8;
/// Peers that may be connected at once: about 64 K sockets with three connections each.
pub const PEERS_MAX: usize = 20_000;
/// Of the connections that a node may have, the part of those whose peer has not said who it is, and of those that
/// nothing has come of: three quarters and more than half are left for peers that are used.
pub const UNUSED_PART: usize = 4;
/// How often unused connections are looked for while there is no room for new ones: a look costs a walk over all
/// peers.
pub const ROOM_TIME: Duration = Duration::from_millis(100);
/// Connections from one address whose peer has not said who it is. A node opens its three one after the
/// other; a machine's mounts that all begin at once are through in milliseconds.
pub const OPENINGS_PER_ADDRESS: usize = 64;
/// Connections whose handshake is not over, from all addresses: a cluster that comes back at once is served as it
/// comes.
pub const OPENINGS_MAX: usize = 1024;
/// Peers that came by themselves and have no export, nor anything else that they came for, are disconnected
/// after this: connecting to a target takes a client less than a second, and a client that was disconnected
/// connects again.
pub const UNUSED_TIME_MAX: Duration = Duration::from_secs(60);
/// Such peers in all; beyond, the oldest are disconnected earlier.
pub const UNUSED_PEERS_MAX: usize = 1024;
/// How long it is remembered that a peer could not be reached, beyond the pause before the next attempt.
pub const DEAD_TIME_MAX: Duration = Duration::from_secs(60);
/// A connection attempt with its HELLO takes no longer (socklnd's `accept_timeout` is 5 s).
pub const OPENING_TIME_MAX: Duration = Duration::from_secs(5);
/// Pause after the first failure to connect. socklnd waits 1 s; servers that restart on the same
/// machine are back sooner.
pub const RECONNECT_TIME_MIN: Duration = Duration::from_millis(250);
/// Longest pause. socklnd goes up to 60 s; recovery should not wait for that.
pub const RECONNECT_TIME_MAX: Duration = Duration::from_secs(5);
/// Pause after a lost connection race: the winner's connections come in meanwhile.
pub const RACE_TIME: Duration = Duration::from_millis(250);
/// Refused attempts in a row after which the connections there are must do (socklnd's
/// `SOCKNAL_MAX_RETRIES` is 3; ours also covers a restarted peer that first cleans up).
pub const RACES_MAX: u32 = 8;
/// A connection that has carried nothing from us for this long gets a keepalive (socklnd
/// `keepalive`).
pub const KEEPALIVE_TIME: Duration = Duration::from_secs(30);
/// A connection on which nothing could be written for this long is dead (socklnd `sock_timeout`).
pub const STUCK_TIME_MAX: Duration = Duration::from_secs(50);
/// Pieces of one gathering write.
pub const WRITE_PIECES_MAX: usize = 64;
